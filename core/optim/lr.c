#include "optim/lr.h"

#include <math.h>

/* Share of the way from peak to min, 0 at the end of warm-up, 1 at step `total` and after. */
static double progress(const moe_lr_config *lr, int64_t done) {
  int64_t length = lr->total - lr->warmup;
  if (length <= 0) return 0;
  double x = (double)(done - lr->warmup) / (double)length;
  return x > 1 ? 1 : x;
}

double moe_lr_value(const moe_lr_config *lr, int64_t step) {
  int64_t done = step - 1;
  if (done < lr->warmup) return lr->peak * (double)step / (double)lr->warmup;
  double span = lr->peak - lr->min;
  switch ((moe_lr_kind)lr->kind) {
    case MOE_LR_CONSTANT: break;
    case MOE_LR_COSINE:
      return lr->min + span * 0.5 * (1 + cos(3.14159265358979323846 * progress(lr, done)));
    case MOE_LR_LINEAR: return lr->peak - span * progress(lr, done);
    case MOE_LR_WSD: {
      int64_t into = done - (lr->total - lr->decay);
      if (into <= 0 || lr->decay <= 0) break;
      return into >= lr->decay ? lr->min : lr->peak - span * (double)into / (double)lr->decay;
    }
  }
  return lr->peak;
}
