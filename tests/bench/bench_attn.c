/* Rates of attention against this machine's own ceiling, measured in the same run.
 * usage: bench_attn [isa [threads [shapes]]]
 * Times are CPU seconds of all threads, so that neighbours on the machine count little; rates are
 * per core. The ceiling is the table's peak: fp32 FMAs in registers, on one thread.
 * FLOPs are those of the causal half, counted once: 4 D per visible pair forward, 10 D backward. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

struct shape {
  int64_t batch, s, heads, kv_heads, d;
};
static const struct shape shapes[] = {
    {4, 512, 8, 2, 64}, {4, 512, 8, 8, 64}, {1, 4096, 8, 2, 128}, {2, 2048, 16, 4, 64}};

enum { REPEATS = 15 };

static struct moe_mat fresh(moe_ctx *ctx, moe_dtype dtype, int64_t rows, int64_t cols) {
  size_t n = (size_t)(rows * cols), bytes = n * moe_dtype_bytes(dtype);
  char *p = moe_map(ctx, bytes);
  if (p == NULL) exit(1);
  uint32_t state = 1;
  for (size_t i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    float f = (float)(state >> 8) * 0x1p-23f - 1;
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t h = (uint16_t)(u >> 16);
    if (dtype == MOE_F32)
      memcpy(p + i * 4, &f, 4);
    else
      memcpy(p + i * 2, &h, 2);
  }
  return moe_mat_of(p, dtype, rows, cols);
}
static void drop(moe_ctx *ctx, struct moe_mat m) {
  moe_unmap(ctx, m.p, (size_t)(m.rows * m.cols) * moe_dtype_bytes(m.dtype));
}

static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Per core. Short windows, so that some pass without a neighbour; the best counts. */
static double peak_of(const struct moe_kernels *k, struct moe_stream *s) {
  double best = 0;
  for (int i = 0; i < 40; i++) {
    double p = k->peak(s, MOE_F32, 0.005);
    if (p > best) best = p;
  }
  return best;
}

/* The best forward and backward seconds: what neighbours add is never negative. */
static void measure(const struct moe_kernels *k, struct moe_stream *s,
                    struct moe_attn_bwd_args *args, double best[2]) {
  best[0] = best[1] = 1e9;
  for (int i = 0; i <= REPEATS; i++) {
    double t0 = cpu_now();
    k->attn(s, &args->fwd);
    double t1 = cpu_now();
    k->attn_bwd(s, args);
    double t2 = cpu_now();
    if (t1 - t0 < best[0]) best[0] = t1 - t0;
    if (t2 - t1 < best[1]) best[1] = t2 - t1;
  }
}

static void run(moe_ctx *ctx, const struct moe_kernels *k, struct moe_stream *s,
                const struct shape *sh, moe_dtype dtype, bool dot, double peak) {
  int64_t rows = sh->batch * sh->s, cq = sh->heads * sh->d, ck = sh->kv_heads * sh->d;
  struct moe_mat x = fresh(ctx, dtype, rows, cq + 2 * ck),
                 dx = fresh(ctx, dtype, rows, cq + 2 * ck);
  struct moe_mat o = fresh(ctx, dtype, rows, cq), d_o = fresh(ctx, dtype, rows, cq);
  struct moe_mat lse = fresh(ctx, MOE_F32, sh->batch * sh->heads, sh->s);
  struct moe_mat pos = fresh(ctx, MOE_F32, 1, sh->s);
  for (int32_t i = 0; i < sh->s; i++) ((int32_t *)pos.p)[i] = i;
  struct moe_attn_bwd_args a = {.fwd = {.q = moe_mat_cols(x, 0, cq),
                                        .k = moe_mat_cols(x, cq, ck),
                                        .v = moe_mat_cols(x, cq + ck, ck),
                                        .o = o,
                                        .batch = sh->batch,
                                        .sq = sh->s,
                                        .sk = sh->s,
                                        .heads = sh->heads,
                                        .kv_heads = sh->kv_heads,
                                        .head_dim = sh->d,
                                        .q_pos = pos.p,
                                        .k_pos = pos.p,
                                        .scale = 0.125f,
                                        .lse = lse.p},
                                .d_o = d_o,
                                .dq = moe_mat_cols(dx, 0, cq),
                                .dk = moe_mat_cols(dx, cq, ck),
                                .dv = moe_mat_cols(dx, cq + ck, ck)};
  struct moe_mat scratch = fresh(ctx, MOE_F32, 1, (int64_t)k->attn_bwd_bytes(&a.fwd) / 4);
  a.scratch = scratch.p;
  s->dot_bf16 = dot;
  double best[2];
  measure(k, s, &a, best);
  double pairs = (double)(sh->batch * sh->heads) * (double)sh->s * (double)(sh->s + 1) / 2;
  double flops[2] = {4 * pairs * (double)sh->d, 10 * pairs * (double)sh->d};
  printf("B%ld S%ld A%ld G%ld D%ld %s%s:", (long)sh->batch, (long)sh->s, (long)sh->heads,
         (long)sh->kv_heads, (long)sh->d, dtype == MOE_F32 ? "f32" : "bf16", dot ? " pairs" : "");
  for (int i = 0; i < 2; i++)
    printf("  %s %.2f ms %.0f GF/s %.2f of fp32 peak", i ? "bwd" : "fwd", best[i] * 1e3,
           flops[i] / best[i] / 1e9, flops[i] / best[i] / peak);
  printf("  (peak %.0f)\n", peak / 1e9);
  struct moe_mat all[] = {x, dx, o, d_o, lse, pos, scratch};
  for (size_t i = 0; i < MOE_COUNTOF(all); i++) drop(ctx, all[i]);
}

/* Kernels, context and stream of one number of threads. */
static moe_ctx *open_ctx(const char *isa, int32_t threads, const struct moe_kernels **k,
                         struct moe_stream **s) {
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = threads;
  moe_ctx *ctx;
  if (moe_ctx_create(&options, &ctx) != MOE_OK) exit(1);
  if (moe_kernels_cpu(ctx, isa, k) != MOE_OK || (*k)->stream_create(ctx, s) != MOE_OK) {
    fprintf(stderr, "%s\n", moe_ctx_error(ctx));
    exit(1);
  }
  return ctx;
}

int main(int argc, char **argv) {
  const char *isa = argc > 1 ? argv[1] : "";
  const struct moe_kernels *k;
  struct moe_stream *s, *s1;
  moe_ctx *ctx1 = open_ctx(isa, 1, &k, &s1);
  moe_ctx *ctx = open_ctx(isa, argc > 2 ? atoi(argv[2]) : 0, &k, &s);
  size_t n = argc > 3 ? (size_t)atoi(argv[3]) : MOE_COUNTOF(shapes);
  printf("%s, %d threads, pairs of bf16 %s here\n", k->name, s->threads,
         s->dot_bf16 ? "used" : "not used");
  for (size_t i = 0; i < n && i < MOE_COUNTOF(shapes); i++) {
    double peak = peak_of(k, s1);
    run(ctx, k, s, &shapes[i], MOE_F32, false, peak);
    run(ctx, k, s, &shapes[i], MOE_BF16, false, peak);
    if (strcmp(k->name, "avx512bf16") == 0) run(ctx, k, s, &shapes[i], MOE_BF16, true, peak);
  }
  k->stream_destroy(s);
  k->stream_destroy(s1);
  moe_ctx_destroy(ctx);
  moe_ctx_destroy(ctx1);
  return 0;
}
