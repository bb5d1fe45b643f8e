/* What every file of the library uses: error reporting through the context and checked returns.
 * Invariant: who first sees an error calls moe_fail, once; everyone above passes the status on. */
#ifndef MOE_BASE_BASE_H
#define MOE_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moelua/ctx.h"

#define MOE_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define MOE_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))

/* Passes a failing status on. */
#define MOE_TRY(expr)                        \
  do {                                       \
    moe_status moe_try_ = (expr);            \
    if (moe_try_ != MOE_OK) return moe_try_; \
  } while (0)

/* Sets `status` (a variable in scope) and goes to the label that undoes what was done so far. */
#define MOE_TRY_GOTO(expr, label)     \
  do {                                \
    status = (expr);                  \
    if (status != MOE_OK) goto label; \
  } while (0)

/* Replaces the context's error text and returns status. Text: what was wrong with which value, and
 * a hint. No newline at the end. */
moe_status moe_fail(moe_ctx *ctx, moe_status status, const char *fmt, ...) MOE_PRINTF(3, 4);
/* As moe_fail with ": strerror(err)" appended. */
moe_status moe_fail_errno(moe_ctx *ctx, moe_status status, int err, const char *fmt, ...)
    MOE_PRINTF(4, 5);
/* Sends a line to the host's log function, if it has one. */
void moe_log(moe_ctx *ctx, moe_log_level level, const char *fmt, ...) MOE_PRINTF(3, 4);

/* Checks a boundary struct's size field: it must be at least the size this library knows. */
#define MOE_CHECK_SIZE(ctx, ptr)                                                                 \
  do {                                                                                           \
    if ((ptr) == NULL || (ptr)->size < sizeof *(ptr))                                            \
      return moe_fail((ctx), MOE_INVALID, "%s: size is %zu, must be %zu (call its _init first)", \
                      #ptr, (ptr) ? (ptr)->size : (size_t)0, sizeof *(ptr));                     \
  } while (0)

static inline int64_t moe_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t moe_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t moe_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t moe_round_up(size_t a, size_t b) { return (a + b - 1) / b * b; }
/* false on overflow. */
static inline bool moe_mul_size(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

/* Seconds of a monotonic clock. */
double moe_now(void);

#endif
