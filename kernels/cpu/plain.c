/* Element-wise ops and sums. Sums run in double over fixed blocks that are added in order. */
#include "kernels/cpu/ops.h"

enum { SCALE_GRAIN = 1 << 14, SUM_BLOCK = 1 << 14 };

struct three {
  struct moe_mat dst, a, b;
};

static void convert_rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct three *t = arg;
  int64_t n = t->dst.cols, c;
  for (int64_t r = first; r < last; r++) {
    void *d = mat_row(&t->dst, r);
    const void *a = mat_row(&t->a, r);
    if (t->dst.dtype == t->a.dtype) {
      memcpy(d, a, (size_t)n * moe_dtype_bytes(t->dst.dtype));
      continue;
    }
    for (c = 0; c + MOE_VW <= n; c += MOE_VW)
      vx_store(d, t->dst.dtype, c, vx_load(a, t->a.dtype, c));
    if (c < n) vx_store_n(d, t->dst.dtype, c, vx_load_n(a, t->a.dtype, c, n - c), n - c);
  }
}

void MOE_FN(convert)(struct moe_stream *s, struct moe_mat dst, struct moe_mat src) {
  struct three t = {dst, src, src};
  moe_cpu_for(s, dst.rows, moe_cpu_row_grain(dst.cols * 4), convert_rows, &t);
}

static void add_rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct three *t = arg;
  int64_t n = t->dst.cols, c;
  moe_dtype dt = t->dst.dtype, at = t->a.dtype, bt = t->b.dtype;
  for (int64_t r = first; r < last; r++) {
    void *d = mat_row(&t->dst, r);
    const void *a = mat_row(&t->a, r), *b = mat_row(&t->b, r);
    for (c = 0; c + MOE_VW <= n; c += MOE_VW)
      vx_store(d, dt, c, vx_load(a, at, c) + vx_load(b, bt, c));
    if (c < n)
      vx_store_n(d, dt, c, vx_load_n(a, at, c, n - c) + vx_load_n(b, bt, c, n - c), n - c);
  }
}

void MOE_FN(add)(struct moe_stream *s, struct moe_mat dst, struct moe_mat a, struct moe_mat b) {
  struct three t = {dst, a, b};
  moe_cpu_for(s, dst.rows, moe_cpu_row_grain(dst.cols * 4), add_rows, &t);
}

struct scaling {
  float *x, factor;
};

static void scale_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct scaling *a = arg;
  int64_t i = first;
  for (; i + MOE_VW <= last; i += MOE_VW) vf_store(a->x + i, vf_load(a->x + i) * vf_set(a->factor));
  for (; i < last; i++) a->x[i] *= a->factor;
}

void MOE_FN(scale)(struct moe_stream *s, float *x, int64_t n, float factor) {
  struct scaling a = {x, factor};
  moe_cpu_for(s, n, SCALE_GRAIN, scale_range, &a);
}

/* The sum of n <= SUM_BLOCK floats: element i goes to running sum i % LANES, in double, then
 * those in order: the same bits on every instruction set. */
static double block_sum(const float *x, int64_t n, bool square) {
  enum { LANES = 16 };
  double acc[LANES] = {0}, sum = 0;
  int64_t i = 0;
  if (square)
    for (; i + LANES <= n; i += LANES)
      for (int j = 0; j < LANES; j++) acc[j] += (double)x[i + j] * (double)x[i + j];
  else
    for (; i + LANES <= n; i += LANES)
      for (int j = 0; j < LANES; j++) acc[j] += (double)x[i + j];
  for (int j = 0; i < n; i++, j++) acc[j] += square ? (double)x[i] * (double)x[i] : (double)x[i];
  for (int j = 0; j < LANES; j++) sum += acc[j];
  return sum;
}

struct summing {
  const float *x;
  int64_t n, block; /* block: a multiple of SUM_BLOCK */
  double *part;
  bool square;
};

static void sum_blocks(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct summing *a = arg;
  for (int64_t b = first; b < last; b++) {
    int64_t end = moe_min64((b + 1) * a->block, a->n);
    double sum = 0;
    for (int64_t i = b * a->block; i < end; i += SUM_BLOCK)
      sum += block_sum(a->x + i, moe_min64(SUM_BLOCK, end - i), a->square);
    a->part[b] = sum;
  }
}

static void reduce(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate,
                   bool square) {
  enum { PARTS = 4096 };
  int64_t block = moe_div_up(moe_max64(n, 1), (int64_t)PARTS * SUM_BLOCK) * SUM_BLOCK;
  struct summing a = {x, n, block, moe_cpu_workspace(s, 0), square};
  int64_t parts = moe_div_up(n, block);
  moe_cpu_for(s, parts, 1, sum_blocks, &a);
  double sum = accumulate ? *out : 0;
  for (int64_t i = 0; i < parts; i++) sum += a.part[i];
  *out = sum;
}

void MOE_FN(sumsq)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate) {
  reduce(s, x, n, out, accumulate, true);
}
void MOE_FN(sum)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate) {
  reduce(s, x, n, out, accumulate, false);
}
