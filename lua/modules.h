/* The Lua modules inside the program. */
#ifndef MOELUA_LUA_MODULES_H
#define MOELUA_LUA_MODULES_H

#include <lua.h>
#include <stddef.h>

struct lua_module {
  const char *name; /* "moelua.train" */
  const char *text;
  size_t bytes;
};

/* Ends with a NULL name. Generated (gen/embed.lua). */
extern const struct lua_module lua_modules[];

/* Makes `require` find them, before package.path. Where the environment variable MOELUA_PATH names
 * a folder that has moelua/NAME.lua, that file is taken instead. */
void modules_install(lua_State *L);

#endif
