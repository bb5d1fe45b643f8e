/* Cross entropy over a vocabulary shard. Rows are read once: chunk by chunk, the running sum is
 * rescaled when a chunk has a larger maximum. */
#include "kernels/cpu/ops.h"

enum { CHUNK = 2048, STEP = 4 * MOE_VW };

MOE_INLINE float chunk_max(const void *x, int64_t first, int64_t last, float max, moe_dtype dtype) {
  vf m[4] = {vf_set(max), vf_set(max), vf_set(max), vf_set(max)};
  int64_t i = first;
  for (; i + STEP <= last; i += STEP) /* a NaN is passed over here */
    for (int j = 0; j < 4; j++) m[j] = vf_max(vx_load(x, dtype, i + j * MOE_VW), m[j]);
  for (; i < last; i += MOE_VW) m[0] = vf_max(vx_load_or(x, dtype, i, last - i, max), m[0]);
  return vf_hmax(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
}

MOE_INLINE float chunk_sum(const void *x, int64_t first, int64_t last, float max, moe_dtype dtype) {
  vf acc[4] = {{0}, {0}, {0}, {0}}, shift = vf_set(max);
  int64_t i = first;
  for (; i + STEP <= last; i += STEP)
    for (int j = 0; j < 4; j++) acc[j] += vf_exp(vx_load(x, dtype, i + j * MOE_VW) - shift);
  for (; i < last; i += MOE_VW)
    acc[0] += vf_exp(vx_load_or(x, dtype, i, last - i, -INFINITY) - shift);
  return vf_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

MOE_INLINE void row_stats(const void *x, int64_t n, float *max, float *sum, moe_dtype dtype) {
  float m = -INFINITY, total = 0;
  for (int64_t c = 0; c < n; c += CHUNK) {
    int64_t end = moe_min64(c + CHUNK, n);
    float larger = chunk_max(x, c, end, m, dtype);
    if (larger > m && total != 0) total *= expf(m - larger);
    m = larger;
    total += chunk_sum(x, c, end, m == -INFINITY ? 0 : m, dtype);
  }
  *max = m;
  *sum = total;
}

static void stats_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_xent_args *a = arg;
  for (int64_t r = first; r < last; r++) {
    const void *x = mat_row(&a->logits, r);
    a->max[r] = 0;
    a->sum[r] = 1;
    a->target[r] = 0;
    if (a->label[r] < 0) continue;
    if (a->logits.dtype == MOE_F32)
      row_stats(x, a->logits.cols, &a->max[r], &a->sum[r], MOE_F32);
    else
      row_stats(x, a->logits.cols, &a->max[r], &a->sum[r], MOE_BF16);
    int64_t id = a->label[r] - a->first;
    if (id >= 0 && id < a->logits.cols) a->target[r] = mx_get(x, a->logits.dtype, id);
  }
}

void MOE_FN(xent_stats)(struct moe_stream *s, const struct moe_xent_args *a) {
  struct moe_xent_args args = *a;
  moe_cpu_for(s, a->logits.rows, moe_cpu_row_grain(a->logits.cols * 4), stats_range, &args);
}

static void merge_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_xent_merge_args *a = arg;
  int64_t R = a->rows;
  for (int64_t r = first; r < last; r++) {
    float max = -INFINITY, sum = 0, target = 0;
    for (int64_t i = 0; i < a->n; i++) max = fmaxf(max, a->parts[3 * i * R + r]);
    for (int64_t i = 0; i < a->n; i++) {
      const float *part = a->parts + 3 * i * R + r;
      if (part[0] > -INFINITY || part[0] != part[0]) sum += part[R] * expf(part[0] - max);
      target += part[2 * R];
    }
    a->merged[r] = max;
    a->merged[R + r] = sum;
    a->merged[2 * R + r] = target;
  }
}

void MOE_FN(xent_merge)(struct moe_stream *s, const struct moe_xent_merge_args *a) {
  struct moe_xent_merge_args args = *a;
  moe_cpu_for(s, a->rows, 256, merge_range, &args);
}

/* d = exp(x - max) * k */
MOE_INLINE void grad_row(const void *x, void *d, int64_t n, float max, float k, moe_dtype from,
                         moe_dtype to) {
  vf shift = vf_set(max), factor = vf_set(k);
  int64_t i = 0;
  for (; i + MOE_VW <= n; i += MOE_VW)
    vx_store(d, to, i, vf_exp(vx_load(x, from, i) - shift) * factor);
  if (i < n) vx_store_n(d, to, i, vf_exp(vx_load_n(x, from, i, n - i) - shift) * factor, n - i);
}

static void grad_one(const struct moe_xent_grad_args *a, int64_t r) {
  const void *x = mat_row(&a->logits, r);
  void *d = mat_row(&a->dlogits, r);
  int64_t n = a->logits.cols, id = a->label[r] - a->first;
  moe_dtype from = a->logits.dtype, to = a->dlogits.dtype;
  float max = a->max[r], k = a->scale / a->sum[r], at_label = 0;
  bool mine = id >= 0 && id < n;
  if (mine) at_label = expf(mx_get(x, from, id) - max) * k - a->scale;
  if (from == MOE_F32 && to == MOE_F32)
    grad_row(x, d, n, max, k, MOE_F32, MOE_F32);
  else if (from == MOE_BF16 && to == MOE_BF16)
    grad_row(x, d, n, max, k, MOE_BF16, MOE_BF16);
  else
    grad_row(x, d, n, max, k, from, to);
  if (mine) mx_set(d, to, id, at_label);
}

static void grad_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_xent_grad_args *a = arg;
  for (int64_t r = first; r < last; r++) {
    bool masked = a->label[r] < 0;
    if (a->loss) a->loss[r] = masked ? 0 : logf(a->sum[r]) + a->max[r] - a->target[r];
    if (!a->grad) continue;
    if (masked)
      memset(mat_row(&a->dlogits, r), 0,
             (size_t)a->logits.cols * moe_dtype_bytes(a->dlogits.dtype));
    else
      grad_one(a, r);
  }
}

void MOE_FN(xent_grad)(struct moe_stream *s, const struct moe_xent_grad_args *a) {
  struct moe_xent_grad_args args = *a;
  moe_cpu_for(s, a->logits.rows, moe_cpu_row_grain(a->logits.cols * 8), grad_range, &args);
}
