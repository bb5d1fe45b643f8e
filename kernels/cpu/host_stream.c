/* CPU streams, events and memory: everything runs at once, so an event has nothing to hold. */
#include "kernels/cpu/host_stream.h"

#include <string.h>

#include "base/alloc.h"

void *moe_cpu_mem_alloc(moe_ctx *ctx, size_t bytes) { return moe_map(ctx, bytes); }
void moe_cpu_mem_release(moe_ctx *ctx, void *p, size_t bytes) { moe_unmap(ctx, p, bytes); }

bool moe_cpu_dot_bf16_pays(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

moe_status moe_cpu_stream_create(moe_ctx *ctx, struct moe_stream **out) {
  *out = NULL;
  struct moe_stream *s = moe_alloc(ctx, sizeof *s);
  if (s == NULL) return MOE_MEMORY;
  *s = (struct moe_stream){.ctx = ctx,
                           .pool = ctx->pool,
                           .threads = moe_pool_threads(ctx->pool),
                           .workspace_bytes = MOE_CPU_WORKSPACE,
                           .dot_bf16 = moe_cpu_dot_bf16_pays()};
  s->workspace = moe_map(ctx, (size_t)s->threads * s->workspace_bytes);
  if (s->workspace == NULL) {
    moe_release(ctx, s);
    return MOE_MEMORY;
  }
  *out = s;
  return MOE_OK;
}

void moe_cpu_stream_destroy(struct moe_stream *s) {
  if (s == NULL) return;
  moe_unmap(s->ctx, s->workspace, (size_t)s->threads * s->workspace_bytes);
  moe_release(s->ctx, s);
}

moe_status moe_cpu_stream_sync(struct moe_stream *s) {
  (void)s;
  return MOE_OK;
}

struct moe_event {
  moe_ctx *ctx;
};

moe_status moe_cpu_event_create(moe_ctx *ctx, struct moe_event **out) {
  *out = moe_alloc(ctx, sizeof **out);
  if (*out == NULL) return MOE_MEMORY;
  (*out)->ctx = ctx;
  return MOE_OK;
}
void moe_cpu_event_destroy(struct moe_event *e) {
  if (e) moe_release(e->ctx, e);
}
void moe_cpu_event_record(struct moe_stream *s, struct moe_event *e) { (void)s, (void)e; }
void moe_cpu_event_wait(struct moe_stream *s, struct moe_event *e) { (void)s, (void)e; }

struct pieces {
  int64_t n, grain;
  moe_range_fn fn;
  void *arg;
};

static void piece(void *arg, int64_t task, int32_t thread) {
  const struct pieces *p = arg;
  int64_t first = task * p->grain;
  p->fn(p->arg, first, moe_min64(first + p->grain, p->n), thread);
}

void moe_cpu_for(struct moe_stream *s, int64_t n, int64_t grain, moe_range_fn fn, void *arg) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  struct pieces p = {n, grain, fn, arg};
  moe_pool_run(s->pool, piece, &p, moe_div_up(n, grain));
}

struct bytes {
  char *dst;
  const char *src;
  uint8_t byte;
};

static void copy_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct bytes *b = arg;
  memcpy(b->dst + first, b->src + first, (size_t)(last - first));
}
static void fill_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct bytes *b = arg;
  memset(b->dst + first, b->byte, (size_t)(last - first));
}

enum { COPY_GRAIN = 1 << 18 };

void moe_cpu_copy(struct moe_stream *s, void *dst, const void *src, size_t bytes) {
  struct bytes b = {dst, src, 0};
  moe_cpu_for(s, (int64_t)bytes, COPY_GRAIN, copy_range, &b);
}
void moe_cpu_fill(struct moe_stream *s, void *dst, uint8_t byte, size_t bytes) {
  struct bytes b = {dst, NULL, byte};
  moe_cpu_for(s, (int64_t)bytes, COPY_GRAIN, fill_range, &b);
}
