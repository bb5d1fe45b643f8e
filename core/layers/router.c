#include "layers/router.h"

#include "layers/param.h"

moe_status moe_router_params(struct moe_router *r, const moe_model_config *model,
                             const moe_block_config *block, const char *prefix,
                             struct moe_params *params) {
  const int64_t dim[2] = {block->experts, model->hidden};
  struct moe_slot slot = moe_slot_make(prefix, "moe.router", 2, dim);
  slot.init_std = (float)model->init_std;
  slot.replicated = true;
  MOE_TRY(moe_param_declare(params, &slot, &r->gate.w));
  if (!block->expert_bias) return MOE_OK;
  slot = moe_slot_make(prefix, "moe.router_bias", 1, dim);
  slot.init = MOE_INIT_ZEROS;
  slot.decay = MOE_DECAY_BIAS;
  slot.buffer = slot.replicated = true;
  return moe_param_declare(params, &slot, &r->bias);
}

void moe_router_init(struct moe_router *r, const moe_model_config *model,
                     const moe_block_config *block, int64_t rows_hint) {
  moe_linear_init(&r->gate, MOE_PART_ROUTER, MOE_F32, 1, block->experts, model->hidden, rows_hint);
  r->experts = block->experts;
  r->topk = block->topk;
  r->groups = block->groups;
  r->topk_groups = block->topk_groups;
  r->score = (moe_score_kind)block->score;
  r->renormalise = block->renormalise != 0;
  r->scale = (float)block->routed_scale;
  r->aux_coef = block->aux_coef;
  r->z_coef = block->z_coef;
  r->aux_scope = (moe_aux_scope)block->aux_scope;
}

/* Tokens of one scope of the aux loss: a micro-batch or sequence lies on all ranks of tp-cp. */
static double scope_tokens(const struct moe_router *r, const struct moe_run *run) {
  double tokens = (double)run->tokens * run->place.tp.size * run->place.cp.size;
  switch (r->aux_scope) {
    case MOE_AUX_SEQUENCE: return tokens / (double)run->batch;
    case MOE_AUX_GLOBAL: return run->global_tokens;
    case MOE_AUX_MICRO_BATCH: break;
  }
  return tokens;
}

bool moe_router_shares_counts(const struct moe_router *r) {
  return r->aux_coef != 0 && r->aux_scope != MOE_AUX_GLOBAL;
}

static struct moe_router_args forward_args(const struct moe_router *r, const struct moe_run *run,
                                           const struct moe_moe_stats *stats,
                                           const struct moe_router_saved *saved) {
  return (struct moe_router_args){
      .tokens = run->tokens,
      .experts = r->experts,
      .topk = r->topk,
      .score = r->score,
      .renormalise = r->renormalise,
      .groups = r->groups,
      .topk_groups = r->topk_groups,
      .scale = r->scale,
      .bias = moe_param_weight(run->memory, r->bias),
      .logits = saved->logits,
      .scores = saved->scores,
      .index = saved->index,
      .prob = saved->prob,
      .lse = saved->lse,
      .segment = r->aux_scope == MOE_AUX_SEQUENCE ? run->tokens / run->batch : run->tokens,
      .count = moe_stats_count(stats, run->micro),
      .prob_sum = moe_stats_prob_sum(stats, run->micro)};
}

/* The z-loss is about softmax(logits), which sigmoid scores do not tell. */
static bool keeps_logits(const struct moe_router *r) {
  return r->score == MOE_SCORE_SIGMOID && r->z_coef != 0;
}

moe_status moe_router_forward(const struct moe_router *r, const struct moe_run *run,
                              const struct moe_moe_stats *stats, struct moe_mat x,
                              struct moe_router_saved *saved) {
  int64_t t = run->tokens;
  MOE_GET(run->saved, saved->scores, t * r->experts);
  MOE_GET(run->saved, saved->index, t * r->topk);
  MOE_GET(run->saved, saved->prob, t * r->topk);
  MOE_GET(run->saved, saved->lse, t);
  saved->logits = NULL;
  if (keeps_logits(r)) MOE_GET(run->saved, saved->logits, t * r->experts);
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat logits = moe_mat_of(saved->logits, MOE_F32, t, r->experts);
  if (logits.p == NULL) MOE_TRY(moe_mat_get(run->scratch, MOE_F32, t, r->experts, &logits));
  moe_linear_forward(&r->gate, run, x, (struct moe_groups_rows){0}, logits, false);
  struct moe_router_args args = forward_args(r, run, stats, saved);
  args.logits = logits.p;
  moe_trace_begin(run->trace, MOE_PART_ROUTER);
  run->k->router(run->stream, &args);
  run->k->sumsq(run->stream, saved->lse, t, stats->z_sum + run->micro, false);
  moe_trace_end(run->trace);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_router_backward(const struct moe_router *r, const struct moe_run *run,
                               const struct moe_moe_stats *stats,
                               const struct moe_router_saved *saved, struct moe_mat x,
                               const float *dprob, struct moe_mat dx) {
  const struct moe_groups_rows whole = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat dlogits;
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, run->tokens, r->experts, &dlogits));
  struct moe_router_bwd_args args = {.fwd = forward_args(r, run, stats, saved),
                                     .dprob = dprob,
                                     .dlogits = dlogits.p,
                                     .z_weight = (float)(r->z_coef / run->global_tokens)};
  if (moe_router_shares_counts(r)) {
    moe_trace_begin(run->trace, MOE_PART_COMM);
    MOE_TRY(moe_all_reduce(run->groups->of[MOE_GROUP_TP_CP], run->stream, args.fwd.count,
                           stats->segments * r->experts, MOE_I32, MOE_SUM, NULL));
    moe_trace_end(run->trace);
  }
  if (r->aux_coef != 0) {
    double n = scope_tokens(r, run);
    args.aux_shared = r->aux_scope == MOE_AUX_GLOBAL;
    args.aux_count = args.aux_shared ? stats->total : args.fwd.count;
    args.aux_weight =
        (float)(r->aux_coef * (double)r->experts / ((double)r->topk * n * run->global_tokens));
  }
  moe_trace_begin(run->trace, MOE_PART_ROUTER);
  run->k->router_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_linear_backward_w(&r->gate, run, dlogits, x, whole);
  moe_linear_backward_x(&r->gate, run, dlogits, whole, dx, true);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

double moe_router_aux_loss(const struct moe_router *r, double count_prob, double tokens) {
  return r->aux_coef * (double)r->experts / ((double)r->topk * tokens * tokens) * count_prob;
}

double moe_router_z_loss(const struct moe_router *r, const double *z_sum, int64_t micros,
                         int64_t tokens) {
  double sum = 0;
  for (int64_t i = 0; i < micros; i++) sum += z_sum[i];
  return r->z_coef * sum / (double)(micros * tokens);
}
