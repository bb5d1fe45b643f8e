/* The parts of moe_train_config_check. Each adds its errors, one a line "field: text", and goes on.
 * Invariant: a config that passed all parts on some world can be trained there by any backend. */
#ifndef MOE_TRAIN_CONFIG_CHECK_H
#define MOE_TRAIN_CONFIG_CHECK_H

#include "base/text.h"
#include "mesh/layout.h"
#include "moelua/config.h"

/* Adds "field: value is outside low .. high" unless it is inside; true when inside. */
bool moe_check_range(struct moe_text *errors, const char *field, int64_t value, int64_t low,
                     int64_t high);
/* As moe_check_range for numbers; also refuses what is not finite. */
bool moe_check_number(struct moe_text *errors, const char *field, double value, double low,
                      double high);

/* The model on its own: sizes, blocks, routers. */
void moe_check_model(struct moe_text *errors, const moe_model_config *model);
/* What one block says about itself; lines have no "model.blocks[i]." prefix. */
void moe_check_block(struct moe_text *errors, const moe_block_config *block);
/* The model's sizes against the degrees, and the sequence and batches against both. */
void moe_check_split(struct moe_text *errors, const moe_train_config *config,
                     const struct moe_layout *layout);
void moe_check_dispatch(struct moe_text *errors, const moe_train_config *config);
void moe_check_optimizer(struct moe_text *errors, const moe_optimizer_config *optimizer);

/* Runs check on every block and adds its lines with "model.blocks[i]." or, for neighbours with the
 * same lines, "model.blocks[i-j]." before each. arg is handed to check. */
typedef void (*moe_block_check_fn)(struct moe_text *lines, const moe_block_config *block,
                                   const void *arg);
void moe_check_blocks(struct moe_text *errors, const moe_model_config *model,
                      moe_block_check_fn check, const void *arg);

#endif
