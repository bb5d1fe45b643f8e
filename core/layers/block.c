#include "layers/block.h"

#include "layers/param.h"

moe_status moe_block_params(struct moe_block *b, const moe_model_config *model,
                            const moe_block_config *block, struct moe_place place,
                            const char *prefix, struct moe_params *params) {
  MOE_TRY(moe_param_norm(params, prefix, "attn.norm", model->hidden, &b->attn_norm.w));
  MOE_TRY(moe_attn_params(&b->attn, model, block, place, prefix, params));
  MOE_TRY(moe_param_norm(params, prefix, "ffn.norm", model->hidden, &b->ffn_norm.w));
  if (block->ffn_kind == MOE_FFN_MOE)
    return moe_layer_params(&b->moe, model, block, place, prefix, params);
  return moe_ffn_params(&b->ffn, model, block->ffn, place, prefix, "ffn", params);
}

void moe_block_init(struct moe_block *b, const moe_model_config *model,
                    const moe_block_config *block, const moe_dispatch_config *dispatch,
                    struct moe_place place, moe_dtype dtype, int64_t rows_hint) {
  b->recompute = (moe_recompute)block->recompute;
  b->attn_norm.inner = b->ffn_norm.inner = 1;
  b->attn_norm.eps = b->ffn_norm.eps = (float)model->norm_eps;
  moe_attn_init(&b->attn, model, block, place, dtype, rows_hint);
  b->is_moe = block->ffn_kind == MOE_FFN_MOE;
  if (b->is_moe)
    moe_layer_init(&b->moe, model, block, dispatch, place, dtype, rows_hint);
  else
    moe_ffn_init(&b->ffn, MOE_PART_DENSE, model->hidden, block->ffn, place, dtype, rows_hint);
}

moe_status moe_block_bind(struct moe_block *b, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared) {
  MOE_TRY(moe_attn_bind(&b->attn, k, memory, prepared));
  return b->is_moe ? moe_layer_bind(&b->moe, k, memory, prepared)
                   : moe_ffn_bind(&b->ffn, k, memory, prepared);
}

void moe_block_prepare(const struct moe_block *b, const struct moe_run *run) {
  moe_attn_prepare(&b->attn, run);
  if (b->is_moe)
    moe_layer_prepare(&b->moe, run);
  else
    moe_ffn_prepare(&b->ffn, run);
}

/* h = x + attention(norm(x)), n2 = norm(h). n2 and rstd2 go behind h: they go with the ffn when
 * that is recomputed. */
static moe_status attn_half(const struct moe_block *b, const struct moe_run *run,
                            struct moe_block_saved *saved) {
  const struct moe_mat none = {0};
  int64_t t = saved->x.rows, h = saved->x.cols;
  MOE_TRY(moe_mat_get(run->saved, run->dtype, t, h, &saved->n1));
  MOE_TRY(moe_mat_get(run->saved, run->dtype, t, h, &saved->h));
  MOE_GET(run->saved, saved->rstd1, t);
  moe_norm_forward(&b->attn_norm, run, saved->x, none, none, saved->n1, saved->rstd1);
  /* saved->h holds the attention's output until the norm adds x to it, element by element. */
  return moe_attn_forward(&b->attn, run, saved->n1, &saved->attn, saved->h);
}

/* first: h still lacks x (fresh forward); else h is complete. */
static moe_status ffn_half(const struct moe_block *b, const struct moe_run *run, bool first,
                           struct moe_block_saved *saved, struct moe_mat y) {
  const struct moe_mat none = {0};
  int64_t t = saved->x.rows, h = saved->x.cols;
  MOE_TRY(moe_mat_get(run->saved, run->dtype, t, h, &saved->n2));
  MOE_GET(run->saved, saved->rstd2, t);
  moe_norm_forward(&b->ffn_norm, run, saved->h, first ? saved->x : none, first ? saved->h : none,
                   saved->n2, saved->rstd2);
  if (b->is_moe) return moe_layer_forward(&b->moe, run, saved->n2, saved->h, &saved->moe, y);
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat out;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, t, h, &out));
  MOE_TRY(moe_ffn_forward(&b->ffn, run, saved->n2, &saved->ffn, out));
  moe_trace_begin(run->trace, MOE_PART_DENSE);
  run->k->add(run->stream, y, saved->h, out);
  moe_trace_end(run->trace);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_block_forward(const struct moe_block *b, const struct moe_run *run, struct moe_mat x,
                             struct moe_block_saved *saved, struct moe_mat y) {
  saved->x = x;
  size_t all = moe_arena_mark(run->saved);
  MOE_TRY(attn_half(b, run, saved));
  size_t ffn = moe_arena_mark(run->saved);
  MOE_TRY(ffn_half(b, run, true, saved, y));
  if (run->recompute) return MOE_OK;
  if (b->recompute == MOE_RECOMPUTE_BLOCK) moe_arena_reset(run->saved, all);
  if (b->recompute == MOE_RECOMPUTE_FFN) moe_arena_reset(run->saved, ffn);
  return MOE_OK;
}

/* Computes again what forward gave back. The output goes to scratch and is not used. */
static moe_status recompute(const struct moe_block *b, const struct moe_run *run,
                            struct moe_block_saved *saved) {
  struct moe_run again = *run;
  again.saved = run->again;
  again.recompute = true;
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat y;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, saved->x.rows, saved->x.cols, &y));
  if (b->recompute == MOE_RECOMPUTE_BLOCK)
    MOE_TRY(moe_block_forward(b, &again, saved->x, saved, y));
  else
    MOE_TRY(ffn_half(b, &again, false, saved, y));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_block_backward(const struct moe_block *b, const struct moe_run *run,
                              struct moe_block_saved *saved, struct moe_mat d) {
  size_t mark = moe_arena_mark(run->scratch), again = moe_arena_mark(run->again);
  struct moe_mat dn;
  if (b->recompute != MOE_RECOMPUTE_NONE) MOE_TRY(recompute(b, run, saved));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, d.rows, d.cols, &dn));
  if (b->is_moe)
    MOE_TRY(moe_layer_backward(&b->moe, run, &saved->moe, saved->n2, d, dn));
  else
    MOE_TRY(moe_ffn_backward(&b->ffn, run, &saved->ffn, saved->n2, d, dn, false));
  moe_norm_backward(&b->ffn_norm, run, dn, saved->h, saved->rstd2, d, d);
  MOE_TRY(moe_attn_backward(&b->attn, run, &saved->attn, saved->n1, d, dn));
  moe_norm_backward(&b->attn_norm, run, dn, saved->x, saved->rstd1, d, d);
  moe_arena_reset(run->scratch, mark);
  moe_arena_reset(run->again, again);
  return MOE_OK;
}
