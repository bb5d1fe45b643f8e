/* What one MoE layer counts in a step, kept on the device until the step's end: a slice per
 * micro-batch, so that nothing is read back in between. */
#ifndef MOE_LAYERS_STATS_H
#define MOE_LAYERS_STATS_H

#include "layers/run.h"

struct moe_moe_stats {
  int64_t segments; /* per micro-batch: 1, or one per sequence */
  int64_t experts;  /* E */
  int32_t *count;   /* (micro, segments, E): times chosen, before dropping */
  float *prob_sum;  /* (micro, segments, E) */
  int32_t *dropped; /* (micro): pairs of this rank's tokens without a row */
  int32_t *kept;    /* (micro): rows this rank was told to account for; all ranks' are all */
  double *z_sum;    /* (micro): sum over tokens of logsumexp^2 */
  int32_t *total;   /* (E): count over all micro-batches, for the global aux scope */
};

static inline int32_t *moe_stats_count(const struct moe_moe_stats *s, int32_t micro) {
  return s->count + micro * s->segments * s->experts;
}
static inline float *moe_stats_prob_sum(const struct moe_moe_stats *s, int32_t micro) {
  return s->prob_sum + micro * s->segments * s->experts;
}

#endif
