/* Memory-bound ops against a plain copy that moves the same bytes, in the same run. A line: the op,
 * its GB/s, the copy's GB/s, and the median of the ratio op time / copy time over interleaved pairs
 * (1 is the speed of a copy). Arguments: bench_ops [threads [isa]]. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/rng.h"
#include "kernels/kernels.h"

enum { T = 8192, H = 1024, F = 1024, E = 64, K = 4, V = 32768, PAIRS = 9 };

struct bench {
  moe_ctx *ctx;
  const struct moe_kernels *k;
  struct moe_stream *s;
  char *from, *to;          /* of the copy */
  size_t copy_bytes;        /* each */
  struct moe_mat a, b, c, d; /* (T*K, 2F) at most */
  float *w, *logits, *scores, *prob, *row_value;
  int32_t *index, *row, *token, *slot, *offset, *count, *label, *scratch;
};

typedef void (*op_fn)(struct bench *b);

static int by_value(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* With one thread its processor time: other work on the machine then counts less. */
static double now_of(const struct bench *b) {
  struct timespec t;
  if (moe_ctx_threads(b->ctx) > 1) return moe_now();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double seconds_of(struct bench *b, op_fn fn) {
  double start = now_of(b);
  fn(b);
  return now_of(b) - start;
}

static size_t copied;
static void copy(struct bench *b) { b->k->copy(b->s, b->to, b->from, copied); }

/* bytes: read and written by the op. */
static void measure(struct bench *b, const char *name, double bytes, op_fn fn) {
  double ratio[PAIRS], op[PAIRS], plain[PAIRS];
  copied = (size_t)(bytes / 2);
  if (copied > b->copy_bytes) copied = b->copy_bytes;
  double scale = bytes / 2 / (double)copied; /* large ops against a part of their bytes */
  fn(b);
  copy(b);
  for (int i = 0; i < PAIRS; i++) {
    op[i] = seconds_of(b, fn);
    plain[i] = seconds_of(b, copy) * scale;
    ratio[i] = op[i] / plain[i];
  }
  qsort(ratio, PAIRS, sizeof *ratio, by_value);
  qsort(op, PAIRS, sizeof *op, by_value);
  qsort(plain, PAIRS, sizeof *plain, by_value);
  printf("%-22s %8.1f MB  %6.2f GB/s  copy %6.2f GB/s  ratio %5.2f\n", name, bytes / 1e6,
         bytes / op[PAIRS / 2] / 1e9, bytes / plain[PAIRS / 2] / 1e9, ratio[PAIRS / 2]);
}

static struct moe_mat view(struct moe_mat m, int64_t rows, int64_t cols) {
  return moe_mat_of(m.p, m.dtype, rows, cols);
}

static void run_add(struct bench *b) {
  b->k->add(b->s, view(b->c, T, H), view(b->a, T, H), view(b->b, T, H));
}
static void run_convert(struct bench *b) {
  b->k->convert(b->s, moe_mat_of(b->c.p, MOE_BF16, T, H), moe_mat_of(b->a.p, MOE_F32, T, H));
}
static double sum_out;
static void run_sumsq(struct bench *b) { b->k->sumsq(b->s, b->w, (int64_t)V * H, &sum_out, false); }
static void run_rmsnorm(struct bench *b) {
  b->k->rmsnorm(b->s, &(struct moe_rmsnorm_args){.x = view(b->a, T, H), .y = view(b->c, T, H),
                                                 .w = b->w, .inner = 1, .eps = 1e-6f,
                                                 .rstd = b->row_value});
}
static void run_rmsnorm_res(struct bench *b) {
  b->k->rmsnorm(b->s, &(struct moe_rmsnorm_args){.x = view(b->a, T, H), .y = view(b->c, T, H),
                                                 .res = view(b->b, T, H), .sum = view(b->d, T, H),
                                                 .w = b->w, .inner = 1, .eps = 1e-6f,
                                                 .rstd = b->row_value});
}
static void run_rmsnorm_head(struct bench *b) {
  b->k->rmsnorm(b->s, &(struct moe_rmsnorm_args){.x = view(b->a, T, H), .y = view(b->c, T, H),
                                                 .w = b->w, .inner = H / 64, .eps = 1e-6f,
                                                 .rstd = b->row_value});
}
static void run_rmsnorm_bwd(struct bench *b) {
  b->k->rmsnorm_bwd(b->s, &(struct moe_rmsnorm_bwd_args){
                              .dy = view(b->b, T, H), .x = view(b->a, T, H), .w = b->w,
                              .rstd = b->row_value, .inner = 1, .dx = view(b->c, T, H),
                              .dw = b->scores});
}
static void run_swiglu(struct bench *b) {
  b->k->swiglu(b->s, &(struct moe_swiglu_args){.gu = view(b->a, T, 2 * F), .h = view(b->c, T, F),
                                               .prob = b->prob});
}
static void run_swiglu_bwd(struct bench *b) {
  b->k->swiglu_bwd(b->s, &(struct moe_swiglu_bwd_args){
                             .dh = view(b->b, T, F), .gu = view(b->a, T, 2 * F), .prob = b->prob,
                             .dgu = view(b->d, T, 2 * F), .h = view(b->c, T, F),
                             .dprob = b->row_value});
}
static void run_router(struct bench *b) {
  b->k->router(b->s, &(struct moe_router_args){.tokens = T, .experts = E, .topk = K,
                                               .renormalise = true, .scale = 1,
                                               .logits = b->logits, .scores = b->scores,
                                               .index = b->index, .prob = b->prob,
                                               .lse = b->row_value, .count = b->count,
                                               .prob_sum = b->row_value + T});
}
static struct moe_route_args route_args(struct bench *b, int64_t capacity) {
  return (struct moe_route_args){.tokens = T, .experts = E, .topk = K, .index = b->index,
                                 .capacity = capacity, .prob = b->prob, .row = b->row,
                                 .token = b->token, .slot = b->slot, .offset = b->offset,
                                 .dropped = b->count, .rows_max = T * K};
}
static void run_route(struct bench *b) {
  struct moe_route_args a = route_args(b, 0);
  b->k->route(b->s, &a);
}
static void run_route_capacity(struct bench *b) {
  struct moe_route_args a = route_args(b, T * K / E);
  b->k->route(b->s, &a);
}
static void run_gather(struct bench *b) {
  b->k->gather(b->s, &(struct moe_gather_args){.x = view(b->a, T, H), .out = view(b->c, T * K, H),
                                               .token = b->token});
}
static void run_combine(struct bench *b) {
  b->k->combine(b->s, &(struct moe_combine_args){.rows = view(b->c, T * K, H),
                                                 .y = view(b->d, T, H), .row = b->row, .topk = K});
}
static void run_permute(struct bench *b) {
  run_gather(b);
  run_combine(b);
}
static void run_gate(struct bench *b) {
  b->k->gate(b->s, &(struct moe_gate_args){.logit = b->logits, .s = view(b->a, T, H),
                                           .base = view(b->b, T, H), .y = view(b->c, T, H)});
}
static void run_gate_bwd(struct bench *b) {
  b->k->gate_bwd(b->s, &(struct moe_gate_bwd_args){.dy = view(b->a, T, H), .s = view(b->b, T, H),
                                                   .logit = b->logits, .ds = view(b->c, T, H),
                                                   .dlogit = b->row_value});
}
static void run_embed(struct bench *b) {
  b->k->embed(b->s, &(struct moe_embed_args){.w = b->w, .rows = V, .token = b->label,
                                             .y = view(b->c, T, H)});
}
static void run_embed_bwd(struct bench *b) {
  b->k->embed_bwd(b->s, &(struct moe_embed_bwd_args){.dy = view(b->a, T, H), .token = b->label,
                                                     .rows = V, .dw = b->w, .scratch = b->scratch});
}
static struct moe_mat vocabulary(struct bench *b) { return view(b->a, 1024, V); }
static void run_xent_stats(struct bench *b) {
  b->k->xent_stats(b->s, &(struct moe_xent_args){.logits = vocabulary(b), .label = b->label,
                                                 .max = b->row_value, .sum = b->row_value + T,
                                                 .target = b->row_value + 2 * T});
}
static void run_xent_grad(struct bench *b) {
  b->k->xent_grad(b->s, &(struct moe_xent_grad_args){
                            .logits = vocabulary(b), .dlogits = view(b->c, 1024, V),
                            .label = b->label, .max = b->row_value, .sum = b->row_value + T,
                            .target = b->row_value + 2 * T, .scale = 1e-3f,
                            .loss = b->row_value + 3 * T, .grad = true});
}
static void run_adamw(struct bench *b) {
  int64_t n = (int64_t)V * H / 4;
  b->k->adamw(b->s, &(struct moe_adamw_args){.w = b->w, .m = b->w + n, .v = b->w + 2 * n,
                                             .g = b->w + 3 * n, .n = n, .lr = 1e-9, .beta1 = 0.9,
                                             .beta2 = 0.95, .eps = 1e-8, .step = 3});
}

static void *take(struct bench *b, size_t bytes) {
  void *p = b->k->mem_alloc(b->ctx, bytes);
  if (p == NULL) {
    fprintf(stderr, "bench_ops: %s\n", moe_ctx_error(b->ctx));
    exit(1);
  }
  memset(p, 0, bytes);
  return p;
}

static void prepare(struct bench *b) {
  struct moe_rng_key key = moe_rng_key(1, "bench");
  size_t n = (size_t)T * K * 2 * F;
  b->copy_bytes = n * 2;
  b->from = take(b, b->copy_bytes);
  b->to = take(b, b->copy_bytes);
  b->a.p = take(b, n * 4);
  b->b.p = take(b, n * 4);
  b->c.p = take(b, n * 4);
  b->d.p = take(b, n * 4);
  b->w = take(b, (size_t)V * H * 4);
  b->logits = take(b, (size_t)T * E * 4);
  b->scores = take(b, (size_t)T * E * 4);
  b->prob = take(b, (size_t)T * K * 4);
  b->row_value = take(b, (size_t)T * H * 4);
  b->index = take(b, (size_t)T * K * 4);
  b->row = take(b, (size_t)T * K * 4);
  b->token = take(b, (size_t)T * K * 4);
  b->slot = take(b, (size_t)T * K * 4);
  b->offset = take(b, (size_t)(E + 1) * 4);
  b->count = take(b, (size_t)E * 4);
  b->label = take(b, (size_t)T * 4);
  b->scratch = take(b, b->k->embed_bwd_bytes(T, V));
  for (int64_t i = 0; i < (int64_t)T * E; i++)
    b->logits[i] = (float)moe_rng_normal(key, (uint64_t)i);
  for (int64_t i = 0; i < T; i++) b->label[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i) % V);
  for (int64_t i = 0; i < (int64_t)V * H; i++) b->w[i] = (float)((i * 7919) % 1000) * 1e-3f;
}

static void fill_activations(struct bench *b, moe_dtype dtype) {
  struct moe_mat *m[] = {&b->a, &b->b, &b->c, &b->d};
  for (int i = 0; i < 4; i++) {
    m[i]->dtype = dtype;
    b->k->convert(b->s, view(*m[i], V, H), moe_mat_of(b->w, MOE_F32, V, H));
  }
}

static void run_all(struct bench *b, moe_dtype dtype) {
  double e = (double)moe_dtype_bytes(dtype), TH = (double)T * H;
  printf("%s\n", dtype == MOE_F32 ? "fp32" : "bf16");
  fill_activations(b, dtype);
  measure(b, "add", 3 * TH * e, run_add);
  measure(b, "rmsnorm", 2 * TH * e, run_rmsnorm);
  measure(b, "rmsnorm + residual", 4 * TH * e, run_rmsnorm_res);
  measure(b, "rmsnorm_bwd", 3 * TH * e, run_rmsnorm_bwd);
  measure(b, "rmsnorm of heads", 2 * TH * e, run_rmsnorm_head);
  measure(b, "swiglu", 3 * (double)T * F * e, run_swiglu);
  measure(b, "swiglu_bwd", 6 * (double)T * F * e, run_swiglu_bwd);
  measure(b, "gate", 3 * TH * e, run_gate);
  measure(b, "gate_bwd", 3 * TH * e, run_gate_bwd);
  run_router(b);
  run_route(b);
  measure(b, "gather", 2 * TH * K * e, run_gather); /* x counted K times, as a copy of the rows */
  measure(b, "combine", TH * (K + 1) * e, run_combine);
  measure(b, "gather + combine", TH * (3 * K + 1) * e, run_permute);
  measure(b, "embed", TH * (4 + e), run_embed);
  measure(b, "embed_bwd", TH * (8 + e), run_embed_bwd);
  fill_activations(b, dtype);
  measure(b, "xent_stats", 1024.0 * V * e, run_xent_stats);
  measure(b, "xent_grad", 2 * 1024.0 * V * e, run_xent_grad);
}

int main(int argc, char **argv) {
  struct bench b = {.ctx = NULL};
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = argc > 1 ? atoi(argv[1]) : 1;
  options.isa = argc > 2 ? argv[2] : NULL;
  if (moe_ctx_create(&options, &b.ctx) != MOE_OK) return 1;
  if (moe_kernels_cpu(b.ctx, options.isa, &b.k) != MOE_OK ||
      b.k->stream_create(b.ctx, &b.s) != MOE_OK) {
    fprintf(stderr, "bench_ops: %s\n", moe_ctx_error(b.ctx));
    return 1;
  }
  prepare(&b);
  printf("%s, %d threads\n", b.k->name, moe_ctx_threads(b.ctx));
  measure(&b, "convert to bf16", (double)T * H * 6, run_convert);
  measure(&b, "sumsq", (double)V * H * 4, run_sumsq);
  measure(&b, "router", (double)T * E * 8, run_router);
  measure(&b, "route", (double)T * K * 16, run_route);
  measure(&b, "route with capacity", (double)T * K * 16, run_route_capacity);
  run_all(&b, MOE_F32);
  run_all(&b, MOE_BF16);
  measure(&b, "adamw", (double)V * H / 4 * 28, run_adamw);
  b.k->stream_destroy(b.s);
  moe_ctx_destroy(b.ctx);
  return 0;
}
