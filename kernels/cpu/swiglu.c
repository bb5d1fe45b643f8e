/* h = silu(gate) * up [* p] over rows of (gate | up), and its gradient. */
#include "kernels/cpu/ops.h"

/* The forward value; backward computes h again by the same code, to the same bits. */
MOE_INLINE vf value(vf g, vf u, vf sig, vf p) { return (g * sig) * u * p; }

MOE_INLINE void forward_row(int64_t n, const void *gate, const void *up, float prob, void *h,
                            moe_dtype dtype) {
  vf p = vf_set(prob);
  int64_t i = 0;
  for (; i + MOE_VW <= n; i += MOE_VW) {
    vf g = vx_load(gate, dtype, i), u = vx_load(up, dtype, i);
    vx_store(h, dtype, i, value(g, u, vf_sigmoid(g), p));
  }
  if (i == n) return;
  vf g = vx_load_n(gate, dtype, i, n - i), u = vx_load_n(up, dtype, i, n - i);
  vx_store_n(h, dtype, i, value(g, u, vf_sigmoid(g), p), n - i);
}

static void forward_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_swiglu_args *a = arg;
  int64_t n = a->h.cols;
  for (int64_t r = first; r < last; r++) {
    const char *gate = mat_row(&a->gu, r);
    const char *up = gate + (size_t)n * moe_dtype_bytes(a->gu.dtype);
    float p = a->prob ? a->prob[r] : 1.0f;
    if (a->gu.dtype == MOE_F32)
      forward_row(n, gate, up, p, mat_row(&a->h, r), MOE_F32);
    else
      forward_row(n, gate, up, p, mat_row(&a->h, r), MOE_BF16);
  }
}

void MOE_FN(swiglu)(struct moe_stream *s, const struct moe_swiglu_args *a) {
  struct moe_swiglu_args args = *a;
  moe_cpu_for(s, a->gu.rows, moe_cpu_row_grain(a->gu.cols * 4), forward_range, &args);
}

struct row {
  const void *dh, *gate, *up;
  void *dgate, *dup, *h; /* h NULL: not wanted */
};
struct grads {
  vf dgate, dup, h, dprob;
};

MOE_INLINE struct grads gradients(vf d, vf g, vf u, vf p) {
  const vf one = vf_set(1.0f);
  vf sig = vf_sigmoid(g), silu = g * sig, dp = d * p;
  return (struct grads){.dgate = dp * u * (sig * (one + g * (one - sig))),
                        .dup = dp * silu,
                        .h = value(g, u, sig, p),
                        .dprob = d * silu * u};
}

/* Returns sum(dh * silu(gate) * up). */
MOE_INLINE float backward_row(int64_t n, struct row r, float prob, moe_dtype dtype) {
  vf p = vf_set(prob), acc = {0};
  int64_t i = 0;
  for (; i + MOE_VW <= n; i += MOE_VW) {
    struct grads o = gradients(vx_load(r.dh, dtype, i), vx_load(r.gate, dtype, i),
                               vx_load(r.up, dtype, i), p);
    vx_store(r.dgate, dtype, i, o.dgate);
    vx_store(r.dup, dtype, i, o.dup);
    if (r.h) vx_store(r.h, dtype, i, o.h);
    acc += o.dprob;
  }
  if (i == n) return vf_sum(acc);
  struct grads o = gradients(vx_load_n(r.dh, dtype, i, n - i), vx_load_n(r.gate, dtype, i, n - i),
                             vx_load_n(r.up, dtype, i, n - i), p);
  vx_store_n(r.dgate, dtype, i, o.dgate, n - i);
  vx_store_n(r.dup, dtype, i, o.dup, n - i);
  if (r.h) vx_store_n(r.h, dtype, i, o.h, n - i);
  return vf_sum(acc + o.dprob);
}

static void backward_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_swiglu_bwd_args *a = arg;
  int64_t n = a->dh.cols;
  size_t half = (size_t)n * moe_dtype_bytes(a->gu.dtype);
  for (int64_t r = first; r < last; r++) {
    char *gate = mat_row(&a->gu, r), *dgate = mat_row(&a->dgu, r);
    struct row row = {.dh = mat_row(&a->dh, r),
                      .gate = gate,
                      .up = gate + half,
                      .dgate = dgate,
                      .dup = dgate + half,
                      .h = a->h.p ? mat_row(&a->h, r) : NULL};
    float p = a->prob ? a->prob[r] : 1.0f, dprob;
    if (a->gu.dtype == MOE_F32)
      dprob = backward_row(n, row, p, MOE_F32);
    else
      dprob = backward_row(n, row, p, MOE_BF16);
    if (a->dprob) a->dprob[r] = dprob;
  }
}

void MOE_FN(swiglu_bwd)(struct moe_stream *s, const struct moe_swiglu_bwd_args *a) {
  struct moe_swiglu_bwd_args args = *a;
  moe_cpu_for(s, a->dh.rows, moe_cpu_row_grain(a->gu.cols * 8), backward_range, &args);
}
