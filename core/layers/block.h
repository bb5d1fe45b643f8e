/* One transformer block: h = x + attention(norm(x)); y = h + ffn(norm(h)), the ffn dense or MoE.
 * A block may keep only its input, or drop what its ffn kept, and compute it again for backward. */
#ifndef MOE_LAYERS_BLOCK_H
#define MOE_LAYERS_BLOCK_H

#include "layers/attn.h"
#include "layers/moe.h"

struct moe_block {
  struct moe_norm attn_norm, ffn_norm;
  struct moe_attn attn;
  bool is_moe;
  struct moe_ffn ffn;
  struct moe_layer moe;
  moe_recompute recompute;
};

struct moe_block_saved {
  struct moe_mat x; /* (T, H): the input; owned by whoever made it */
  struct moe_mat n1, h, n2;
  float *rstd1, *rstd2;
  struct moe_attn_saved attn;
  struct moe_ffn_saved ffn;
  struct moe_layer_saved moe;
};

/* prefix: "blocks.<number in the whole model>." */
moe_status moe_block_params(struct moe_block *b, const moe_model_config *model,
                            const moe_block_config *block, struct moe_place place,
                            const char *prefix, struct moe_params *params);
void moe_block_init(struct moe_block *b, const moe_model_config *model,
                    const moe_block_config *block, const moe_dispatch_config *dispatch,
                    struct moe_place place, moe_dtype dtype, int64_t rows_hint);
moe_status moe_block_bind(struct moe_block *b, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_block_prepare(const struct moe_block *b, const struct moe_run *run);
/* y (T, H) must not be x. */
moe_status moe_block_forward(const struct moe_block *b, const struct moe_run *run, struct moe_mat x,
                             struct moe_block_saved *saved, struct moe_mat y);
/* d: gradient of y on entry, of x on return. */
moe_status moe_block_backward(const struct moe_block *b, const struct moe_run *run,
                              struct moe_block_saved *saved, struct moe_mat d);

#endif
