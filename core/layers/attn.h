/* Grouped-query attention: one product for q, k and v, optional q/k norms, rotary embedding, tiled
 * causal attention, output product. */
#ifndef MOE_LAYERS_ATTN_H
#define MOE_LAYERS_ATTN_H

#include "layers/linear.h"
#include "layers/norm.h"

/* cos and sin of position * theta^(-2i/D): (positions, D/2) each, device. Shared by layers of the
 * same (theta, D). */
struct moe_rope_table {
  double theta;
  int64_t head_dim, positions;
  float *cos_t, *sin_t;
};
/* Fills host memory. */
void moe_rope_table_fill(const struct moe_rope_table *table, float *cos_t, float *sin_t);

struct moe_attn {
  int64_t heads, kv_heads, head_dim; /* local A, G; D */
  int64_t window;
  moe_qk_norm qk_norm;
  struct moe_linear qkv, out; /* ((A+2G)*D, H), (H, A*D) */
  struct moe_norm q_norm, k_norm;
  const struct moe_rope_table *rope;
  int32_t cp_kind; /* moe_cp_kind */
};

struct moe_attn_saved {
  struct moe_mat qkv; /* (T, (A+2G)*D), rotated where q and k are not normed */
  struct moe_mat qk;  /* (T, (A+G)*D), normed and rotated; p NULL without q/k norm */
  float *q_rstd, *k_rstd;
  struct moe_mat o; /* (T, A*D) */
  float *lse;
};

moe_status moe_attn_params(struct moe_attn *a, const moe_model_config *model,
                           const moe_block_config *block, struct moe_place place,
                           const char *prefix, struct moe_params *params);
void moe_attn_init(struct moe_attn *a, const moe_model_config *model, const moe_block_config *block,
                   struct moe_place place, moe_dtype dtype, int64_t rows_hint);
moe_status moe_attn_bind(struct moe_attn *a, const struct moe_kernels *k,
                         const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_attn_prepare(const struct moe_attn *a, const struct moe_run *run);
/* y (T, H) = attention(x). */
moe_status moe_attn_forward(const struct moe_attn *a, const struct moe_run *run, struct moe_mat x,
                            struct moe_attn_saved *saved, struct moe_mat y);
/* dx (T, H) from dy and x (the input of forward). */
moe_status moe_attn_backward(const struct moe_attn *a, const struct moe_run *run,
                             const struct moe_attn_saved *saved, struct moe_mat x,
                             struct moe_mat dy, struct moe_mat dx);

#endif
