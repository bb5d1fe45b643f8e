/* Line editing for the REPL, over libedit: reading, history, completion, Ctrl-C. */
#ifndef MOELUA_LUA_LINE_H
#define MOELUA_LUA_LINE_H

#include <lua.h>

/* Opens the Lua module "moelua.line":
 *   read(prompt) -> text | nil at the end of input | false after Ctrl-C
 *   add(text)                add a history entry
 *   load(path), save(path)   the history file; true, or nil where it cannot
 *   completer(f)             f(word) -> array of the words it may become */
int luaopen_moelua_line(lua_State *L);

#endif
