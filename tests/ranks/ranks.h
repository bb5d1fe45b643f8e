/* What the tests on several ranks share: joining, checks that end the whole job, tiny models. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ctx.h"
#include "comm/comm.h"
#include "mesh/groups.h"
#include "moelua/moelua.h"

/* A context that has joined the MPI job, with one thread, or MOELUA_TEST_THREADS. Ends the program
 * on failure. */
moe_ctx *ranks_open(void);
/* What ranks_open takes; not below 1. */
int ranks_threads(void);

/* "key=value" words into what they stand for. Words with other values than numbers go to `text`
 * first, which returns whether the key was one of its own (NULL: there are none). Anything else
 * ends the program. */
struct ranks_word {
  const char *key;
  int32_t *value;
};
void ranks_words(const char *words, const struct ranks_word *list, size_t n,
                 bool (*text)(void *arg, const char *key, char *value), void *arg);
/* 0 when no rank had a failed check: the program's exit status. Destroys the context. */
int ranks_close(moe_ctx *ctx);
/* Counts a failure on this rank; the test goes on, so that collectives still match. */
void ranks_fail(const char *file, int line, const char *text);
#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) ranks_fail(__FILE__, __LINE__, #condition); \
  } while (0)
/* A status that must be ok: prints the error text and ends the job (nothing sensible can follow).
 */
void ranks_must(moe_ctx *ctx, moe_status status, const char *file, int line);
#define MUST(ctx, expr) ranks_must(ctx, expr, __FILE__, __LINE__)

#endif
