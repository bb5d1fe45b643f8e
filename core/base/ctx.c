#include "base/ctx.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

void moe_ctx_options_init(moe_ctx_options *options) {
  memset(options, 0, sizeof *options);
  options->size = sizeof *options;
}

/* Processors this process may run on. */
static int32_t processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int32_t)n : 1;
}

moe_status moe_ctx_create(const moe_ctx_options *options, moe_ctx **out) {
  *out = NULL;
  moe_ctx_options defaults;
  moe_ctx_options_init(&defaults);
  if (options == NULL) options = &defaults;
  if (options->size < sizeof *options || options->threads < 0 || options->threads > 4096 ||
      (options->alloc == NULL) != (options->release == NULL))
    return MOE_INVALID;
  moe_ctx *ctx =
      options->alloc ? options->alloc(options->alloc_user, sizeof *ctx) : malloc(sizeof *ctx);
  if (ctx == NULL) return MOE_MEMORY;
  memset(ctx, 0, sizeof *ctx);
  ctx->options = *options;
  ctx->options.isa = NULL;
  ctx->comm_timeout = MOE_COMM_TIMEOUT;
  if (options->isa) {
    if (strlen(options->isa) >= sizeof ctx->isa) {
      moe_ctx_destroy(ctx);
      return MOE_INVALID;
    }
    strcpy(ctx->isa, options->isa);
  }
  int32_t threads = options->threads > 0 ? options->threads : processors();
  moe_status status = moe_pool_create(ctx, threads, &ctx->pool);
  if (status != MOE_OK) {
    moe_ctx_destroy(ctx);
    return status;
  }
  *out = ctx;
  return MOE_OK;
}

void moe_ctx_destroy(moe_ctx *ctx) {
  if (ctx == NULL) return;
  if (ctx->world) ctx->world_destroy(ctx->world);
  moe_pool_destroy(ctx->pool);
  if (ctx->options.release)
    ctx->options.release(ctx->options.alloc_user, ctx);
  else
    free(ctx);
}

const char *moe_ctx_error(const moe_ctx *ctx) { return ctx->error; }
int32_t moe_ctx_threads(const moe_ctx *ctx) { return moe_pool_threads(ctx->pool); }
uint64_t moe_ctx_alloc_count(const moe_ctx *ctx) { return ctx->alloc_count; }
uint64_t moe_ctx_alloc_bytes(const moe_ctx *ctx) { return ctx->alloc_bytes; }
uint64_t moe_ctx_alloc_peak(const moe_ctx *ctx) { return ctx->alloc_peak; }

moe_status moe_fail(moe_ctx *ctx, moe_status status, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  ctx->tells = MOE_TELLS_OWN;
  vsnprintf(ctx->error, sizeof ctx->error, fmt, args);
  va_end(args);
  return status;
}

moe_status moe_fail_errno(moe_ctx *ctx, moe_status status, int err, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  ctx->tells = MOE_TELLS_OWN;
  int n = vsnprintf(ctx->error, sizeof ctx->error, fmt, args);
  va_end(args);
  char reason[256] = "";
  if (n >= 0 && (size_t)n < sizeof ctx->error) {
    const char *text = reason;
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
    text = strerror_r(err, reason, sizeof reason);
#else
    if (strerror_r(err, reason, sizeof reason) != 0) text = "unknown error";
#endif
    snprintf(ctx->error + n, sizeof ctx->error - (size_t)n, ": %s", text);
  }
  return status;
}

void moe_log(moe_ctx *ctx, moe_log_level level, const char *fmt, ...) {
  if (ctx->options.log == NULL) return;
  char line[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  ctx->options.log(ctx->options.log_user, level, line);
}

double moe_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
