/* Sums of routing counts; tiny, so one thread. */
#include "kernels/cpu/ops.h"

void MOE_FN(count_sum)(struct moe_stream *s, const struct moe_count_sum_args *a) {
  (void)s;
  for (int64_t e = 0; e < a->experts; e++) {
    int32_t sum = 0;
    for (int64_t r = 0; r < a->rows; r++) sum += a->in[r * a->experts + e];
    a->out[e] = sum;
  }
}
