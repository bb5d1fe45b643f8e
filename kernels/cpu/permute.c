/* Rows to the experts' order and back: gather, combine, and the probabilities beside them. */
#include "kernels/cpu/ops.h"

enum { PROB_GRAIN = 1 << 13 };

static void gather_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_gather_args *a = arg;
  size_t bytes = (size_t)a->out.cols * moe_dtype_bytes(a->out.dtype);
  for (int64_t r = first; r < last; r++) {
    if (a->token[r] < 0)
      memset(mat_row(&a->out, r), 0, bytes);
    else
      memcpy(mat_row(&a->out, r), mat_row(&a->x, a->token[r]), bytes);
  }
}

void MOE_FN(gather)(struct moe_stream *s, const struct moe_gather_args *a) {
  struct moe_gather_args args = *a;
  moe_cpu_for(s, a->out.rows, moe_cpu_row_grain(a->out.cols * 4), gather_range, &args);
}

/* The last chunk that begins at or before row r. */
static int64_t chunk_of(const struct moe_chunks_args *a, int64_t r) {
  int64_t low = 0, high = a->chunks;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (a->to[middle] <= r)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static void chunks_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_chunks_args *a = arg;
  size_t bytes = (size_t)a->out.cols * moe_dtype_bytes(a->out.dtype);
  bool whole = a->in.ld == a->in.cols && a->out.ld == a->out.cols;
  for (int64_t r = first, i = chunk_of(a, first); r < last; i++) {
    int64_t n = moe_min64(last, a->to[i + 1]) - r, from = a->from[i] + r - a->to[i];
    if (whole && n > 0) memcpy(mat_row(&a->out, r), mat_row(&a->in, from), (size_t)n * bytes);
    for (int64_t j = 0; j < n && !whole; j++)
      memcpy(mat_row(&a->out, r + j), mat_row(&a->in, from + j), bytes);
    r += n;
  }
}

void MOE_FN(chunks)(struct moe_stream *s, const struct moe_chunks_args *a) {
  struct moe_chunks_args args = *a;
  moe_cpu_for(s, a->out.rows, moe_cpu_row_grain(a->out.cols * 4), chunks_range, &args);
}

/* y = base + in[0] + .. + in[k-1], in this order. */
MOE_INLINE void sum_rows(int64_t n, const void *base, const void *const *in, int64_t k, void *y,
                         moe_dtype dtype) {
  enum { STEP = 4 * MOE_VW };
  int64_t i = 0;
  for (; i + STEP <= n; i += STEP) {
    vf v[4] = {{0}, {0}, {0}, {0}};
    if (base)
      for (int c = 0; c < 4; c++) v[c] = vx_load(base, dtype, i + c * MOE_VW);
    for (int64_t j = 0; j < k; j++)
      for (int c = 0; c < 4; c++) v[c] += vx_load(in[j], dtype, i + c * MOE_VW);
    for (int c = 0; c < 4; c++) vx_store(y, dtype, i + c * MOE_VW, v[c]);
  }
  for (; i < n; i += MOE_VW) {
    int64_t m = moe_min64(MOE_VW, n - i);
    vf v = {0};
    if (base) v = vx_load_n(base, dtype, i, m);
    for (int64_t j = 0; j < k; j++) v += vx_load_n(in[j], dtype, i, m);
    vx_store_n(y, dtype, i, v, m);
  }
}

static void combine_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_combine_args *a = arg;
  for (int64_t t = first; t < last; t++) {
    const void *in[MOE_TOPK_MAX];
    int64_t k = 0;
    for (int64_t j = 0; j < a->topk; j++)
      if (a->row[t * a->topk + j] >= 0) in[k++] = mat_row(&a->rows, a->row[t * a->topk + j]);
    const void *base = a->base.p ? mat_row(&a->base, t) : NULL;
    if (a->y.dtype == MOE_F32)
      sum_rows(a->y.cols, base, in, k, mat_row(&a->y, t), MOE_F32);
    else
      sum_rows(a->y.cols, base, in, k, mat_row(&a->y, t), MOE_BF16);
  }
}

void MOE_FN(combine)(struct moe_stream *s, const struct moe_combine_args *a) {
  struct moe_combine_args args = *a;
  moe_cpu_for(s, a->y.rows, moe_cpu_row_grain(a->y.cols * 4 * moe_max64(1, a->topk)), combine_range,
              &args);
}

static void prob_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_prob_rows_args *a = arg;
  if (a->to_rows)
    for (int64_t r = first; r < last; r++)
      a->out[r] = a->token[r] < 0 ? 0 : a->in[a->token[r] * a->topk + a->slot[r]];
  else
    for (int64_t i = first; i < last; i++) a->out[i] = a->row[i] < 0 ? 0 : a->in[a->row[i]];
}

void MOE_FN(prob_rows)(struct moe_stream *s, const struct moe_prob_rows_args *a) {
  struct moe_prob_rows_args args = *a;
  moe_cpu_for(s, a->to_rows ? a->n_rows : a->tokens * a->topk, PROB_GRAIN, prob_range, &args);
}
