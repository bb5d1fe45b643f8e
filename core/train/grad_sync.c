/* Gradients after the last micro-batch: which ranks sum what. Dense parameters are held by the
 * dp-cp ranks, expert parameters by the edp ranks; both are scaled by the global token count alone.
 */
#include "train/trainer.h"

enum { PIECE = 4 << 20 }; /* elements: 16 MB; larger reductions fault in temporary buffers */

moe_status moe_trainer_sync_gradients(struct moe_trainer *t) {
  static const enum moe_group_kind over[MOE_FAMILIES] = {
      [MOE_FAMILY_DENSE] = MOE_GROUP_DP_CP, [MOE_FAMILY_EXPERT] = MOE_GROUP_EDP};
  moe_trace_begin(&t->trace, MOE_PART_GRAD);
  for (int f = 0; f < MOE_FAMILIES; f++) {
    struct moe_group g = t->groups.of[over[f]];
    int64_t n = moe_group_size(g) > 1 ? t->model->params.pack[f].elements : 0;
    for (int64_t first = 0; first < n; first += PIECE)
      MOE_TRY(moe_all_reduce(g, t->stream, t->memory.grad[f] + first, moe_min64(PIECE, n - first),
                             MOE_F32, MOE_SUM, NULL));
  }
  moe_trace_end(&t->trace);
  return MOE_OK;
}
