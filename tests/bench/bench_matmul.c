/* GFLOP/s of the matrix products and their share of the peak measured in the same run; oneDNN, one
 * group after another, beside. Usage: bench_matmul [threads [isa [filter]]]; a line is measured
 * when it contains the filter. Time is processor time over threads, so that other work on the
 * machine counts little; rates are the best of ROUNDS short runs with pauses between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/dnnl_product.h"
#include "kernels/kernels.h"

enum { ROUNDS = 25, PAUSE_US = 1000, COPIES_MAX = 32, GROUPS_MAX = 64, SET_BYTES = 48 << 20 };
static const double ROUND_SECONDS = 0.001;

typedef enum kind { FWD, BWD, WGRAD } kind;
static const char *const kind_name[] = {"fwd", "bwd", "wgrad"};

struct shape {
  kind kind;
  int64_t groups, rows, in, out; /* rows of a group */
  bool skew;                     /* all rows in group 0 */
};
static const struct shape shapes[] = {
    {FWD, 1, 2048, 512, 1024, false},  {BWD, 1, 2048, 512, 1024, false},
    {WGRAD, 1, 2048, 512, 1024, false}, {FWD, 1, 2048, 512, 512, false},
    {BWD, 1, 2048, 512, 512, false},   {WGRAD, 1, 2048, 512, 512, false},
    {FWD, 1, 2048, 512, 8192, false},  {BWD, 1, 2048, 512, 8192, false},
    {WGRAD, 1, 2048, 512, 8192, false}, {FWD, 1, 4096, 1024, 512, false},
    {FWD, 8, 512, 512, 2048, false},   {BWD, 8, 512, 512, 2048, false},
    {WGRAD, 8, 512, 512, 2048, false}, {FWD, 8, 512, 1024, 512, false},
    {BWD, 8, 512, 1024, 512, false},   {WGRAD, 8, 512, 1024, 512, false},
    {FWD, 8, 512, 512, 2048, true},    {WGRAD, 8, 512, 512, 2048, true},
    {FWD, 64, 256, 512, 512, false},   {BWD, 64, 256, 512, 512, false},
    {WGRAD, 64, 256, 512, 512, false}, {FWD, 64, 256, 256, 512, false},
    {BWD, 64, 256, 256, 512, false},   {WGRAD, 64, 256, 256, 512, false},
    {FWD, 64, 32, 512, 1408, false},   {BWD, 64, 32, 512, 1408, false},
    {WGRAD, 64, 32, 512, 1408, false}, {FWD, 64, 8, 512, 1408, false},
    {BWD, 64, 8, 512, 1408, false},    {WGRAD, 64, 8, 512, 1408, false},
    {FWD, 1, 64, 512, 512, false},     {FWD, 1, 8, 512, 1408, false},
    {FWD, 1, 2048, 512, 8, false},     {FWD, 1, 1000, 777, 333, false},
};

/* Operands of one copy of a product: x (rows, in), dy (rows, out), w, w as bf16, dw. */
struct set {
  char *x, *dy, *dw, *plain;
  float *master;
  void *prepared;
  int64_t dims[3];
};
struct bench {
  moe_ctx *ctx;
  const struct moe_kernels *k;
  struct moe_stream *s;
  moe_dtype dtype;
  const struct shape *sh;
  int64_t rows; /* of all groups */
  int32_t offset[GROUPS_MAX + 1];
  struct set sets[COPIES_MAX];
  int copies;
  size_t x_bytes, dy_bytes, w_bytes, prepared_bytes, at;
  struct dnnl_product *other;
  double peak; /* highest so far */
};

static void fill(struct bench *b, char *p, size_t bytes) {
  uint32_t seed = 1;
  if (b->dtype == MOE_BF16)
    for (size_t i = 0; i < bytes / 2; i++)
      ((uint16_t *)p)[i] = (uint16_t)(0x3c00 | ((seed = seed * 1664525u + 1013904223u) >> 23));
  else
    for (size_t i = 0; i < bytes / 4; i++)
      ((float *)p)[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
}

static struct moe_weight weight(const struct bench *b, const struct set *s) {
  return (struct moe_weight){.groups = b->sh->groups, .out = b->sh->out, .in = b->sh->in,
                             .dtype = b->dtype, .master = s->master, .prepared = s->prepared,
                             .rows_hint = b->sh->rows};
}

static void *map(struct bench *b, size_t bytes) {
  void *p = moe_map(b->ctx, bytes);
  if (p == NULL) {
    fprintf(stderr, "%s\n", moe_ctx_error(b->ctx));
    exit(1);
  }
  return p;
}

static void make_set(struct bench *b, struct set *s) {
  s->x = map(b, b->x_bytes);
  s->dy = map(b, b->dy_bytes);
  s->master = map(b, b->w_bytes);
  s->dw = map(b, b->w_bytes);
  s->plain = map(b, b->w_bytes);
  fill(b, s->x, b->x_bytes);
  fill(b, s->dy, b->dy_bytes);
  fill(b, s->plain, b->w_bytes);
  moe_dtype dtype = b->dtype;
  b->dtype = MOE_F32;
  fill(b, (char *)s->master, b->w_bytes);
  b->dtype = dtype;
  struct moe_weight w = weight(b, s);
  b->prepared_bytes = b->k->weight_bytes(&w);
  s->prepared = NULL;
  if (b->prepared_bytes) {
    s->prepared = map(b, b->prepared_bytes);
    w.prepared = s->prepared;
    b->k->weight_prepare(b->s, &w);
  }
}
static void release_set(struct bench *b, struct set *s) {
  moe_unmap(b->ctx, s->x, b->x_bytes);
  moe_unmap(b->ctx, s->dy, b->dy_bytes);
  moe_unmap(b->ctx, s->master, b->w_bytes);
  moe_unmap(b->ctx, s->dw, b->w_bytes);
  moe_unmap(b->ctx, s->plain, b->w_bytes);
  if (s->prepared) moe_unmap(b->ctx, s->prepared, b->prepared_bytes);
}

static void ours(struct bench *b) {
  const struct shape *sh = b->sh;
  struct set *s = &b->sets[b->at++ % (size_t)b->copies];
  struct moe_weight w = weight(b, s);
  struct moe_mat x = moe_mat_of(s->x, b->dtype, b->rows, sh->in);
  struct moe_mat dy = moe_mat_of(s->dy, b->dtype, b->rows, sh->out);
  struct moe_groups_rows rows = {b->offset, b->offset};
  struct moe_matmul_args a = {.x = x, .w = &w, .rows = rows, .y = dy};
  struct moe_matmul_args back = {.x = dy, .w = &w, .rows = rows, .y = x};
  struct moe_wgrad_args g = {.dy = dy, .x = x, .groups = sh->groups, .rows = rows,
                             .dw = (float *)(void *)s->dw};
  if (sh->kind == FWD) b->k->matmul(b->s, &a);
  if (sh->kind == BWD) b->k->matmul_bwd(b->s, &back);
  if (sh->kind == WGRAD) b->k->matmul_wgrad(b->s, &g);
}

#if MOE_HAVE_DNNL
static void make_other(struct bench *b) {
  const struct shape *sh = b->sh;
  bool bf16 = b->dtype == MOE_BF16;
  int64_t rows = sh->skew ? b->rows : sh->rows;
  struct dnnl_shape d[] = {
      {rows, sh->out, sh->in, sh->in, 1, 1, sh->in, bf16, bf16},
      {rows, sh->in, sh->out, sh->out, 1, sh->in, 1, bf16, bf16},
      {sh->out, sh->in, rows, 1, sh->out, sh->in, 1, bf16, false}};
  b->other = dnnl_product_create(&d[sh->kind]);
}
static void theirs(struct bench *b) {
  const struct shape *sh = b->sh;
  struct set *s = &b->sets[b->at++ % (size_t)b->copies];
  int64_t e = (int64_t)moe_dtype_bytes(b->dtype);
  for (int64_t g = 0; g < (sh->skew ? 1 : sh->groups); g++) {
    char *x = s->x + b->offset[g] * sh->in * e, *dy = s->dy + b->offset[g] * sh->out * e;
    char *w = s->plain + g * sh->in * sh->out * e, *dw = s->dw + g * sh->in * sh->out * 4;
    if (sh->kind == FWD) dnnl_product_run(b->other, x, w, dy);
    if (sh->kind == BWD) dnnl_product_run(b->other, dy, w, x);
    if (sh->kind == WGRAD) dnnl_product_run(b->other, dy, x, dw);
  }
}
#else
static void make_other(struct bench *b) { b->other = NULL; }
static void theirs(struct bench *b) { (void)b; }
void dnnl_product_destroy(struct dnnl_product *p) { (void)p; }
#endif

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FLOP/s of runs filling ROUND_SECONDS. */
static double rate(struct bench *b, void (*run)(struct bench *)) {
  double flops = 2.0 * (double)b->rows * (double)b->sh->in * (double)b->sh->out;
  usleep(PAUSE_US);
  double threads = moe_ctx_threads(b->ctx), start = processor_seconds(), took;
  int n = 0;
  do {
    run(b);
    n++;
    took = (processor_seconds() - start) / threads;
  } while (took < ROUND_SECONDS);
  return flops * n / took;
}
static double peak(struct bench *b, double seconds) {
  double p = b->k->peak(b->s, b->dtype, seconds);
  return b->peak = p > b->peak ? p : b->peak;
}

static void measure(struct bench *b, const char *label) {
  const struct shape *sh = b->sh;
  size_t e = moe_dtype_bytes(b->dtype);
  b->rows = sh->groups * sh->rows;
  b->offset[0] = 0;
  for (int64_t g = 1; g <= sh->groups; g++)
    b->offset[g] = (int32_t)(sh->skew ? b->rows : g * sh->rows);
  b->x_bytes = (size_t)(b->rows * sh->in) * e;
  b->dy_bytes = (size_t)(b->rows * sh->out) * e;
  b->w_bytes = (size_t)(sh->groups * sh->in * sh->out) * 4;
  size_t each = b->x_bytes + b->dy_bytes + b->w_bytes;
  b->copies = (int)moe_min64(COPIES_MAX, moe_div_up(SET_BYTES, (int64_t)each));
  for (int i = 0; i < b->copies; i++) make_set(b, &b->sets[i]);
  make_other(b);
  double best = 0, other = 0;
  ours(b);
  if (b->other) theirs(b);
  for (int i = 0; i < ROUNDS; i++) {
    peak(b, 2 * ROUND_SECONDS);
    double o = rate(b, ours);
    double t = b->other ? rate(b, theirs) : 0;
    best = o > best ? o : best;
    other = t > other ? t : other;
  }
  printf("%s %8.1f  %4.2f   %8.1f  %4.2f\n", label, best * 1e-9, best / b->peak, other * 1e-9,
         other / b->peak);
  fflush(stdout);
  dnnl_product_destroy(b->other);
  for (int i = 0; i < b->copies; i++) release_set(b, &b->sets[i]);
}

int main(int argc, char **argv) {
  if (getenv("OMP_WAIT_POLICY") == NULL) { /* else oneDNN's threads spin while ours work */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("OMP_NUM_THREADS", argc > 1 ? argv[1] : "2", 1);
    execv("/proc/self/exe", argv);
  }
  static struct bench b;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = argc > 1 ? atoi(argv[1]) : 2;
  if (moe_ctx_create(&options, &b.ctx) != MOE_OK) return 1;
  if (moe_kernels_cpu(b.ctx, argc > 2 ? argv[2] : "", &b.k) != MOE_OK ||
      b.k->stream_create(b.ctx, &b.s) != MOE_OK) {
    fprintf(stderr, "%s\n", moe_ctx_error(b.ctx));
    return 1;
  }
  for (int dtype = MOE_F32; dtype <= MOE_BF16; dtype++) {
    b.dtype = (moe_dtype)dtype;
    b.peak = 0;
    for (int i = 0; i < 100; i++) { /* short windows: one of them is undisturbed */
      usleep(PAUSE_US);
      peak(&b, 5 * ROUND_SECONDS);
    }
    printf("%s, %d threads, %s: peak %.1f GFLOP/s\n", b.k->name, (int)options.threads,
           dtype == MOE_F32 ? "f32" : "bf16", b.peak * 1e-9);
    printf("kind  groups x rows    in   out         GFLOP/s share   oneDNN    share\n");
    for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) {
      char label[80];
      b.sh = &shapes[i];
      snprintf(label, sizeof label, "%-5s %2d x %4d %6d %6d %-5s %-4s", kind_name[b.sh->kind],
               (int)b.sh->groups, (int)b.sh->rows, (int)b.sh->in, (int)b.sh->out,
               b.sh->skew ? "skew" : "", dtype == MOE_F32 ? "f32" : "bf16");
      if (argc > 3 && strstr(label, argv[3]) == NULL) continue;
      measure(&b, label);
    }
  }
  b.k->stream_destroy(b.s);
  moe_ctx_destroy(b.ctx);
  return 0;
}
