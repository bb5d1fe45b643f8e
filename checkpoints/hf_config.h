/* A Hugging Face config.json as a model config, for the families mixtral, qwen2_moe, qwen3_moe and
 * olmoe. */
#ifndef MOE_CHECKPOINTS_HF_CONFIG_H
#define MOE_CHECKPOINTS_HF_CONFIG_H

#include "base/base.h"
#include "moelua/config.h"

enum moe_hf_family { MOE_HF_MIXTRAL, MOE_HF_QWEN2_MOE, MOE_HF_QWEN3_MOE, MOE_HF_OLMOE };

struct moe_hf_config {
  enum moe_hf_family family;
  moe_model_config model;   /* blocks: owned by this struct */
  double router_aux_loss_coef; /* as the file has it: pooled over layers, not divided by K */
};

/* Every key that shapes the model is checked; several errors come at once, one a line. */
moe_status moe_hf_config_read(moe_ctx *ctx, const char *path, struct moe_hf_config *out);
void moe_hf_config_destroy(moe_ctx *ctx, struct moe_hf_config *config);

#endif
