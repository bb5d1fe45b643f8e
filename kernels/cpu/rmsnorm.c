/* Root-mean-square norm and its gradient. The weight gradient is summed in fixed blocks of rows,
 * then over the blocks in order. */
#include "kernels/cpu/ops.h"

enum { DW_BLOCKS = 64, DW_FLOATS = MOE_CPU_WORKSPACE / 4, DW_GRAIN = 256 };

/* What a row of the op is: n elements of each matrix at the same part. */
struct part {
  int64_t n;
  float eps;
  moe_dtype dtype;
};

/* v = x (+ res, rounded to the dtype and kept in sum) of m <= MOE_VW elements at i. */
MOE_INLINE vf input(struct part p, const void *x, const void *res, void *sum, int64_t i,
                    int64_t m) {
  vf v = vx_load_or(x, p.dtype, i, m, 0);
  if (res == NULL) return v;
  v += vx_load_or(res, p.dtype, i, m, 0);
  if (p.dtype == MOE_BF16) v = vf_from_bf16(vf_to_bf16(v));
  if (m >= MOE_VW)
    vx_store(sum, p.dtype, i, v);
  else
    vx_store_n(sum, p.dtype, i, v, m);
  return v;
}

/* Sum of the squares of the inputs. */
MOE_INLINE float square_sum(struct part p, const void *x, const void *res, void *sum) {
  enum { STEP = 4 * MOE_VW };
  vf acc[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + STEP <= p.n; i += STEP)
    for (int j = 0; j < 4; j++) {
      vf v = input(p, x, res, sum, i + j * MOE_VW, MOE_VW);
      acc[j] += v * v;
    }
  for (; i < p.n; i += MOE_VW) {
    vf v = input(p, x, res, sum, i, p.n - i);
    acc[0] += v * v;
  }
  return vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

MOE_INLINE void norm(struct part p, const void *x, float rstd, const float *w, void *y) {
  int64_t i = 0;
  for (; i + MOE_VW <= p.n; i += MOE_VW)
    vx_store(y, p.dtype, i, vx_load(x, p.dtype, i) * vf_set(rstd) * vf_load(w + i));
  if (i < p.n) {
    int64_t n = p.n - i;
    vx_store_n(y, p.dtype, i, vx_load_n(x, p.dtype, i, n) * vf_set(rstd) * vf_load_n(w + i, n), n);
  }
}

/* The start of part j of row r. */
static inline void *part_of(const struct moe_mat *m, int64_t r, int64_t j, int64_t n) {
  return m->p ? (char *)mat_row(m, r) + (size_t)(j * n) * moe_dtype_bytes(m->dtype) : NULL;
}

MOE_INLINE void norm_rows(const struct moe_rmsnorm_args *a, int64_t first, int64_t last,
                          moe_dtype dtype) {
  struct part p = {a->x.cols / a->inner, a->eps, dtype};
  for (int64_t r = first; r < last; r++)
    for (int64_t j = 0; j < a->inner; j++) {
      const void *x = part_of(&a->x, r, j, p.n), *res = part_of(&a->res, r, j, p.n);
      void *sum = res ? part_of(&a->sum, r, j, p.n) : NULL;
      float squares = a->row_sum ? a->row_sum[r] : square_sum(p, x, res, sum);
      float rstd = 1.0f / sqrtf(squares / (float)(a->row_sum ? a->total : p.n) + a->eps);
      if (a->rstd) a->rstd[r * a->inner + j] = rstd;
      norm(p, res ? sum : x, rstd, a->w, part_of(&a->y, r, j, p.n));
    }
}

static void norm_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_rmsnorm_args *a = arg;
  if (a->x.dtype == MOE_F32)
    norm_rows(a, first, last, MOE_F32);
  else
    norm_rows(a, first, last, MOE_BF16);
}

void MOE_FN(rmsnorm)(struct moe_stream *s, const struct moe_rmsnorm_args *a) {
  struct moe_rmsnorm_args args = *a;
  moe_cpu_for(s, a->x.rows, moe_cpu_row_grain(a->x.cols * 4), norm_range, &args);
}

struct back {
  const struct moe_rmsnorm_bwd_args *a;
  int64_t n, block; /* elements of a part; rows of a block */
  float *part;      /* (blocks, n): dw of each block */
};

/* sum(dy * w * x) */
MOE_INLINE float dot(int64_t n, const void *dy, const void *x, const float *w, moe_dtype dtype) {
  enum { STEP = 4 * MOE_VW };
  vf acc[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + STEP <= n; i += STEP)
    for (int j = 0; j < 4; j++) {
      int64_t c = i + j * MOE_VW;
      acc[j] += vx_load(dy, dtype, c) * vx_load(x, dtype, c) * vf_load(w + c);
    }
  for (; i < n; i += MOE_VW)
    acc[0] += vx_load_or(dy, dtype, i, n - i, 0) * vx_load_or(x, dtype, i, n - i, 0) *
              vx_load_or(w, MOE_F32, i, n - i, 0);
  return vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* dx = rstd * (dy * w - x * k) + dres; dw += dy * x * rstd. */
MOE_INLINE void back_part(int64_t n, const void *dy, const void *x, const float *w, float rstd,
                          float k, const void *dres, void *dx, float *dw, moe_dtype dtype) {
  vf vr = vf_set(rstd), vk = vf_set(k);
  int64_t i = 0;
  for (; i + MOE_VW <= n; i += MOE_VW) {
    vf d = vx_load(dy, dtype, i), v = vx_load(x, dtype, i);
    vf out = vr * (d * vf_load(w + i) - v * vk);
    if (dres) out += vx_load(dres, dtype, i);
    vx_store(dx, dtype, i, out);
    vf_store(dw + i, vf_load(dw + i) + d * (v * vr));
  }
  if (i == n) return;
  int64_t left = n - i;
  vf d = vx_load_n(dy, dtype, i, left), v = vx_load_n(x, dtype, i, left);
  vf out = vr * (d * vf_load_n(w + i, left) - v * vk);
  if (dres) out += vx_load_n(dres, dtype, i, left);
  vx_store_n(dx, dtype, i, out, left);
  vf_store_n(dw + i, vf_load_n(dw + i, left) + d * (v * vr), left);
}

MOE_INLINE void back_block(const struct back *b, int64_t block, moe_dtype dtype) {
  const struct moe_rmsnorm_bwd_args *a = b->a;
  float *dw = b->part + block * b->n;
  memset(dw, 0, (size_t)b->n * sizeof *dw);
  int64_t end = moe_min64((block + 1) * b->block, a->dy.rows);
  for (int64_t r = block * b->block; r < end; r++)
    for (int64_t j = 0; j < a->inner; j++) {
      const void *dy = part_of(&a->dy, r, j, b->n), *x = part_of(&a->x, r, j, b->n);
      float rstd = a->rstd[r * a->inner + j];
      float whole = a->row_sum ? a->row_sum[r] : dot(b->n, dy, x, a->w, dtype);
      float k = whole * rstd * rstd / (float)(a->row_sum ? a->total : b->n);
      back_part(b->n, dy, x, a->w, rstd, k, part_of(&a->dres, r, j, b->n),
                part_of(&a->dx, r, j, b->n), dw, dtype);
    }
}

static void sum_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_rmsnorm_sum_args *a = arg;
  struct part p = {a->x.cols, 0, a->x.dtype};
  for (int64_t r = first; r < last; r++) {
    const void *x = mat_row(&a->x, r), *dy = a->dy.p ? mat_row(&a->dy, r) : NULL;
    if (p.dtype == MOE_F32)
      a->out[r] = dy ? dot(p.n, dy, x, a->w, MOE_F32)
                     : square_sum((struct part){p.n, 0, MOE_F32}, x, NULL, NULL);
    else
      a->out[r] = dy ? dot(p.n, dy, x, a->w, MOE_BF16)
                     : square_sum((struct part){p.n, 0, MOE_BF16}, x, NULL, NULL);
  }
}

void MOE_FN(rmsnorm_sum)(struct moe_stream *s, const struct moe_rmsnorm_sum_args *a) {
  struct moe_rmsnorm_sum_args args = *a;
  moe_cpu_for(s, a->x.rows, moe_cpu_row_grain(a->x.cols * 4), sum_range, &args);
}

static void back_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct back *b = arg;
  for (int64_t block = first; block < last; block++) {
    if (b->a->dy.dtype == MOE_F32)
      back_block(b, block, MOE_F32);
    else
      back_block(b, block, MOE_BF16);
  }
}

static void weight_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct back *b = arg;
  float *dw = b->a->dw;
  if (!b->a->dw_accumulate) memset(dw + first, 0, (size_t)(last - first) * sizeof *dw);
  int64_t blocks = moe_div_up(b->a->dy.rows, b->block);
  for (int64_t k = 0; k < blocks; k++)
    for (int64_t i = first; i < last; i++) dw[i] += b->part[k * b->n + i];
}

void MOE_FN(rmsnorm_bwd)(struct moe_stream *s, const struct moe_rmsnorm_bwd_args *a) {
  struct back b = {.a = a, .n = a->dy.cols / a->inner, .part = moe_cpu_workspace(s, 0)};
  int64_t blocks = moe_max64(1, moe_min64(DW_BLOCKS, DW_FLOATS / moe_max64(1, b.n)));
  b.block = moe_max64(moe_div_up(a->dy.rows, blocks), moe_cpu_row_grain(a->dy.cols * 4));
  moe_cpu_for(s, moe_div_up(a->dy.rows, b.block), 1, back_range, &b);
  moe_cpu_for(s, b.n, DW_GRAIN, weight_range, &b);
}
