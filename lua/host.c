/* The program `moelua`: LuaJIT with the modules of lua/moelua inside, and what only a host program
 * may do: signal handlers, malloc settings, leaving with a status. All else is Lua (moelua.cli). */
#include <lauxlib.h>
#include <locale.h>
#include <lua.h>
#include <lualib.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "line.h"
#include "modules.h"
#include "moelua/moelua.h"

/* Signals. While a run is guarded, the first SIGINT or SIGTERM only sets a flag, which the training
 * loop asks for between steps; the second ends the program. Otherwise SIGINT raises a Lua error at
 * the next hook; a compiled loop never comes there, so again the second ends the program. */
static lua_State *main_state;
static volatile sig_atomic_t guarded, pending, raising;

static void raise_interrupted(lua_State *L, lua_Debug *debug) {
  (void)debug;
  lua_sethook(L, NULL, 0, 0);
  raising = 0;
  luaL_error(L, "interrupted");
}

static void on_signal(int signo) {
  if (guarded && !pending) {
    pending = signo;
    return;
  }
  if (guarded || raising || signo != SIGINT) {
    signal(signo, SIG_DFL);
    raise(signo);
    return;
  }
  raising = 1;
  lua_sethook(main_state, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* guard(on): on true, signals wait for pending() to be asked. */
static int host_guard(lua_State *L) {
  pending = 0;
  guarded = lua_toboolean(L, 1);
  return 0;
}

/* pending() -> "interrupt" or "terminate" when a signal came since guard(true), else nil */
static int host_pending(lua_State *L) {
  if (!pending) return 0;
  lua_pushstring(L, pending == SIGINT ? "interrupt" : "terminate");
  return 1;
}

static int luaopen_moelua_host(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"guard", host_guard}, {"pending", host_pending}, {NULL, NULL}};
  lua_newtable(L);
  luaL_register(L, NULL, functions);
  lua_pushstring(L, moe_version()); /* of the library that is linked */
  lua_setfield(L, -2, "version");
  return 1;
}

static void install_signals(void) {
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGPIPE, SIG_DFL);
}

/* First touch of fresh memory is dear: large blocks stay in the heap instead of going back to the
 * system at every free. */
static void tune_malloc(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2000000000);
  mallopt(M_TOP_PAD, 64 << 20);
}

static int with_traceback(lua_State *L) {
  if (!lua_isstring(L, 1)) return 1;
  lua_getglobal(L, "debug");
  lua_getfield(L, -1, "traceback");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

static void preload(lua_State *L, const char *name, lua_CFunction open) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, open);
  lua_setfield(L, -2, name);
  lua_pop(L, 2);
}

/* require("moelua.cli").main(arguments) -> exit status */
static int run(lua_State *L, int argc, char **argv) {
  lua_pushcfunction(L, with_traceback);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "moelua.cli");
  if (lua_pcall(L, 1, 1, 1) == 0) {
    lua_getfield(L, -1, "main");
    lua_createtable(L, argc, 1);
    for (int i = 0; i < argc; i++) {
      lua_pushstring(L, argv[i]);
      lua_rawseti(L, -2, i);
    }
    if (lua_pcall(L, 1, 1, 1) == 0) return (int)lua_tointeger(L, -1);
  }
  const char *text = lua_tostring(L, -1);
  fprintf(stderr, "moelua: %s\n", text ? text : "(error object is not a string)");
  return 1;
}

int main(int argc, char **argv) {
  tune_malloc();
  setlocale(LC_CTYPE, "");
  lua_State *L = luaL_newstate();
  if (!L) {
    fprintf(stderr, "moelua: out of memory\n");
    return 1;
  }
  main_state = L;
  luaL_openlibs(L);
  modules_install(L);
  preload(L, "moelua.host", luaopen_moelua_host);
  preload(L, "moelua.line", luaopen_moelua_line);
  install_signals();
  int status = run(L, argc, argv);
  guarded = 0;
  lua_close(L);
  if (fflush(stdout) != 0 && status == 0) status = 1;
  return status;
}
