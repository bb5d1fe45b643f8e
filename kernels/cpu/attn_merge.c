/* Attention over two sets of keys from attention over each. */
#include <math.h>

#include "kernels/cpu/ops.h"

static void merge_row(const struct moe_attn_merge_args *a, int64_t r) {
  int64_t b = r / a->seq, i = r % a->seq, d = a->head_dim;
  for (int64_t h = 0; h < a->heads; h++) {
    int64_t at = (b * a->heads + h) * a->seq + i;
    float x = a->lse[at], y = a->more_lse[at], max = fmaxf(x, y);
    float p = max == -INFINITY ? 0 : expf(x - max), q = max == -INFINITY ? 0 : expf(y - max);
    float sum = p + q;
    if (sum == 0) continue; /* neither sees a key: zeros stay */
    a->lse[at] = max + logf(sum);
    float *o = (float *)mat_row(&a->o, r) + h * d;
    const void *more = mat_row(&a->more, r);
    vf vp = vf_set(p / sum), vq = vf_set(q / sum);
    int64_t c = 0;
    for (; c + MOE_VW <= d; c += MOE_VW)
      vf_store(o + c, vf_load(o + c) * vp + vx_load(more, a->more.dtype, h * d + c) * vq);
    if (c < d)
      vf_store_n(
          o + c,
          vf_load_n(o + c, d - c) * vp + vx_load_n(more, a->more.dtype, h * d + c, d - c) * vq,
          d - c);
  }
}

static void merge_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  for (int64_t r = first; r < last; r++) merge_row(arg, r);
}

void MOE_FN(attn_merge)(struct moe_stream *s, const struct moe_attn_merge_args *a) {
  struct moe_attn_merge_args args = *a;
  moe_cpu_for(s, a->batch * a->seq, moe_cpu_row_grain(a->o.cols * 8), merge_range, &args);
}
