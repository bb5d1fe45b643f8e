#include "layers/experts.h"

#include <math.h>

#include "layers/param.h"

moe_status moe_experts_params(struct moe_experts *x, const moe_model_config *model,
                              const moe_block_config *block, struct moe_place place,
                              const char *prefix, struct moe_params *params) {
  const int64_t in[4] = {block->experts, 2, block->ffn, model->hidden};
  const int64_t out[3] = {block->experts, model->hidden, block->ffn};
  struct moe_slot slot = moe_slot_make(prefix, "moe.experts.in", 4, in);
  slot.family = MOE_FAMILY_EXPERT;
  slot.init_std = (float)model->init_std;
  moe_slot_split(&slot, 0, place.ep);
  moe_slot_split(&slot, 2, place.etp);
  MOE_TRY(moe_param_declare(params, &slot, &x->in.w));
  slot = moe_slot_make(prefix, "moe.experts.out", 3, out);
  slot.family = MOE_FAMILY_EXPERT;
  slot.init_std = (float)(model->init_std / sqrt(2.0 * model->n_blocks));
  moe_slot_split(&slot, 0, place.ep);
  moe_slot_split(&slot, 2, place.etp);
  return moe_param_declare(params, &slot, &x->out.w);
}

void moe_experts_init(struct moe_experts *x, const moe_model_config *model,
                      const moe_block_config *block, struct moe_place place, moe_dtype dtype,
                      int64_t rows_hint) {
  int64_t local = moe_part_count(block->experts, place.ep);
  int64_t width = moe_part_count(block->ffn, place.etp);
  moe_linear_init(&x->in, MOE_PART_EXPERTS, dtype, local, 2 * width, model->hidden, rows_hint);
  moe_linear_init(&x->out, MOE_PART_EXPERTS, dtype, local, model->hidden, width, rows_hint);
}

moe_status moe_experts_bind(struct moe_experts *x, const struct moe_kernels *k,
                            const struct moe_param_memory *memory, struct moe_arena *prepared) {
  MOE_TRY(moe_linear_bind(&x->in, k, memory, prepared));
  return moe_linear_bind(&x->out, k, memory, prepared);
}

void moe_experts_prepare(const struct moe_experts *x, const struct moe_run *run) {
  moe_linear_prepare(&x->in, run);
  moe_linear_prepare(&x->out, run);
}

moe_status moe_experts_forward(const struct moe_experts *x, const struct moe_run *run,
                               struct moe_mat rows, const float *prob,
                               struct moe_groups_rows ranges, struct moe_experts_saved *saved,
                               struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_swiglu_args args = {.prob = prob};
  MOE_TRY(moe_mat_get(run->saved, run->dtype, rows.rows, x->in.weight.out, &saved->gu));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, rows.rows, x->out.weight.in, &args.h));
  args.gu = saved->gu;
  moe_linear_forward(&x->in, run, rows, ranges, saved->gu, false);
  moe_trace_begin(run->trace, MOE_PART_EXPERTS);
  run->k->swiglu(run->stream, &args);
  moe_trace_end(run->trace);
  moe_linear_forward(&x->out, run, args.h, ranges, y, false);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_experts_backward(const struct moe_experts *x, const struct moe_run *run,
                                const struct moe_experts_saved *saved, struct moe_mat rows,
                                const float *prob, struct moe_groups_rows ranges, struct moe_mat dy,
                                struct moe_mat drows, float *dprob) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_swiglu_bwd_args args = {
      .gu = saved->gu, .dgu = saved->gu, .prob = prob, .dprob = dprob};
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, rows.rows, x->out.weight.in, &args.dh));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, rows.rows, x->out.weight.in, &args.h));
  moe_linear_backward_x(&x->out, run, dy, ranges, args.dh, false);
  moe_trace_begin(run->trace, MOE_PART_EXPERTS);
  run->k->swiglu_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_linear_backward_w(&x->out, run, dy, args.h, ranges);
  moe_linear_backward_w(&x->in, run, args.dgu, rows, ranges);
  moe_linear_backward_x(&x->in, run, args.dgu, ranges, drows, false);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
