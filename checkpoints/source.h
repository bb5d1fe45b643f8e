/* The tensors of one rank: where they go when it saves and where they come from when it loads.
 * Invariant: a slot's box is contiguous, row-major, at the slot's offset of its family's pack. */
#ifndef MOE_CHECKPOINTS_SOURCE_H
#define MOE_CHECKPOINTS_SOURCE_H

#include "checkpoints/format.h"
#include "train/trainer.h"

struct moe_source {
  moe_ctx *ctx;
  const struct moe_params *params;
  const struct moe_param_memory *memory;
  const struct moe_kernels *k;
  struct moe_stream *stream;
};
struct moe_source moe_source_of_trainer(struct moe_trainer *trainer);
/* MOE_UNSUPPORTED where the state is divided in a way that this version does not save. The same
 * answer on all ranks. */
moe_status moe_source_check(const struct moe_trainer *trainer);

/* The slot's box in a store, device memory; NULL where a buffer has nothing. */
float *moe_source_values(const struct moe_source *source, const struct moe_slot *slot,
                         enum moe_store store);
/* Puts every box of this rank. */
moe_status moe_source_write(const struct moe_source *source, struct moe_writer *writer);
/* Reads every box of this rank from the slices that hold parts of it, whatever the layout that
 * saved them. whole: this rank has the whole model, so a tensor it does not know is an error.
 * Tensors that are missing, unknown or of another shape: MOE_FORMAT with all their names, nothing
 * is written. Damaged data: MOE_FORMAT, values are undefined. */
moe_status moe_source_read(const struct moe_source *source, const char *folder,
                           const struct moe_catalog *catalog, bool whole);

#endif
