#include "modules.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct lua_module *find_module(const char *name) {
  for (const struct lua_module *module = lua_modules; module->name; module++) {
    if (strcmp(module->name, name) == 0) return module;
  }
  return NULL;
}

/* Pushes the path of the file that stands in for an embedded module; 0 and nothing where none. */
static int push_override(lua_State *L, const char *name) {
  const char *folder = getenv("MOELUA_PATH");
  if (!folder || !*folder) return 0;
  const char *path = luaL_gsub(L, name, ".", "/");
  static const char *const patterns[] = {"%s/%s.lua", "%s/%s/init.lua"};
  for (int i = 0; i < 2; i++) {
    const char *file = lua_pushfstring(L, patterns[i], folder, path);
    if (access(file, R_OK) == 0) {
      lua_remove(L, -2);
      return 1;
    }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return 0;
}

static int searcher(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  if (strncmp(name, "moelua", 6) != 0) return 0;
  if (push_override(L, name)) {
    if (luaL_loadfile(L, lua_tostring(L, -1)) != 0) return lua_error(L);
    return 1;
  }
  const struct lua_module *module = find_module(name);
  if (!module) {
    lua_pushfstring(L, "\n\tno module '%s' inside the program", name);
    return 1;
  }
  lua_pushfstring(L, "=%s", module->name);
  if (luaL_loadbuffer(L, module->text, module->bytes, lua_tostring(L, -1)) != 0) {
    return lua_error(L);
  }
  return 1;
}

void modules_install(lua_State *L) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaders");
  for (int i = (int)lua_objlen(L, -1); i >= 2; i--) { /* after package.preload */
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushcfunction(L, searcher);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 2);
}
