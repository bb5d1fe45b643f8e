/* Runs a Lua script at build time with the LuaJIT the program is linked with: gen SCRIPT ARGS... */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: gen SCRIPT [ARGS...]\n");
    return 2;
  }
  lua_State *L = luaL_newstate();
  if (!L) return 1;
  luaL_openlibs(L);
  int failed = luaL_loadfile(L, argv[1]);
  if (!failed) {
    for (int i = 2; i < argc; i++) lua_pushstring(L, argv[i]);
    failed = lua_pcall(L, argc - 2, 0, 0);
  }
  if (failed) fprintf(stderr, "gen: %s\n", lua_tostring(L, -1));
  lua_close(L);
  return failed ? 1 : 0;
}
