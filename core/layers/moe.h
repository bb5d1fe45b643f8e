/* The MoE layer: router, dispatch, experts, combine, and the shared expert beside them. */
#ifndef MOE_LAYERS_MOE_H
#define MOE_LAYERS_MOE_H

#include "layers/dispatch.h"
#include "layers/experts.h"
#include "layers/ffn.h"
#include "layers/router.h"

struct moe_layer {
  struct moe_router router;
  struct moe_dispatch dispatch;
  struct moe_experts experts;
  bool has_shared, has_gate;
  struct moe_ffn shared;
  struct moe_linear gate; /* (1, H), fp32 */
  struct moe_moe_stats stats;
};

struct moe_layer_saved {
  struct moe_router_saved router;
  struct moe_dispatch_plan plan;
  struct moe_experts_saved experts;
  struct moe_ffn_saved shared;
  struct moe_mat shared_y; /* (T, H); with a gate */
  float *gate_logit;       /* (T) */
};

moe_status moe_layer_params(struct moe_layer *m, const moe_model_config *model,
                            const moe_block_config *block, struct moe_place place,
                            const char *prefix, struct moe_params *params);
void moe_layer_init(struct moe_layer *m, const moe_model_config *model,
                    const moe_block_config *block, const moe_dispatch_config *dispatch,
                    struct moe_place place, moe_dtype dtype, int64_t rows_hint);
moe_status moe_layer_bind(struct moe_layer *m, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_layer_prepare(const struct moe_layer *m, const struct moe_run *run);
/* y (T, H) = res + moe(x). */
moe_status moe_layer_forward(const struct moe_layer *m, const struct moe_run *run, struct moe_mat x,
                             struct moe_mat res, struct moe_layer_saved *saved, struct moe_mat y);
/* dx (T, H), fully written, from dy. */
moe_status moe_layer_backward(const struct moe_layer *m, const struct moe_run *run,
                              const struct moe_layer_saved *saved, struct moe_mat x,
                              struct moe_mat dy, struct moe_mat dx);

#endif
