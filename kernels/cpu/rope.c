/* Rotary embedding, half-rotation pairs (Su et al., "RoFormer", 2021). */
#include "kernels/cpu/ops.h"

enum { GRAIN = 16 };

/* (x, y) = (x c - y s, y c + x s) for `half` pairs (p[i], p[i + half]). */
static void rotate(void *row, moe_dtype dtype, int64_t at, int64_t half, const float *c,
                   const float *s, float sign) {
  const vf sg = vf_set(sign);
  int64_t i = 0;
  for (; i + MOE_VW <= half; i += MOE_VW) {
    vf x = vx_load(row, dtype, at + i), y = vx_load(row, dtype, at + half + i);
    vf cv = vf_load(c + i), sv = vf_load(s + i) * sg;
    vx_store(row, dtype, at + i, x * cv - y * sv);
    vx_store(row, dtype, at + half + i, y * cv + x * sv);
  }
  int64_t n = half - i;
  if (n == 0) return;
  vf x = vx_load_n(row, dtype, at + i, n), y = vx_load_n(row, dtype, at + half + i, n);
  vf cv = vf_load_n(c + i, n), sv = vf_load_n(s + i, n) * sg;
  vx_store_n(row, dtype, at + i, x * cv - y * sv, n);
  vx_store_n(row, dtype, at + half + i, y * cv + x * sv, n);
}

static void rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_rope_args *a = arg;
  int64_t half = a->head_dim / 2;
  for (int64_t r = first; r < last; r++) {
    const float *c = a->cos_t + a->position[r] * half, *s = a->sin_t + a->position[r] * half;
    void *row = mat_row(&a->x, r);
    for (int64_t h = 0; h < a->heads; h++)
      rotate(row, a->x.dtype, h * a->head_dim, half, c, s, a->inverse ? -1.0f : 1.0f);
  }
}

void MOE_FN(rope)(struct moe_stream *s, const struct moe_rope_args *a) {
  moe_cpu_for(s, a->x.rows, GRAIN, rows, (void *)a);
}
