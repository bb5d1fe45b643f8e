/* An open checkpoint: its folder and its catalog, which passed moe_catalog_check. */
#ifndef MOE_CHECKPOINTS_CHECKPOINT_H
#define MOE_CHECKPOINTS_CHECKPOINT_H

#include "checkpoints/catalog.h"
#include "moelua/checkpoint.h"

struct moe_checkpoint {
  moe_ctx *ctx;
  char *folder;
  struct moe_catalog catalog;
};

#endif
