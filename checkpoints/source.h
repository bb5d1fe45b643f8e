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
  const struct moe_optim *optim; /* who holds and stores what; NULL: this rank does all of it */
};
struct moe_source moe_source_of_trainer(struct moe_trainer *trainer);
/* Elements [first, last) of a slot's box in a store that this rank has, device memory. */
struct moe_values {
  int64_t first, last;
  float *at; /* of element first */
};
/* They are one run, or, with ZeRO, several of the moments: *next begins as 0. False when there is
 * no more. Buffers have no moments. */
bool moe_source_next(const struct moe_source *source, const struct moe_slot *slot,
                     enum moe_store store, int32_t *next, struct moe_values *out);
/* The slot's whole box; NULL where this rank has not all of it. */
float *moe_source_values(const struct moe_source *source, const struct moe_slot *slot,
                         enum moe_store store);
/* Puts what this rank stores: of ranks with the same values, one does. */
moe_status moe_source_write(const struct moe_source *source, struct moe_writer *writer);
/* Reads every box of this rank from the slices that hold parts of it, whatever the layout that
 * saved them. whole: this rank has the whole model, so a tensor it does not know is an error.
 * Tensors that are missing, unknown or of another shape: MOE_FORMAT with all their names, nothing
 * is written. Damaged data: MOE_FORMAT, values are undefined. */
moe_status moe_source_read(const struct moe_source *source, const char *folder,
                           const struct moe_catalog *catalog, bool whole);

#endif
