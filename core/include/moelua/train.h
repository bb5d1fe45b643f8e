/* The trainer: a model, its gradients and optimizer state on this rank, and one step of training.
 */
#ifndef MOELUA_TRAIN_H
#define MOELUA_TRAIN_H

#include "moelua/config.h"

MOE_BEGIN

typedef struct moe_trainer moe_trainer;

/* Parts of a step that are timed and counted on their own. X(NAME, "name") */
#define MOE_PART_MAP(X)         \
  X(EMBED, "embed")             \
  X(NORM, "norm")               \
  X(ATTN, "attention")          \
  X(ROUTER, "router")           \
  X(DISPATCH, "dispatch")       \
  X(EXPERTS, "experts")         \
  X(SHARED, "shared")           \
  X(DENSE, "dense ffn")         \
  X(HEAD, "head and loss")      \
  X(PREPARE, "prepare weights") \
  X(GRAD, "gradients")          \
  X(OPTIM, "optimizer")         \
  X(COMM, "exchange")
#define MOE_PART_ENUM(name, text) MOE_PART_##name,
typedef enum moe_part { MOE_PART_MAP(MOE_PART_ENUM) MOE_PART_COUNT } moe_part;
MOE_API const char *moe_part_name(int32_t part); /* static storage; "unknown" outside */

typedef struct moe_step_metrics {
  size_t size;
  int64_t step; /* steps done, this one included */
  double loss;  /* mean cross entropy over the unmasked tokens of the global batch, nats */
  double aux_loss, z_loss; /* sums over the layers, as added to the loss */
  double grad_norm, lr;
  int64_t tokens;          /* tokens of the global batch */
  int64_t loss_tokens;     /* of these, unmasked */
  double load_max;         /* largest expert load / mean load, over all MoE layers */
  int64_t routed, dropped; /* token-expert pairs, all layers: routed = kept + dropped */
  double seconds;          /* wall time of the step */
  double flops;            /* model FLOPs of the step: forward and backward, no recompute, causal
                              attention counted once; of this rank's share */
  double part_seconds[16]; /* by moe_part */
  double part_flops[16];
} moe_step_metrics;

/* Initialises weights from config.seed. Allocates everything the steady loop needs. Collective
 * over the layout's ranks. */
MOE_API moe_status moe_trainer_create(moe_ctx *ctx, const moe_train_config *config,
                                      moe_trainer **out);
MOE_API void moe_trainer_destroy(moe_trainer *trainer);

/* This rank's share of the global batch: sequences [*first, *first + *count), count being
 * global_batch/dp. Ranks that differ in tp, cp or pp only have the same share. */
MOE_API void moe_trainer_share(const moe_trainer *trainer, int64_t *first, int64_t *count);

/* One optimizer step over tokens_BS, labels_BS: this rank's share of the global batch, each
 * (global_batch/dp, S), labels < 0 are masked. Ranks of one share that are given different batches
 * get MOE_INVALID. Advances step and cursor (by global_batch).
 * A loss or gradient that is not finite: MOE_NUMERIC, and weights and step stay as they were. */
MOE_API moe_status moe_trainer_step(moe_trainer *trainer, const int32_t *tokens_BS,
                                    const int32_t *labels_BS, moe_step_metrics *out);
/* Forward and backward only, as step does (gradients readable afterwards), no update. */
MOE_API moe_status moe_trainer_gradients(moe_trainer *trainer, const int32_t *tokens_BS,
                                         const int32_t *labels_BS, moe_step_metrics *out);
/* Sum of cross entropy and number of unmasked tokens over `sequences` rows (any number).
 * Collective: all ranks are given the same rows, each dp coordinate does a part of them, and all
 * get the same result. */
MOE_API moe_status moe_trainer_eval(moe_trainer *trainer, const int32_t *tokens_BS,
                                    const int32_t *labels_BS, int64_t sequences, double *loss_sum,
                                    int64_t *loss_tokens);
/* Logits, fp32, of one sequence of n <= S tokens: all != 0: (n, V), else of the last token (V).
 * Collective: all ranks are given the same tokens and get the same result. */
MOE_API moe_status moe_trainer_logits(moe_trainer *trainer, const int32_t *tokens, int32_t n,
                                      int32_t all, float *logits);

/* What a resume needs beside the tensors. */
typedef struct moe_trainer_state {
  size_t size;
  int64_t step;   /* optimizer steps done */
  int64_t cursor; /* global samples consumed */
  uint64_t seed;
} moe_trainer_state;
MOE_API moe_status moe_trainer_get_state(const moe_trainer *trainer, moe_trainer_state *out);
MOE_API moe_status moe_trainer_set_state(moe_trainer *trainer, const moe_trainer_state *state);

/* ---- parameters ---- */
typedef enum moe_tensor_kind {
  MOE_TENSOR_WEIGHT,
  MOE_TENSOR_GRAD,
  MOE_TENSOR_EXP_AVG,
  MOE_TENSOR_EXP_AVG_SQ
} moe_tensor_kind;

typedef struct moe_param_info {
  size_t size;
  const char *name; /* global name, e.g. "blocks.3.moe.experts.in"; lives as long as the trainer */
  int32_t dims;
  int64_t dim[4];             /* global shape */
  int64_t start[4], count[4]; /* this rank's slice */
  int32_t expert;             /* 1: lives in the MoE view */
} moe_param_info;

MOE_API int64_t moe_trainer_param_count(const moe_trainer *trainer);
MOE_API moe_status moe_trainer_param_info(const moe_trainer *trainer, int64_t index,
                                          moe_param_info *out);
/* MOE_NOTFOUND with the nearest name when there is none. */
MOE_API moe_status moe_trainer_param_find(const moe_trainer *trainer, const char *name,
                                          int64_t *index);
/* Copy this rank's slice, fp32, n elements (must be the product of count). Writing weights makes
 * the next step prepare them again. Router biases are parameters with expert == 0 and no gradient.
 * With optimizer.shard, moments and the summed gradient are divided among the ranks: readable and
 * writable where this rank holds all of its slice's, else MOE_UNSUPPORTED. */
MOE_API moe_status moe_trainer_param_read(moe_trainer *trainer, int64_t index, int32_t kind,
                                          float *values, int64_t n);
MOE_API moe_status moe_trainer_param_write(moe_trainer *trainer, int64_t index, int32_t kind,
                                           const float *values, int64_t n);

/* ---- checkpoints: HDF5, one file per rank and an index (checkpoints/FORMAT.md) ---- */
/* Writes dir/step-NNNNNNNN (temporary name, synced, checked, renamed), moves dir/latest last and
 * keeps the newest `keep` (0: all). Every rank stores what the ranks before it do not have, so all
 * must see the folder. meta_json: kept as is in the index (the recipe, the tokenizer's name), may
 * be NULL. Collective. */
MOE_API moe_status moe_trainer_save(moe_trainer *trainer, const char *dir, int32_t keep,
                                    const char *meta_json);
/* path: a checkpoint folder, or a folder with `latest`. Weights, moments, state, from whichever
 * layout saved them. A checkpoint of another model: MOE_FORMAT names every tensor and changes
 * nothing. Damaged data: MOE_FORMAT names the slices, the tensors are undefined then. Collective.
 * Looking at a checkpoint without a trainer: checkpoint.h. */
MOE_API moe_status moe_trainer_load(moe_trainer *trainer, const char *path);

/* ---- prediction: the same `bytes` functions the trainer allocates by ---- */
typedef struct moe_memory_report {
  size_t size;
  int64_t params_total, params_active; /* whole model; active: per token, both embeddings counted */
  int64_t params_local;                /* on the fullest device */
  uint64_t weights, gradients, optimizer, prepared; /* bytes on the fullest device */
  uint64_t saved; /* activations kept for backward, all micro-batches in flight */
  uint64_t scratch;
  uint64_t total;
  double flops_per_token; /* forward and backward, as in moe_step_metrics.flops */
} moe_memory_report;
/* For any legal layout, on any machine; allocates nothing of that size. */
MOE_API moe_status moe_plan_memory(moe_ctx *ctx, const moe_train_config *config,
                                   moe_memory_report *out);
typedef enum moe_traffic_part {
  MOE_TRAFFIC_STEP, /* all of one moe_trainer_step */
  MOE_TRAFFIC_MOE   /* of it, the MoE layers forward and backward: dispatch, combine, shared expert,
                       counts of the aux loss; not their gradients' sums */
} moe_traffic_part;
/* Bytes that rank `rank` of `world` (0: the fewest the layout allows) sends, as moe_ctx_traffic
 * counts them (comm.h: indices, n), from arithmetic alone, to the byte. Where routing decides sizes
 * (all-to-all without pad) it is for tokens that are spread evenly over the experts. part:
 * moe_traffic_part. Needs no other rank. */
MOE_API moe_status moe_plan_traffic(moe_ctx *ctx, const moe_train_config *config, int32_t world,
                                    int32_t rank, int32_t part, int64_t *bytes, int32_t n);
/* What rank `rank` of `world` (0: the fewest the layout allows) keeps of the model: the same
 * parameters that its trainer would have. Allocates nothing of that size, and needs no other rank.
 */
typedef struct moe_placement moe_placement;
MOE_API moe_status moe_placement_create(moe_ctx *ctx, const moe_train_config *config, int32_t world,
                                        int32_t rank, moe_placement **out);
MOE_API void moe_placement_destroy(moe_placement *placement);
MOE_API int64_t moe_placement_count(const moe_placement *placement);
/* Names live as long as the placement. */
MOE_API moe_status moe_placement_info(const moe_placement *placement, int64_t index,
                                      moe_param_info *out);
/* Physical memory of this machine that a process may use (cgroup limits included), bytes. */
MOE_API uint64_t moe_machine_memory(void);

/* ---- measurements ---- */
/* Highest FLOP/s of the matrix kernels here, all threads, dtype MOE_F32 or MOE_BF16; takes about
 * `seconds`. */
MOE_API moe_status moe_bench_peak(moe_ctx *ctx, int32_t dtype, double seconds, double *flops);

typedef struct moe_dispatch_bench {
  size_t size;
  int32_t tokens, hidden, experts, topk, dtype; /* of one rank; dtype: MOE_F32 or MOE_BF16 */
  /* filled in: medians, seconds */
  double permute_seconds;  /* rows to expert order and back, on this rank */
  double copy_seconds;     /* a plain copy of as many bytes */
  double dispatch_seconds; /* all of it with experts spread over all ranks; 0 on one rank */
  double exchange_seconds; /* the rows all-to-all there and back, and a plain copy a change of order
                            */
} moe_dispatch_bench;
/* The token dispatcher, dropless, experts spread over all ranks of the context. Collective. */
MOE_API moe_status moe_bench_dispatch(moe_ctx *ctx, moe_dispatch_bench *bench);

MOE_END

#endif
