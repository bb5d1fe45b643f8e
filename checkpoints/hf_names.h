/* Hugging Face's tensor names in our logical tensors. Every released tensor is a contiguous run of
 * one of ours: a whole one, or an expert's matrix inside the stacked ones. */
#ifndef MOE_CHECKPOINTS_HF_NAMES_H
#define MOE_CHECKPOINTS_HF_NAMES_H

#include "checkpoints/hf_config.h"
#include "tensor/pack.h"

struct moe_hf_place {
  char name[MOE_SLOT_NAME]; /* ours */
  int64_t first, elements;  /* run of the logical tensor, row-major */
};

/* Where a per-expert-named tensor belongs; MOE_NOTFOUND, naming it, when the family has no such. */
moe_status moe_hf_name_place(moe_ctx *ctx, const struct moe_hf_config *config, const char *hf_name,
                             struct moe_hf_place *out);

#endif
