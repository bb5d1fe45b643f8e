#include "line.h"

#include <editline/readline.h>
#include <lauxlib.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { HISTORY_LIMIT = 2000 };

/* libedit's interface has no user pointer, so the state of the one terminal is here. */
static lua_State *completer_state;
static int completer_ref = LUA_NOREF;
static lua_State *matches_state; /* stack top: array of matches, while completing */
static sigjmp_buf read_jump;
static volatile sig_atomic_t reading;

static void on_interrupt(int signo) {
  (void)signo;
  if (reading) siglongjmp(read_jump, 1);
}

/* Ctrl-C leaves readline() by a jump: the terminal is then set back by hand. */
static int line_read(lua_State *L) {
  const char *prompt = luaL_checkstring(L, 1);
  struct termios saved;
  int has_terminal = tcgetattr(STDIN_FILENO, &saved) == 0;
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before);
  if (sigsetjmp(read_jump, 1) != 0) {
    reading = 0;
    if (has_terminal) tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    sigaction(SIGINT, &before, NULL);
    lua_pushboolean(L, 0);
    return 1;
  }
  reading = 1;
  char *text = readline(prompt);
  reading = 0;
  sigaction(SIGINT, &before, NULL);
  if (!text) return 0;
  lua_pushstring(L, text);
  free(text);
  return 1;
}

static int line_add(lua_State *L) {
  add_history(luaL_checkstring(L, 1));
  return 0;
}

static int line_load(lua_State *L) {
  if (read_history(luaL_checkstring(L, 1)) != 0) return 0;
  lua_pushboolean(L, 1);
  return 1;
}

static int line_save(lua_State *L) {
  if (write_history(luaL_checkstring(L, 1)) != 0) return 0;
  lua_pushboolean(L, 1);
  return 1;
}

/* readline's generator protocol: one malloc'ed match a call, NULL after the last. */
static char *next_match(const char *word, int state) {
  static int at;
  (void)word;
  if (state == 0) at = 0;
  lua_rawgeti(matches_state, -1, ++at);
  const char *text = lua_tostring(matches_state, -1);
  char *copy = text ? strdup(text) : NULL;
  lua_pop(matches_state, 1);
  return copy;
}

static char **complete(const char *word, int start, int end) {
  (void)start;
  (void)end;
  rl_attempted_completion_over = 1; /* no file names */
  if (completer_ref == LUA_NOREF) return NULL;
  lua_State *L = completer_state;
  lua_rawgeti(L, LUA_REGISTRYINDEX, completer_ref);
  lua_pushstring(L, word);
  char **matches = NULL;
  if (lua_pcall(L, 1, 1, 0) == 0 && lua_istable(L, -1)) {
    matches_state = L;
    matches = rl_completion_matches(word, next_match);
  }
  lua_pop(L, 1);
  return matches;
}

static int line_completer(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_unref(L, LUA_REGISTRYINDEX, completer_ref);
  lua_settop(L, 1);
  completer_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  completer_state = L;
  return 0;
}

int luaopen_moelua_line(lua_State *L) {
  static const luaL_Reg functions[] = {{"read", line_read},           {"add", line_add},
                                       {"load", line_load},           {"save", line_save},
                                       {"completer", line_completer}, {NULL, NULL}};
  rl_readline_name = "moelua";
  rl_catch_signals = 0;
  rl_completion_append_character = '\0';
  rl_attempted_completion_function = complete;
  static char breaks[] = " \t\n\"'\\`@$><=;|&{}()[],+-*/%^~#";
  rl_completer_word_break_characters = breaks;
  rl_basic_word_break_characters = breaks;
  using_history();
  stifle_history(HISTORY_LIMIT);
  lua_newtable(L);
  luaL_register(L, NULL, functions);
  return 1;
}
