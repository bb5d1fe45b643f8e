#include "layers/moe.h"

#include "layers/param.h"

moe_status moe_layer_params(struct moe_layer *m, const moe_model_config *model,
                            const moe_block_config *block, struct moe_place place,
                            const char *prefix, struct moe_params *params) {
  MOE_TRY(moe_router_params(&m->router, model, block, prefix, params));
  MOE_TRY(moe_experts_params(&m->experts, model, block, place, prefix, params));
  if (block->shared_ffn == 0) return MOE_OK;
  MOE_TRY(
      moe_ffn_params(&m->shared, model, block->shared_ffn, place, prefix, "moe.shared", params));
  if (!block->shared_gate) return MOE_OK;
  const int64_t dim[2] = {1, model->hidden};
  struct moe_slot slot = moe_slot_make(prefix, "moe.shared.gate", 2, dim);
  slot.init_std = (float)model->init_std;
  slot.replicated = true;
  return moe_param_declare(params, &slot, &m->gate.w);
}

void moe_layer_init(struct moe_layer *m, const moe_model_config *model,
                    const moe_block_config *block, const moe_dispatch_config *dispatch,
                    struct moe_place place, moe_dtype dtype, int64_t rows_hint) {
  moe_router_init(&m->router, model, block, rows_hint);
  m->dispatch = moe_dispatch_make(dispatch, block->experts, block->topk, place);
  /* An expert here has the rows of all the ranks folded into its group. */
  int64_t rows = moe_dispatch_rows(&m->dispatch, rows_hint) * place.etp.size * place.ep.size;
  moe_experts_init(&m->experts, model, block, place, dtype, moe_div_up(rows, block->experts));
  m->has_shared = block->shared_ffn > 0;
  m->has_gate = m->has_shared && block->shared_gate;
  if (m->has_shared)
    moe_ffn_init(&m->shared, MOE_PART_SHARED, model->hidden, block->shared_ffn, place, dtype,
                 rows_hint);
  if (m->has_gate)
    moe_linear_init(&m->gate, MOE_PART_SHARED, MOE_F32, 1, 1, model->hidden, rows_hint);
}

moe_status moe_layer_bind(struct moe_layer *m, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared) {
  MOE_TRY(moe_linear_bind(&m->router.gate, k, memory, prepared));
  MOE_TRY(moe_experts_bind(&m->experts, k, memory, prepared));
  if (m->has_shared) MOE_TRY(moe_ffn_bind(&m->shared, k, memory, prepared));
  if (m->has_gate) MOE_TRY(moe_linear_bind(&m->gate, k, memory, prepared));
  return MOE_OK;
}

void moe_layer_prepare(const struct moe_layer *m, const struct moe_run *run) {
  moe_linear_prepare(&m->router.gate, run);
  moe_experts_prepare(&m->experts, run);
  if (m->has_shared) moe_ffn_prepare(&m->shared, run);
  if (m->has_gate) moe_linear_prepare(&m->gate, run);
}

/* y = res + [sigmoid(gate) *] shared(x). */
static moe_status shared_forward(const struct moe_layer *m, const struct moe_run *run,
                                 struct moe_mat x, struct moe_mat res,
                                 struct moe_layer_saved *saved, struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  if (!m->has_gate) {
    struct moe_mat s;
    MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, x.cols, &s));
    MOE_TRY(moe_ffn_forward(&m->shared, run, x, &saved->shared, s));
    moe_trace_begin(run->trace, MOE_PART_SHARED);
    run->k->add(run->stream, y, res, s);
    moe_trace_end(run->trace);
    moe_arena_reset(run->scratch, mark);
    return MOE_OK;
  }
  MOE_GET(run->saved, saved->gate_logit, x.rows);
  MOE_TRY(moe_mat_get(run->saved, run->dtype, x.rows, x.cols, &saved->shared_y));
  MOE_TRY(moe_ffn_forward(&m->shared, run, x, &saved->shared, saved->shared_y));
  moe_linear_forward(&m->gate, run, x, (struct moe_groups_rows){0},
                     moe_mat_of(saved->gate_logit, MOE_F32, x.rows, 1), false);
  const struct moe_gate_args args = {
      .logit = saved->gate_logit, .s = saved->shared_y, .base = res, .y = y};
  moe_trace_begin(run->trace, MOE_PART_SHARED);
  run->k->gate(run->stream, &args);
  moe_trace_end(run->trace);
  return MOE_OK;
}

/* dx = gradient through the shared expert. */
static moe_status shared_backward(const struct moe_layer *m, const struct moe_run *run,
                                  const struct moe_layer_saved *saved, struct moe_mat x,
                                  struct moe_mat dy, struct moe_mat dx) {
  if (!m->has_gate) return moe_ffn_backward(&m->shared, run, &saved->shared, x, dy, dx, false);
  const struct moe_groups_rows whole = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_gate_bwd_args args = {
      .dy = dy, .s = saved->shared_y, .logit = saved->gate_logit, .ds = saved->shared_y};
  MOE_GET(run->scratch, args.dlogit, x.rows);
  moe_trace_begin(run->trace, MOE_PART_SHARED);
  run->k->gate_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  struct moe_mat dlogit = moe_mat_of(args.dlogit, MOE_F32, x.rows, 1);
  moe_linear_backward_w(&m->gate, run, dlogit, x, whole);
  moe_linear_backward_x(&m->gate, run, dlogit, whole, dx, false);
  MOE_TRY(moe_ffn_backward(&m->shared, run, &saved->shared, x, args.ds, dx, true));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_layer_forward(const struct moe_layer *m, const struct moe_run *run, struct moe_mat x,
                             struct moe_mat res, struct moe_layer_saved *saved, struct moe_mat y) {
  struct moe_dispatch_plan *plan = &saved->plan;
  struct moe_dispatch_flight flight = {0};
  MOE_TRY(moe_router_forward(&m->router, run, &m->stats, x, &saved->router));
  const struct moe_dispatch_counts counts = {m->stats.dropped + run->micro,
                                             m->stats.kept + run->micro};
  MOE_TRY(moe_dispatch_plan_make(&m->dispatch, run, saved->router.index, saved->router.prob, counts,
                                 plan));
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat base = res, rows, out;
  MOE_TRY(moe_dispatch_start(&m->dispatch, run, plan, x, saved->router.prob, &flight));
  if (m->has_shared) { /* while rows travel */
    MOE_TRY(shared_forward(m, run, x, res, saved, y));
    base = y;
  }
  MOE_TRY(moe_dispatch_finish(&m->dispatch, run, plan, x, &flight, &rows));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, plan->rows, x.cols, &out));
  MOE_TRY(
      moe_experts_forward(&m->experts, run, rows, plan->prob, plan->ranges, &saved->experts, out));
  MOE_TRY(moe_combine(&m->dispatch, run, plan, out, base, y));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

/* dx = gradient through the shared expert, dispatch and experts; dprob (T, K). */
static moe_status experts_backward(const struct moe_layer *m, const struct moe_run *run,
                                   const struct moe_layer_saved *saved, struct moe_mat x,
                                   struct moe_mat dy, struct moe_mat dx, float *dprob) {
  const struct moe_dispatch_plan *plan = &saved->plan;
  struct moe_dispatch_flight flight = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat rows, d, base = {0};
  float *dprob_rows;
  MOE_TRY(moe_combine_back_start(&m->dispatch, run, plan, dy, &flight));
  if (m->has_shared) {
    MOE_TRY(shared_backward(m, run, saved, x, dy, dx));
    base = dx;
  }
  MOE_TRY(moe_combine_back_finish(&m->dispatch, run, plan, dy, &flight, &d));
  MOE_TRY(moe_dispatch_again(&m->dispatch, run, plan, x, &rows));
  MOE_GET(run->scratch, dprob_rows, plan->rows);
  MOE_TRY(moe_experts_backward(&m->experts, run, &saved->experts, rows, plan->prob, plan->ranges, d,
                               d, dprob_rows));
  MOE_TRY(moe_dispatch_back(&m->dispatch, run, plan, d, dprob_rows, base, dx, dprob));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_layer_backward(const struct moe_layer *m, const struct moe_run *run,
                              const struct moe_layer_saved *saved, struct moe_mat x,
                              struct moe_mat dy, struct moe_mat dx) {
  size_t mark = moe_arena_mark(run->scratch);
  float *dprob;
  MOE_GET(run->scratch, dprob, run->tokens * m->router.topk);
  MOE_TRY(experts_backward(m, run, saved, x, dy, dx, dprob));
  MOE_TRY(moe_router_backward(&m->router, run, &m->stats, &saved->router, x, dprob, dx));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
