#include "data/blend.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* Whether all weights (fractions of 1) are whole shares of a period. */
static bool period_fits(const double *weights, int32_t n, int64_t period) {
  const double tolerance = 1e-8; /* far above rounding errors, far below one share */
  for (int32_t i = 0; i < n; i++) {
    double share = weights[i] * (double)period, whole = rint(share);
    if (whole < 1 || fabs(share - whole) > tolerance) return false;
  }
  return true;
}

/* The shortest period that is exact, or 0. */
static int64_t find_period(const double *weights, int32_t n) {
  for (int64_t period = n; period <= MOE_BLEND_PERIOD; period++)
    if (period_fits(weights, n, period)) return period;
  return 0;
}

/* Adds `by` (1 or -1) to the share that this brings nearest to its weight. */
static void adjust(struct moe_blend *b, const double *weights, int64_t by) {
  int32_t best = -1;
  double most = -INFINITY;
  for (int32_t i = 0; i < b->sources; i++) {
    double gain = (weights[i] * (double)b->period - (double)b->share[i]) * (double)by;
    if (gain > most && b->share[i] + by >= 1) {
      most = gain;
      best = i;
    }
  }
  b->share[best] += by;
}

static void set_shares(struct moe_blend *b, const double *weights) {
  int64_t sum = 0;
  b->period = find_period(weights, b->sources);
  if (b->period == 0) b->period = MOE_BLEND_PERIOD;
  for (int32_t i = 0; i < b->sources; i++) {
    b->share[i] = moe_max64(1, llrint(weights[i] * (double)b->period));
    sum += b->share[i];
  }
  for (; sum < b->period; sum++) adjust(b, weights, 1);
  for (; sum > b->period; sum--) adjust(b, weights, -1);
}

moe_status moe_blend_init(moe_ctx *ctx, const double *weights, int32_t sources,
                          struct moe_blend *out) {
  struct moe_blend *b = out;
  *b = (struct moe_blend){.ctx = ctx, .sources = sources};
  b->share = moe_alloc_array(ctx, (size_t)sources, sizeof *b->share);
  b->drawn = moe_alloc_array(ctx, (size_t)sources, sizeof *b->drawn);
  b->lag = moe_alloc_array(ctx, (size_t)sources, sizeof *b->lag);
  double *fraction = moe_alloc_array(ctx, (size_t)sources, sizeof *fraction);
  if (!b->share || !b->drawn || !b->lag || !fraction) {
    moe_release(ctx, fraction);
    moe_blend_destroy(b);
    return MOE_MEMORY;
  }
  double largest = 0, sum = 0;
  for (int32_t i = 0; i < sources; i++) largest = fmax(largest, weights[i]);
  for (int32_t i = 0; i < sources; i++) sum += weights[i] / largest;
  for (int32_t i = 0; i < sources; i++) fraction[i] = weights[i] / largest / sum;
  set_shares(b, fraction);
  moe_release(ctx, fraction);
  return MOE_OK;
}

void moe_blend_destroy(struct moe_blend *b) {
  moe_release(b->ctx, b->share);
  moe_release(b->ctx, b->drawn);
  moe_release(b->ctx, b->lag);
  *b = (struct moe_blend){.ctx = b->ctx};
}

static void restart(struct moe_blend *b) {
  b->at = 0;
  memset(b->drawn, 0, (size_t)b->sources * sizeof *b->drawn);
  memset(b->lag, 0, (size_t)b->sources * sizeof *b->lag);
}

/* Two passes, so that the first one vectorises. */
static int32_t draw(struct moe_blend *b) {
  int64_t most = INT64_MIN;
  for (int32_t i = 0; i < b->sources; i++) {
    b->lag[i] += b->share[i];
    most = b->lag[i] > most ? b->lag[i] : most;
  }
  int32_t source = 0;
  while (b->lag[source] != most) source++;
  b->lag[source] -= b->period;
  b->drawn[source]++;
  b->at++;
  return source;
}

void moe_blend_seek(struct moe_blend *b, int64_t cursor) {
  b->rounds = cursor / b->period;
  int64_t at = cursor % b->period;
  if (at < b->at) restart(b);
  while (b->at < at) (void)draw(b);
}

void moe_blend_next(struct moe_blend *b, int32_t *source, int64_t *index) {
  *source = draw(b);
  *index = b->rounds * b->share[*source] + b->drawn[*source] - 1;
  if (b->at < b->period) return;
  restart(b);
  b->rounds++;
}
