/* The files of a checkpoint, without HDF5 in sight: a writer and a reader of data files, and the
 * index. FORMAT.md describes what is in them. */
#ifndef MOE_CHECKPOINTS_FORMAT_H
#define MOE_CHECKPOINTS_FORMAT_H

#include "checkpoints/catalog.h"

enum { MOE_PIECE = 1 << 20 }; /* elements that pass through memory at a time */

/* Copies n values that begin at `offset` of a box's memory to host memory. */
typedef moe_status (*moe_fetch_fn)(void *arg, int64_t offset, int64_t n, float *values);

/* Writes one rank's data file. */
struct moe_writer;
moe_status moe_writer_create(moe_ctx *ctx, const char *folder, int32_t rank, int32_t world,
                             int64_t step, struct moe_writer **out);
/* Stores a box of the tensor of shape dim. Empty boxes leave nothing. A tensor may have several
 * boxes in a file. */
moe_status moe_writer_put(struct moe_writer *writer, enum moe_store store, const char *name,
                          const int64_t *dim, const struct moe_box *box, moe_fetch_fn fetch,
                          void *arg);
/* Closes and syncs. Pass the status so far; returns it, or what went wrong since. */
moe_status moe_writer_destroy(struct moe_writer *writer, moe_status status);

/* Reads a data file. */
struct moe_slice_reader;
moe_status moe_slice_reader_open(moe_ctx *ctx, const char *folder, const char *name,
                                 struct moe_slice_reader **out);
void moe_slice_reader_close(struct moe_slice_reader *reader);
/* Reads `region` of a slice to its place in `values`, the memory of box `into`. */
moe_status moe_slice_reader_read(struct moe_slice_reader *reader, const struct moe_slice *slice,
                                 const struct moe_box *region, const struct moe_box *into,
                                 float *values);

/* Sets catalog->file, tensor and slices from the data files in folder, rank 0 .. world-1; sorts.
 * Digests of tensors are left 0. */
moe_status moe_format_collect(const char *folder, int32_t world, int64_t step,
                              struct moe_catalog *catalog);
/* Writes index.h5 and syncs it. The catalog must have passed moe_catalog_check. */
moe_status moe_format_write_index(const char *folder, const struct moe_catalog *catalog);
/* Fills an empty catalog from index.h5; sorts. */
moe_status moe_format_read_index(const char *folder, struct moe_catalog *catalog);

#endif
