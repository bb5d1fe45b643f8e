/* The sigmoid gate of a shared expert: one logit per row. */
#include "kernels/cpu/ops.h"

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

MOE_INLINE void gate_row(int64_t n, float sig, const void *in, const void *base, void *y,
                         moe_dtype dtype) {
  vf k = vf_set(sig);
  int64_t i = 0;
  for (; i + MOE_VW <= n; i += MOE_VW) {
    vf v = k * vx_load(in, dtype, i);
    vx_store(y, dtype, i, base ? v + vx_load(base, dtype, i) : v);
  }
  if (i == n) return;
  vf v = k * vx_load_n(in, dtype, i, n - i);
  vx_store_n(y, dtype, i, base ? v + vx_load_n(base, dtype, i, n - i) : v, n - i);
}

static void gate_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_gate_args *a = arg;
  for (int64_t r = first; r < last; r++) {
    const void *in = mat_row(&a->s, r), *base = a->base.p ? mat_row(&a->base, r) : NULL;
    if (a->s.dtype == MOE_F32)
      gate_row(a->s.cols, sigmoid(a->logit[r]), in, base, mat_row(&a->y, r), MOE_F32);
    else
      gate_row(a->s.cols, sigmoid(a->logit[r]), in, base, mat_row(&a->y, r), MOE_BF16);
  }
}

void MOE_FN(gate)(struct moe_stream *s, const struct moe_gate_args *a) {
  struct moe_gate_args args = *a;
  moe_cpu_for(s, a->s.rows, moe_cpu_row_grain(a->s.cols * 4), gate_range, &args);
}

/* ds = sig * dy; returns sum(dy * s). */
MOE_INLINE float back_row(int64_t n, float sig, const void *dy, const void *in, void *ds,
                          moe_dtype dtype) {
  enum { STEP = 2 * MOE_VW };
  vf k = vf_set(sig), acc[2] = {{0}, {0}};
  int64_t i = 0;
  for (; i + STEP <= n; i += STEP)
    for (int j = 0; j < 2; j++) {
      vf d = vx_load(dy, dtype, i + j * MOE_VW);
      acc[j] += d * vx_load(in, dtype, i + j * MOE_VW);
      vx_store(ds, dtype, i + j * MOE_VW, k * d);
    }
  for (; i < n; i += MOE_VW) {
    int64_t m = moe_min64(MOE_VW, n - i);
    vf d = vx_load_n(dy, dtype, i, m);
    acc[0] += d * vx_load_n(in, dtype, i, m);
    vx_store_n(ds, dtype, i, k * d, m);
  }
  return vf_sum(acc[0] + acc[1]);
}

static void back_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_gate_bwd_args *a = arg;
  for (int64_t r = first; r < last; r++) {
    const void *dy = mat_row(&a->dy, r), *in = mat_row(&a->s, r);
    float sig = sigmoid(a->logit[r]), sum;
    if (a->s.dtype == MOE_F32)
      sum = back_row(a->s.cols, sig, dy, in, mat_row(&a->ds, r), MOE_F32);
    else
      sum = back_row(a->s.cols, sig, dy, in, mat_row(&a->ds, r), MOE_BF16);
    a->dlogit[r] = sum * sig * (1.0f - sig);
  }
}

void MOE_FN(gate_bwd)(struct moe_stream *s, const struct moe_gate_bwd_args *a) {
  struct moe_gate_bwd_args args = *a;
  moe_cpu_for(s, a->s.rows, moe_cpu_row_grain(a->s.cols * 8), back_range, &args);
}
