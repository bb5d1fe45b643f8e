/* The experts of this rank: two grouped products around SwiGLU, the routing probability between
 * them, so that combine is a plain sum. */
#ifndef MOE_LAYERS_EXPERTS_H
#define MOE_LAYERS_EXPERTS_H

#include "layers/linear.h"

struct moe_experts {
  struct moe_linear in, out; /* (L, 2F, H), (L, H, F); F local to etp */
};

struct moe_experts_saved {
  struct moe_mat gu; /* (N, 2F) */
};

moe_status moe_experts_params(struct moe_experts *x, const moe_model_config *model,
                              const moe_block_config *block, struct moe_place place,
                              const char *prefix, struct moe_params *params);
void moe_experts_init(struct moe_experts *x, const moe_model_config *model,
                      const moe_block_config *block, struct moe_place place, moe_dtype dtype,
                      int64_t rows_hint);
moe_status moe_experts_bind(struct moe_experts *x, const struct moe_kernels *k,
                            const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_experts_prepare(const struct moe_experts *x, const struct moe_run *run);
/* y (N, H) from rows (N, H), prob (N); ranges: rows of each expert. */
moe_status moe_experts_forward(const struct moe_experts *x, const struct moe_run *run,
                               struct moe_mat rows, const float *prob,
                               struct moe_groups_rows ranges, struct moe_experts_saved *saved,
                               struct moe_mat y);
/* drows (N, H; may be dy itself) and dprob (N) from dy (N, H). Consumes saved->gu. */
moe_status moe_experts_backward(const struct moe_experts *x, const struct moe_run *run,
                                const struct moe_experts_saved *saved, struct moe_mat rows,
                                const float *prob, struct moe_groups_rows ranges, struct moe_mat dy,
                                struct moe_mat drows, float *dprob);

#endif
