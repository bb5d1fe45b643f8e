/* Which source gives each sample of the global order. Weights become whole shares of a period P;
 * sample n goes to the source with the largest share*(n+1) - P*drawn, the one that lags its weight
 * most (the first of equals). Invariant: after P samples source i was drawn exactly share[i] times
 * and the order repeats, so any cursor is reached in less than P steps and nothing is ever stored.
 * (All lags are above -P and sum to 0; at n = P they are multiples of P, hence all 0.) */
#ifndef MOE_DATA_BLEND_H
#define MOE_DATA_BLEND_H

#include "base/base.h"

/* Weights whose ratios need a longer period are rounded to this one: by at most 2^-20 of the whole.
 * No share is rounded to 0. */
#define MOE_BLEND_PERIOD ((int64_t)1 << 20)
enum { MOE_BLEND_SOURCES = 65536 };

struct moe_blend {
  moe_ctx *ctx;
  int32_t sources;
  int64_t period;     /* P, the sum of the shares */
  int64_t *share;     /* owned, as the next two: [sources] */
  int64_t *drawn;     /* in this period */
  int64_t *lag;       /* share*at - period*drawn */
  int64_t rounds, at; /* the next sample is rounds*period + at */
};

/* The weights must be positive and finite. */
moe_status moe_blend_init(moe_ctx *ctx, const double *weights, int32_t sources,
                          struct moe_blend *out);
void moe_blend_destroy(struct moe_blend *blend);
/* The next sample will be `cursor`. Cheap forwards within a period, else up to a period of steps.
 */
void moe_blend_seek(struct moe_blend *blend, int64_t cursor);
/* The source of the next sample, and how many samples it gave before. */
void moe_blend_next(struct moe_blend *blend, int32_t *source, int64_t *index);

#endif
