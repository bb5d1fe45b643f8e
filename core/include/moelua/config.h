/* What is trained and how: plain structs a host fills in. Every struct begins with its size; the
 * _init functions set size and defaults. Whoever takes a config copies its strings and arrays. */
#ifndef MOELUA_CONFIG_H
#define MOELUA_CONFIG_H

#include "moelua/ctx.h"

MOE_BEGIN

typedef enum moe_dtype { MOE_F32, MOE_BF16, MOE_F16, MOE_F64, MOE_I32, MOE_I64, MOE_U8 } moe_dtype;

/* RMS norm of queries and keys before the rotary embedding: none, over each head's D (Qwen3), or
 * over all of q and all of k (OLMoE). */
typedef enum moe_qk_norm { MOE_QK_NORM_NONE, MOE_QK_NORM_HEAD, MOE_QK_NORM_ALL } moe_qk_norm;
typedef enum moe_ffn_kind { MOE_FFN_DENSE, MOE_FFN_MOE } moe_ffn_kind;
typedef enum moe_score_kind { MOE_SCORE_SOFTMAX, MOE_SCORE_SIGMOID } moe_score_kind;
typedef enum moe_aux_scope { MOE_AUX_MICRO_BATCH, MOE_AUX_SEQUENCE, MOE_AUX_GLOBAL } moe_aux_scope;
typedef enum moe_recompute {
  MOE_RECOMPUTE_NONE,
  MOE_RECOMPUTE_FFN,
  MOE_RECOMPUTE_BLOCK
} moe_recompute;

/* One transformer block: x += attention(norm(x)); x += ffn(norm(x)). */
typedef struct moe_block_config {
  size_t size;
  /* attention */
  int32_t heads, kv_heads, head_dim; /* A, G, D; A % G == 0; D even */
  int32_t qkv_bias;                  /* 0 or 1 */
  int32_t qk_norm;                   /* moe_qk_norm */
  int32_t window;                    /* tokens a query sees, itself included; 0: all before it */
  double rope_theta;
  /* ffn */
  int32_t ffn_kind; /* moe_ffn_kind */
  int32_t ffn;      /* F: width of the dense ffn, or of one expert (SwiGLU) */
  /* MoE only; semantics: core/layers/README.md, "Router" */
  int32_t experts, topk;       /* E, K */
  int32_t score;               /* moe_score_kind */
  int32_t renormalise;         /* divide the K probabilities by their sum */
  int32_t expert_bias;         /* sigmoid only: select by score + bias (aux-loss-free balancing) */
  int32_t groups, topk_groups; /* group-limited selection; 0 or 1 groups: off */
  double routed_scale;         /* multiplies the probabilities (sigmoid kind); 1 else */
  double bias_rate;            /* step of the expert bias per optimizer step */
  double aux_coef;             /* load-balancing loss, per layer; balanced routing gives aux_coef */
  int32_t aux_scope;           /* moe_aux_scope */
  double z_coef;               /* router z-loss */
  int32_t shared_ffn;          /* width of the shared expert; 0: none */
  int32_t shared_gate;         /* 1: sigmoid gate on the shared expert */
  int32_t recompute;           /* moe_recompute: what backward computes again instead of keeping */
} moe_block_config;

typedef struct moe_model_config {
  size_t size;
  int32_t vocab, hidden; /* V, H */
  int32_t max_positions; /* longest sequence */
  double norm_eps;
  int32_t tie_embeddings; /* output weights are the embedding */
  double init_std;        /* normal; projections into the residual: / sqrt(2 * blocks) */
  int32_t n_blocks;
  const moe_block_config *blocks; /* n_blocks of them */
} moe_model_config;

/* How attention sees keys that lie on other ranks of cp: blocks sent round a ring, gathered, or
 * exchanged for heads (heads/tp and kv_heads/tp must divide by cp). */
typedef enum moe_cp_kind { MOE_CP_RING, MOE_CP_ALLGATHER, MOE_CP_ALLTOALL } moe_cp_kind;

/* Degrees of both views; 0: follows from the others. order: leftmost axis has stride 1. */
typedef struct moe_layout_config {
  size_t size;
  int32_t tp, cp, dp, pp, etp, ep, edp;
  int32_t chunks;    /* virtual pipeline stages per rank */
  int32_t group;     /* with chunks: micro-batches a chunk runs before the next one; 0: pp */
  const char *order; /* NULL: "tp-cp-ep-dp-pp" */
  int32_t n_blocks;  /* 0: every virtual stage has as many blocks; else pp * chunks */
  const int32_t *blocks; /* how many each virtual stage has, in the model's order (stage chunk * pp
                            + rank); 0 is allowed */
  int32_t cp_kind;   /* moe_cp_kind */
} moe_layout_config;

typedef enum moe_dispatch_kind {
  MOE_DISPATCH_AUTO,
  MOE_DISPATCH_ALLTOALL,
  MOE_DISPATCH_ALLGATHER
} moe_dispatch_kind;
/* Over which tokens a capacity is counted and its rows are chosen: the rank's own, or those of all
 * ranks (tp-cp) that share the micro-batch's sequences, whose choices are gathered for it. */
typedef enum moe_capacity_scope { MOE_CAPACITY_LOCAL, MOE_CAPACITY_SEQUENCE } moe_capacity_scope;
typedef enum moe_drop_policy { MOE_DROP_PROBS, MOE_DROP_POSITION } moe_drop_policy;

typedef struct moe_dispatch_config {
  size_t size;
  int32_t kind;           /* moe_dispatch_kind */
  double capacity_factor; /* 0: dropless; else C = ceil(T*K/E * it) rows per expert, at most T */
  int32_t drop;           /* moe_drop_policy, with a capacity */
  int32_t pad;            /* 1: exactly C rows per expert (static shapes), with a capacity */
  int32_t capacity_scope; /* moe_capacity_scope; T above is the tokens of the scope */
} moe_dispatch_config;

typedef enum moe_lr_kind { MOE_LR_CONSTANT, MOE_LR_COSINE, MOE_LR_LINEAR, MOE_LR_WSD } moe_lr_kind;

/* Linear warm-up over `warmup` steps, then the kind's curve from peak to min at step `total`. */
typedef struct moe_lr_config {
  size_t size;
  int32_t kind; /* moe_lr_kind */
  double peak, min;
  int64_t warmup, total;
  int64_t decay; /* wsd: the last `decay` steps go linearly to min */
} moe_lr_config;

/* Classes of parameters that weight decay applies to: bits. */
typedef enum moe_decay_class {
  MOE_DECAY_MATRIX = 1,
  MOE_DECAY_EMBEDDING = 2,
  MOE_DECAY_NORM = 4,
  MOE_DECAY_BIAS = 8
} moe_decay_class;

typedef struct moe_optimizer_config {
  size_t size;
  moe_lr_config lr;
  double beta1, beta2, eps, weight_decay;
  int32_t decay; /* moe_decay_class bits; default MATRIX | EMBEDDING */
  double clip;   /* global gradient norm; 0: off */
  int32_t shard; /* ZeRO-1: optimizer state split over the data-parallel ranks */
} moe_optimizer_config;

typedef struct moe_train_config {
  size_t size;
  moe_model_config model;
  moe_layout_config layout;
  moe_dispatch_config dispatch;
  moe_optimizer_config optimizer;
  int32_t dtype;        /* MOE_F32 or MOE_BF16: compute; weights, gradients, moments are fp32 */
  int32_t seq;          /* S */
  int32_t micro_batch;  /* sequences of one forward pass on one rank */
  int32_t global_batch; /* sequences of one optimizer step, all ranks */
  uint64_t seed;
} moe_train_config;

MOE_API void moe_block_config_init(moe_block_config *block);
/* Sets size, defaults and no blocks. */
MOE_API void moe_train_config_init(moe_train_config *config);
/* Checks everything; all errors, one a line "field: text", go to the context's error text.
 * MOE_INVALID when there is any. world: number of ranks; 0: the fewest the layout allows. */
MOE_API moe_status moe_train_config_check(moe_ctx *ctx, const moe_train_config *config,
                                          int32_t world);

MOE_END

#endif
