/* Every block carries its size in front, so that the counts are exact with any host allocator. */
#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ctx.h"
#include "base/memcheck.h"

enum { HEADER = 16 }; /* keeps malloc's alignment */

static void count(moe_ctx *ctx, size_t bytes) {
  ctx->alloc_count++;
  uint64_t now = atomic_fetch_add(&ctx->alloc_bytes, bytes) + bytes;
  uint64_t peak = ctx->alloc_peak;
  while (now > peak && !atomic_compare_exchange_weak(&ctx->alloc_peak, &peak, now)) {
  }
}

static size_t *header(void *ptr) { return (size_t *)(void *)((char *)ptr - HEADER); }

void *moe_alloc(moe_ctx *ctx, size_t bytes) {
  char *raw = NULL;
  if (bytes <= SIZE_MAX - HEADER) {
    raw = ctx->options.alloc ? ctx->options.alloc(ctx->options.alloc_user, bytes + HEADER)
                             : malloc(bytes + HEADER);
  }
  if (raw == NULL) {
    moe_fail(ctx, MOE_MEMORY, "no memory for %zu bytes", bytes);
    return NULL;
  }
  memset(raw, 0, bytes + HEADER);
  memcpy(raw, &bytes, sizeof bytes);
  count(ctx, bytes);
  return raw + HEADER;
}

void *moe_alloc_array(moe_ctx *ctx, size_t n, size_t bytes) {
  size_t total;
  if (!moe_mul_size(n, bytes, &total)) total = SIZE_MAX;
  return moe_alloc(ctx, total);
}

void *moe_realloc(moe_ctx *ctx, void *ptr, size_t bytes) {
  void *fresh = moe_alloc(ctx, bytes);
  if (fresh == NULL || ptr == NULL) return fresh;
  size_t old = *header(ptr);
  memcpy(fresh, ptr, old < bytes ? old : bytes);
  moe_release(ctx, ptr);
  return fresh;
}

void moe_release(moe_ctx *ctx, void *ptr) {
  if (ptr == NULL) return;
  ctx->alloc_bytes -= *header(ptr);
  char *raw = (char *)ptr - HEADER;
  if (ctx->options.release)
    ctx->options.release(ctx->options.alloc_user, raw);
  else
    free(raw);
}

char *moe_strdup(moe_ctx *ctx, const char *text) {
  size_t n = strlen(text) + 1;
  char *copy = moe_alloc(ctx, n);
  if (copy) memcpy(copy, text, n);
  return copy;
}

void *moe_map(moe_ctx *ctx, size_t bytes) {
  if (bytes == 0) bytes = 1;
  size_t all = bytes + 2 * (size_t)MOE_GUARD;
  /* Not reserved: bounds may be far above what is ever touched. */
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) {
    moe_fail_errno(ctx, MOE_MEMORY, errno, "no memory for %zu bytes", bytes);
    return NULL;
  }
  (void)madvise(p, all, MADV_HUGEPAGE); /* advice: small pages work too */
  moe_memory_gone(p, MOE_GUARD);
  moe_memory_gone(p + MOE_GUARD + bytes, MOE_GUARD);
  count(ctx, bytes);
  return p + MOE_GUARD;
}

void moe_unmap(moe_ctx *ctx, void *ptr, size_t bytes) {
  if (ptr == NULL) return;
  if (bytes == 0) bytes = 1;
  ctx->alloc_bytes -= bytes;
  char *p = (char *)ptr - MOE_GUARD;
  size_t all = bytes + 2 * (size_t)MOE_GUARD;
  moe_memory_returned(p, all);
  munmap(p, all);
}
