/* What the CPU kernels share. A file of kernels/cpu/ is compiled once per instruction set; every
 * external symbol carries the set's name through MOE_FN. Files named host_*.c and select.c are
 * compiled once. */
#ifndef MOE_KERNELS_CPU_H
#define MOE_KERNELS_CPU_H

#include "base/ctx.h"
#include "kernels/kernels.h"

/* A CPU stream runs every op at once, on the pool. */
struct moe_stream {
  moe_ctx *ctx;
  struct moe_pool *pool;
  int32_t threads;
  size_t workspace_bytes; /* of one thread */
  bool dot_bf16;          /* moe_cpu_dot_bf16_pays(); tests set it */
  char *workspace;        /* threads * workspace_bytes, 64-byte aligned */
};

/* vdpbf16ps beats widening to fp32: on AMD it does twice the work of an FMA, on Intel half. */
bool moe_cpu_dot_bf16_pays(void);

/* Workspace of one thread: the kernels' packing buffers, sized at compile time against this. */
enum { MOE_CPU_WORKSPACE = 4 << 20 };

static inline void *moe_cpu_workspace(const struct moe_stream *s, int32_t thread) {
  return s->workspace + (size_t)thread * s->workspace_bytes;
}

/* Calls fn(arg, first, last, thread) over [0, n) in fixed pieces of `grain`. */
typedef void (*moe_range_fn)(void *arg, int64_t first, int64_t last, int32_t thread);
void moe_cpu_for(struct moe_stream *s, int64_t n, int64_t grain, moe_range_fn fn, void *arg);

/* Grain of an op that streams through rows of so many bytes: about 64 KB a piece. */
static inline int64_t moe_cpu_row_grain(int64_t row_bytes) {
  return moe_max64(1, (64 << 10) / moe_max64(1, row_bytes));
}

#ifdef MOE_ISA
#define MOE_CAT4_(a, b, c, d) a##b##c##d
#define MOE_CAT4(a, b, c, d) MOE_CAT4_(a, b, c, d)
#define MOE_FN(name) MOE_CAT4(moe_cpu_, MOE_ISA, _, name)
#endif

#endif
