/* Checkpoints as files: looking at them, checking them and reading tensors, without a trainer.
 * Saving and loading a trainer: train.h. The format: checkpoints/FORMAT.md. */
#ifndef MOELUA_CHECKPOINT_H
#define MOELUA_CHECKPOINT_H

#include "moelua/ctx.h"

MOE_BEGIN

/* Path `dir/latest` points to; MOE_NOTFOUND when there is no `latest`. buffer gets at most bytes.
 */
MOE_API moe_status moe_checkpoint_latest(moe_ctx *ctx, const char *dir, char *buffer, size_t bytes);

typedef struct moe_checkpoint moe_checkpoint;

/* path: a checkpoint folder, or a folder with `latest`. Reads the index and looks at the sizes of
 * the data files. MOE_NOTFOUND: no checkpoint there; MOE_FORMAT: slices missing or overlapping,
 * files missing or of another size, an unknown version: all of it in the error text, a line each.
 */
MOE_API moe_status moe_checkpoint_open(moe_ctx *ctx, const char *path, moe_checkpoint **out);
MOE_API void moe_checkpoint_close(moe_checkpoint *checkpoint);

/* Strings live as long as the checkpoint is open. */
typedef struct moe_checkpoint_summary {
  size_t size;
  const char *path;     /* of the checkpoint folder */
  int64_t step, cursor; /* as in moe_trainer_state */
  uint64_t seed;
  int64_t tensors;                              /* weights, buffers and moments */
  int64_t params;                               /* elements of all weights and buffers */
  uint64_t bytes;                               /* of the data files */
  int32_t files;                                /* data files: one for each rank that saved */
  int32_t tp, cp, dp, pp, etp, ep, edp, chunks; /* layout it was saved from */
  const char *order;
  const char *dtype;      /* the run computed in: "f32" or "bf16". Tensors are always stored fp32 */
  const char *model_json; /* dimensions of the model */
  const char *meta_json;  /* as given to moe_trainer_save; NULL when none was */
  const char *writer;     /* version of the library that saved */
} moe_checkpoint_summary;
MOE_API moe_status moe_checkpoint_info(const moe_checkpoint *checkpoint,
                                       moe_checkpoint_summary *out);

typedef struct moe_checkpoint_tensor {
  size_t size;
  const char *group; /* "weights", "exp_avg" or "exp_avg_sq" */
  const char *name;  /* as moe_param_info.name; lives as long as the checkpoint is open */
  int32_t dims;
  int64_t dim[4];
  uint64_t digest; /* of the whole tensor, the same however it is sliced */
  int32_t slices;
} moe_checkpoint_tensor;
/* index: 0 .. tensors-1, sorted by group and name. */
MOE_API moe_status moe_checkpoint_tensor_info(const moe_checkpoint *checkpoint, int64_t index,
                                              moe_checkpoint_tensor *out);
/* Reads the box (start, count) of a tensor, row-major, n elements (the product of count). start and
 * count have as many entries as the tensor has dims; both NULL: the whole tensor. Digests of the
 * slices that are read are checked. */
MOE_API moe_status moe_checkpoint_read(moe_checkpoint *checkpoint, int64_t index,
                                       const int64_t *start, const int64_t *count, float *values,
                                       int64_t n);
/* Reads all data and recomputes all digests. MOE_FORMAT names every damaged slice and file. */
MOE_API moe_status moe_checkpoint_verify(moe_checkpoint *checkpoint);

MOE_END

#endif
