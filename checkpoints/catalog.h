/* What a checkpoint holds: its header, its data files, its tensors and the slices they are stored
 * in. Read from an index, or gathered from data files when an index is to be written.
 * Invariant after moe_catalog_check: the slices of every tensor cover it, each element once. */
#ifndef MOE_CHECKPOINTS_CATALOG_H
#define MOE_CHECKPOINTS_CATALOG_H

#include "base/text.h"
#include "checkpoints/box.h"

enum { MOE_CHECKPOINT_FORMAT = 1, MOE_FILE_NAME = 24, MOE_SET_NAME = MOE_SLOT_NAME + 32 };
#define MOE_INDEX_FILE "index.h5"

/* Groups of tensors, in files and messages by their names. */
enum moe_store { MOE_STORE_WEIGHT, MOE_STORE_EXP_AVG, MOE_STORE_EXP_AVG_SQ, MOE_STORES };
const char *moe_store_name(enum moe_store store); /* "weights", "exp_avg", "exp_avg_sq" */

/* A box of a tensor that lies whole in one dataset of one data file. */
struct moe_slice {
  int32_t file;           /* into moe_catalog.file */
  char set[MOE_SET_NAME]; /* path of the dataset: "/weights/NAME@0" */
  struct moe_box box;
  uint64_t offset; /* of its values in the file, bytes */
  uint64_t digest; /* of the box */
};

struct moe_stored {
  enum moe_store store;
  char name[MOE_SLOT_NAME];
  int32_t dims;
  int64_t dim[MOE_SLOT_DIMS];
  uint64_t digest; /* of the whole tensor */
  struct moe_slice *slice;
  int32_t slices, room;
};

struct moe_header {
  int64_t step, cursor;
  uint64_t seed;
  int32_t tp, cp, dp, pp, etp, ep, edp, chunks;
  char *order, *dtype, *model; /* owned; model: JSON */
  char *meta;                  /* owned; NULL when none was given */
  char *writer;                /* owned; version of the library that wrote it */
};

struct moe_data_file {
  char name[MOE_FILE_NAME];
  uint64_t bytes;
};

struct moe_catalog {
  moe_ctx *ctx;
  struct moe_header header;
  struct moe_data_file *file;
  int32_t files;
  struct moe_stored *tensor; /* sorted by (store, name) after moe_catalog_sort */
  int64_t tensors, room;
};

void moe_catalog_init(moe_ctx *ctx, struct moe_catalog *out);
void moe_catalog_destroy(struct moe_catalog *catalog);
/* "rank-00003.h5" */
void moe_catalog_file_name(int32_t rank, char name[MOE_FILE_NAME]);
/* Makes room for n data files, named by rank, bytes 0. */
moe_status moe_catalog_set_files(struct moe_catalog *catalog, int32_t n);
/* Appends a tensor without slices; *out is valid until the next addition. */
moe_status moe_catalog_add(struct moe_catalog *catalog, enum moe_store store, const char *name,
                           int32_t dims, const int64_t *dim, struct moe_stored **out);
moe_status moe_catalog_add_slice(struct moe_catalog *catalog, struct moe_stored *tensor,
                                 const struct moe_slice *slice);
/* By binary search in a sorted catalog; NULL when there is none. */
struct moe_stored *moe_catalog_find(const struct moe_catalog *catalog, enum moe_store store,
                                    const char *name);
void moe_catalog_sort(struct moe_catalog *catalog);
/* Sorts, and makes one tensor of those with the same name, its slices in order of their places.
 * MOE_FORMAT when their shapes differ. */
moe_status moe_catalog_merge(struct moe_catalog *catalog, const char *folder);
/* Adds a line for every tensor whose slices lie outside, overlap or leave something out. */
void moe_catalog_check(const struct moe_catalog *catalog, struct moe_text *errors);
/* MOE_FORMAT with what, the folder and the lines (at most 40 of them), MOE_OK when there is none.
 */
moe_status moe_catalog_verdict(moe_ctx *ctx, struct moe_text *errors, const char *what,
                               const char *folder);

#endif
