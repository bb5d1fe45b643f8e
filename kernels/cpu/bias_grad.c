/* Gradient of a bias: column sums. Rows are added in order within runs of RUN, runs in order. */
#include "kernels/cpu/matmul.h"

enum { RUN = 64, COLS = 64 };

static void columns(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_bias_grad_args *a = arg;
  const struct moe_mat *dy = &a->dy;
  float total[COLS];
  for (int64_t c = first; c < last; c++) total[c - first] = a->accumulate ? a->db[c] : 0;
  for (int64_t r0 = 0; r0 < dy->rows; r0 += RUN) {
    float run[COLS] = {0};
    for (int64_t r = r0; r < moe_min64(r0 + RUN, dy->rows); r++) {
      const void *row = mat_row(dy, r);
      int64_t c = first;
      for (; c + MOE_VW <= last; c += MOE_VW)
        vf_store(run + (c - first), vf_load(run + (c - first)) + vx_load(row, dy->dtype, c));
      for (; c < last; c++) run[c - first] += mx_get(row, dy->dtype, c);
    }
    for (int64_t c = 0; c < last - first; c++) total[c] += run[c];
  }
  for (int64_t c = first; c < last; c++) a->db[c] = total[c - first];
}

void MOE_FN(bias_grad)(struct moe_stream *s, const struct moe_bias_grad_args *a) {
  struct moe_bias_grad_args args = *a;
  moe_cpu_for(s, a->dy.cols, COLS, columns, &args);
}
