/* A model on this rank: the blocks of its chunks of the pipeline, embedding and head where they
 * belong, all parameters declared into packs. Owns no parameter memory: moe_model_bind ties it to
 * some. Blocks have local numbers, chunk after chunk; with one rank there is one chunk. */
#ifndef MOE_TRAIN_MODEL_H
#define MOE_TRAIN_MODEL_H

#include "layers/block.h"
#include "layers/head.h"
#include "moelua/train.h"
#include "pipe/exec.h"

struct moe_chunk {
  int32_t first, blocks; /* local numbers */
  bool embed, head;      /* begins with the embedding, ends with the head */
};

struct moe_model {
  moe_ctx *ctx;
  moe_model_config config; /* blocks: owned copy */
  moe_dtype dtype;
  struct moe_place place;
  int64_t micro_batch, seq;    /* of one forward pass on this rank */
  int64_t micros;              /* micro-batches of a step on this rank */
  struct moe_pipe_shape shape; /* of the pipeline: the same on all ranks */
  struct moe_chunk *chunk;     /* [shape.chunks] */
  int32_t blocks;              /* of this rank */
  int32_t *number;             /* of a local block in the whole model */
  bool has_embed, has_head;
  bool global_aux; /* some layer's aux loss, on any rank, spans the step: all forwards come first */
  struct moe_params params;
  struct moe_embed embed;
  struct moe_block *block;
  struct moe_head head;
  bool shares_embed; /* tied weights whose other copy is at the other end of the pipeline */
  int32_t (*first_slot)[MOE_FAMILIES]; /* slots before block b; entry `blocks`: before the head */
  struct moe_rope_table *rope;         /* distinct (theta, D) */
  int32_t ropes;
};

/* What one micro-batch of a chunk keeps from forward to backward. */
struct moe_model_saved {
  struct moe_mat x;              /* (T, H): input of the chunk's first block */
  struct moe_block_saved *block; /* blocks of them */
  struct moe_head_saved head;
};

/* The host's part of what is kept. destroy takes what create made, even in part. */
moe_status moe_model_saved_create(const struct moe_model *model, struct moe_model_saved *out);
void moe_model_saved_destroy(const struct moe_model *model, struct moe_model_saved *saved);

/* config must have passed moe_train_config_check. micros: micro-batches a rank runs per step. */
moe_status moe_model_create(moe_ctx *ctx, const moe_train_config *config, struct moe_place place,
                            struct moe_model **out);
void moe_model_destroy(struct moe_model *model);

/* Parameters and buffers of all families, in one numbering; NULL where there is none. */
const struct moe_slot *moe_model_slot(const struct moe_model *model, int64_t index);
int64_t moe_model_slots(const struct moe_model *model);
/* The slot `index` as the public interface tells of it. */
moe_status moe_model_param_info(const struct moe_model *model, int64_t index, moe_param_info *out);

/* Ties parameters to memory and takes what the model itself keeps on the device: prepared weights
 * and rotary tables from `prepared`, statistics from `stats`. Measuring arenas are fine. */
moe_status moe_model_bind(struct moe_model *model, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared,
                          struct moe_arena *stats);
/* Uploads the rotary tables (after bind to real memory). */
moe_status moe_model_upload(struct moe_model *model, const struct moe_run *run);
/* Once after every change of the weights. */
void moe_model_prepare(const struct moe_model *model, const struct moe_run *run);

/* The pipeline of a config: its lists are a function of this alone. */
struct moe_pipe_shape moe_model_pipe_shape(const moe_train_config *config,
                                           const struct moe_layout *layout);

/* The blocks of a chunk. token: (rows) device. x (T, H): input of a chunk without the embedding,
 * kept by the caller until backward. y (T, H): the output; without the head it is where y->p says,
 * with it in run->saved. */
moe_status moe_model_hidden(const struct moe_model *model, const struct moe_run *run, int32_t chunk,
                            const int32_t *token, struct moe_mat x, struct moe_model_saved *saved,
                            struct moe_mat *y);
/* The same, and the head: adds cross entropy to *loss_sum (device, double). label: (rows). */
moe_status moe_model_forward(const struct moe_model *model, const struct moe_run *run,
                             int32_t chunk, const int32_t *token, const int32_t *label,
                             double *loss_sum, struct moe_mat x, struct moe_model_saved *saved,
                             struct moe_mat y);
/* d (T, H): gradient of the output on entry (with the head: nothing), of the input on return. A
 * chunk with both ends needs none. */
moe_status moe_model_backward(const struct moe_model *model, const struct moe_run *run,
                              int32_t chunk, const int32_t *token, struct moe_model_saved *saved,
                              struct moe_mat d);

/* Bytes a rank needs beside the packs, and FLOPs of a step on it, by a dry run of the layers as
 * rank `rank` of the layout, with a recording world: nobody plays the others. Where routing decides
 * how many rows a rank gets, `even` takes an even load (what a step usually needs, and its FLOPs),
 * else the most there can be (what must be reserved). */
struct moe_model_size {
  size_t prepared, stats;
  size_t saved;    /* one micro-batch of the chunk that takes most */
  size_t transfer; /* one activation between stages; 0: there is one stage */
  size_t again, scratch;
  double flops[MOE_TRACE_PARTS]; /* one micro-batch of all chunks, forward and backward */
};
moe_status moe_model_measure(struct moe_model *model, const struct moe_kernels *real,
                             const struct moe_layout *layout, int32_t rank, bool even,
                             struct moe_model_size *out);

#endif
