#include "layers/attn.h"

#include <math.h>

#include "layers/attn_cp.h"
#include "layers/param.h"
#include "layers/sequence.h"

void moe_rope_table_fill(const struct moe_rope_table *table, float *cos_t, float *sin_t) {
  int64_t half = table->head_dim / 2;
  for (int64_t p = 0; p < table->positions; p++) {
    for (int64_t i = 0; i < half; i++) {
      /* The frequency is rounded to fp32, as published models were trained with. */
      float freq = (float)pow(table->theta, -2.0 * (double)i / (double)table->head_dim);
      double angle = (double)p * (double)freq;
      cos_t[p * half + i] = (float)cos(angle);
      sin_t[p * half + i] = (float)sin(angle);
    }
  }
}

/* A slot of `heads` heads of q, k or v: rows split over tp; kv heads are copied where tp has more
 * ranks than there are of them. */
static struct moe_slot head_slot(const char *prefix, const char *suffix, int64_t heads,
                                 int64_t head_dim, int64_t hidden, struct moe_coord tp) {
  const int64_t dim[2] = {heads * head_dim, hidden};
  struct moe_slot slot = moe_slot_make(prefix, suffix, hidden ? 2 : 1, dim);
  int64_t mine = moe_max64(1, heads / tp.size);
  slot.count[0] = mine * head_dim;
  slot.start[0] = heads * tp.rank / tp.size * head_dim;
  slot.copies = (int32_t)(mine * tp.size / heads);
  return slot;
}

static moe_status declare_qkv(struct moe_attn *a, const moe_model_config *model,
                              const moe_block_config *block, struct moe_coord tp,
                              const char *prefix, struct moe_params *params) {
  const int64_t heads[3] = {block->heads, block->kv_heads, block->kv_heads};
  static const char *const weight[3] = {"attn.q", "attn.k", "attn.v"};
  static const char *const bias[3] = {"attn.q_bias", "attn.k_bias", "attn.v_bias"};
  struct moe_param piece;
  for (int i = 0; i < 3; i++) {
    struct moe_slot slot =
        head_slot(prefix, weight[i], heads[i], block->head_dim, model->hidden, tp);
    slot.init_std = (float)model->init_std;
    slot.join = i > 0;
    MOE_TRY(moe_param_declare(params, &slot, &piece));
    if (i == 0)
      a->qkv.w = piece;
    else
      a->qkv.w.elements += piece.elements;
  }
  if (!block->qkv_bias) return MOE_OK;
  for (int i = 0; i < 3; i++) {
    struct moe_slot slot = head_slot(prefix, bias[i], heads[i], block->head_dim, 0, tp);
    slot.init = MOE_INIT_ZEROS;
    slot.decay = MOE_DECAY_BIAS;
    slot.join = i > 0;
    MOE_TRY(moe_param_declare(params, &slot, &piece));
    if (i == 0)
      a->qkv.b = piece;
    else
      a->qkv.b.elements += piece.elements;
  }
  return MOE_OK;
}

/* Norm weights over all heads are split with the heads. */
static moe_status declare_qk_norm(struct moe_params *params, const moe_block_config *block,
                                  const char *prefix, const char *suffix, int64_t heads,
                                  struct moe_coord tp, struct moe_param *out) {
  if (block->qk_norm == MOE_QK_NORM_HEAD)
    return moe_param_norm(params, prefix, suffix, block->head_dim, out);
  struct moe_slot slot = head_slot(prefix, suffix, heads, block->head_dim, 0, tp);
  slot.init = MOE_INIT_ONES;
  slot.decay = MOE_DECAY_NORM;
  return moe_param_declare(params, &slot, out);
}

moe_status moe_attn_params(struct moe_attn *a, const moe_model_config *model,
                           const moe_block_config *block, struct moe_place place,
                           const char *prefix, struct moe_params *params) {
  MOE_TRY(declare_qkv(a, model, block, place.tp, prefix, params));
  if (block->qk_norm != MOE_QK_NORM_NONE) {
    MOE_TRY(declare_qk_norm(params, block, prefix, "attn.q_norm", block->heads, place.tp,
                            &a->q_norm.w));
    MOE_TRY(declare_qk_norm(params, block, prefix, "attn.k_norm", block->kv_heads, place.tp,
                            &a->k_norm.w));
  }
  const int64_t dim[2] = {model->hidden, (int64_t)block->heads * block->head_dim};
  struct moe_slot slot = moe_slot_make(prefix, "attn.o", 2, dim);
  slot.init_std = (float)(model->init_std / sqrt(2.0 * model->n_blocks));
  moe_slot_split(&slot, 1, place.tp);
  return moe_param_declare(params, &slot, &a->out.w);
}

void moe_attn_init(struct moe_attn *a, const moe_model_config *model, const moe_block_config *block,
                   struct moe_place place, moe_dtype dtype, int64_t rows_hint) {
  a->heads = moe_part_count(block->heads, place.tp);
  a->kv_heads = moe_max64(1, moe_part_count(block->kv_heads, place.tp));
  a->head_dim = block->head_dim;
  a->window = block->window;
  a->qk_norm = (moe_qk_norm)block->qk_norm;
  bool per_head = a->qk_norm == MOE_QK_NORM_HEAD;
  a->q_norm.eps = a->k_norm.eps = (float)model->norm_eps;
  a->q_norm.inner = per_head ? a->heads : 1;
  a->k_norm.inner = per_head ? a->kv_heads : 1;
  moe_linear_init(&a->qkv, MOE_PART_ATTN, dtype, 1, (a->heads + 2 * a->kv_heads) * a->head_dim,
                  model->hidden, rows_hint);
  moe_linear_init(&a->out, MOE_PART_ATTN, dtype, 1, model->hidden, a->heads * a->head_dim,
                  rows_hint);
}

moe_status moe_attn_bind(struct moe_attn *a, const struct moe_kernels *k,
                         const struct moe_param_memory *memory, struct moe_arena *prepared) {
  MOE_TRY(moe_linear_bind(&a->qkv, k, memory, prepared));
  return moe_linear_bind(&a->out, k, memory, prepared);
}

void moe_attn_prepare(const struct moe_attn *a, const struct moe_run *run) {
  moe_linear_prepare(&a->qkv, run);
  moe_linear_prepare(&a->out, run);
}

/* The three column ranges of a qkv matrix, or of its gradient. */
struct heads {
  struct moe_mat q, k, v;
};
static struct heads split(const struct moe_attn *a, struct moe_mat qkv) {
  int64_t d = a->head_dim;
  return (struct heads){moe_mat_cols(qkv, 0, a->heads * d),
                        moe_mat_cols(qkv, a->heads * d, a->kv_heads * d),
                        moe_mat_cols(qkv, (a->heads + a->kv_heads) * d, a->kv_heads * d)};
}

static void rotate(const struct moe_attn *a, const struct moe_run *run, struct moe_mat x,
                   int64_t heads, bool inverse) {
  const struct moe_rope_args args = {.x = x,
                                     .heads = heads,
                                     .head_dim = a->head_dim,
                                     .cos_t = a->rope->cos_t,
                                     .sin_t = a->rope->sin_t,
                                     .position = run->position,
                                     .inverse = inverse};
  run->k->rope(run->stream, &args);
}

static struct moe_attn_args attn_args(const struct moe_attn *a, const struct moe_run *run,
                                      const struct moe_attn_saved *saved) {
  struct heads h = split(a, saved->qkv);
  if (saved->qk.p) {
    h.q = moe_mat_cols(saved->qk, 0, h.q.cols);
    h.k = moe_mat_cols(saved->qk, h.q.cols, h.k.cols);
  }
  return (struct moe_attn_args){.q = h.q,
                                .k = h.k,
                                .v = h.v,
                                .o = saved->o,
                                .batch = run->batch,
                                .sq = run->seq,
                                .sk = run->seq,
                                .heads = a->heads,
                                .kv_heads = a->kv_heads,
                                .head_dim = a->head_dim,
                                .q_pos = run->position,
                                .k_pos = run->position,
                                .window = a->window,
                                .scale = (float)(1.0 / sqrt((double)a->head_dim)),
                                .lse = saved->lse};
}

/* Two products over the pairs a causal mask (and window) leaves: 2 * 2 * D per pair and head;
 * zig-zag gives every rank of cp the same. */
static double score_flops(const struct moe_attn *a, const struct moe_run *run) {
  double cp = run->place.cp.size, s = (double)run->seq * cp, w = (double)a->window;
  double pairs = a->window > 0 && w < s ? w * (w + 1) / 2 + (s - w) * w : s * (s + 1) / 2;
  return 4.0 * pairs / cp * (double)(run->batch * a->heads * a->head_dim);
}

static moe_status carve(const struct moe_attn *a, const struct moe_run *run,
                        struct moe_attn_saved *saved) {
  int64_t t = run->rows, d = a->head_dim;
  *saved = (struct moe_attn_saved){0};
  MOE_TRY(moe_mat_get(run->saved, run->dtype, t, a->qkv.weight.out, &saved->qkv));
  if (a->qk_norm != MOE_QK_NORM_NONE) {
    MOE_TRY(moe_mat_get(run->saved, run->dtype, t, (a->heads + a->kv_heads) * d, &saved->qk));
    MOE_GET(run->saved, saved->q_rstd, t * a->q_norm.inner);
    MOE_GET(run->saved, saved->k_rstd, t * a->k_norm.inner);
  }
  MOE_TRY(moe_mat_get(run->saved, run->dtype, t, a->heads * d, &saved->o));
  MOE_GET(run->saved, saved->lse, t * a->heads);
  return MOE_OK;
}

/* Norms of q or k before they are rotated: over each head, or over all heads, which tp splits. */
static moe_status norm_heads(const struct moe_attn *a, const struct moe_run *run,
                             const struct moe_norm *n, struct moe_mat x, struct moe_mat y,
                             float *rstd) {
  const struct moe_mat none = {0};
  if (a->qk_norm == MOE_QK_NORM_ALL && run->place.tp.size > 1)
    return moe_norm_split_forward(n, run, x, y, rstd);
  moe_norm_forward(n, run, x, none, none, y, rstd);
  return MOE_OK;
}

/* d: gradient of the normed, then of x. */
static moe_status norm_heads_backward(const struct moe_attn *a, const struct moe_run *run,
                                      const struct moe_norm *n, struct moe_mat d, struct moe_mat x,
                                      const float *rstd) {
  const struct moe_mat none = {0};
  if (a->qk_norm == MOE_QK_NORM_ALL && run->place.tp.size > 1)
    return moe_norm_split_backward(n, run, d, x, rstd, d);
  moe_norm_backward(n, run, d, x, rstd, none, d);
  return MOE_OK;
}

moe_status moe_attn_forward(const struct moe_attn *a, const struct moe_run *run, struct moe_mat x,
                            struct moe_attn_saved *saved, struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat full;
  MOE_TRY(carve(a, run, saved));
  MOE_TRY(moe_sequence_gather(run, x, &full));
  moe_linear_forward(&a->qkv, run, full, (struct moe_groups_rows){0}, saved->qkv, false);
  moe_arena_reset(run->scratch, mark);
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  struct heads raw = split(a, saved->qkv);
  struct moe_attn_args args = attn_args(a, run, saved);
  if (saved->qk.p) {
    MOE_TRY(norm_heads(a, run, &a->q_norm, raw.q, args.q, saved->q_rstd));
    MOE_TRY(norm_heads(a, run, &a->k_norm, raw.k, args.k, saved->k_rstd));
  }
  rotate(a, run, args.q, a->heads, false);
  rotate(a, run, args.k, a->kv_heads, false);
  moe_trace_end(run->trace);
  MOE_TRY(moe_attn_cp_forward(run, a->cp_kind, &args));
  moe_run_flops(run, MOE_PART_ATTN, score_flops(a, run));
  MOE_TRY(moe_sequence_part(run, y, &full));
  moe_linear_forward(&a->out, run, saved->o, (struct moe_groups_rows){0}, full, false);
  MOE_TRY(moe_sequence_scatter(run, full, y));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_attn_backward(const struct moe_attn *a, const struct moe_run *run,
                             const struct moe_attn_saved *saved, struct moe_mat x,
                             struct moe_mat dy, struct moe_mat dx) {
  const struct moe_groups_rows whole = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_attn_bwd_args args = {.fwd = attn_args(a, run, saved)};
  struct moe_mat dqkv, part;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, run->rows, a->heads * a->head_dim, &args.d_o));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, run->rows, a->qkv.weight.out, &dqkv));
  MOE_TRY(moe_sequence_gather(run, dy, &dy));
  MOE_TRY(moe_sequence_gather(run, x, &x));
  moe_linear_backward_w(&a->out, run, dy, saved->o, whole);
  moe_linear_backward_x(&a->out, run, dy, whole, args.d_o, false);
  struct heads d = split(a, dqkv), raw = split(a, saved->qkv);
  args.dq = d.q, args.dk = d.k, args.dv = d.v;
  MOE_TRY(moe_attn_cp_backward(run, a->cp_kind, &args));
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  rotate(a, run, d.q, a->heads, true);
  rotate(a, run, d.k, a->kv_heads, true);
  if (saved->qk.p) {
    MOE_TRY(norm_heads_backward(a, run, &a->q_norm, d.q, raw.q, saved->q_rstd));
    MOE_TRY(norm_heads_backward(a, run, &a->k_norm, d.k, raw.k, saved->k_rstd));
  }
  moe_trace_end(run->trace);
  moe_run_flops(run, MOE_PART_ATTN, 2 * score_flops(a, run));
  moe_linear_backward_w(&a->qkv, run, dqkv, x, whole);
  MOE_TRY(moe_sequence_part(run, dx, &part));
  moe_linear_backward_x(&a->qkv, run, dqkv, whole, part, false);
  MOE_TRY(moe_sequence_scatter(run, part, dx));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
