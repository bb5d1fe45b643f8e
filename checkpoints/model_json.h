/* The model's dimensions as JSON, kept in the index for people and for a warning at load. */
#ifndef MOE_CHECKPOINTS_MODEL_JSON_H
#define MOE_CHECKPOINTS_MODEL_JSON_H

#include "base/base.h"
#include "moelua/config.h"

/* To be released; NULL with the error set. Neighbouring blocks that are the same are one entry with
 * their `count`. What training alone uses (recompute, coefficients of losses) is left out. */
char *moe_model_json(moe_ctx *ctx, const moe_model_config *model);

#endif
