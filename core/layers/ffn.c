#include "layers/ffn.h"

#include <math.h>
#include <stdio.h>

#include "layers/param.h"
#include "layers/sequence.h"

moe_status moe_ffn_params(struct moe_ffn *f, const moe_model_config *model, int64_t width,
                          struct moe_place place, const char *prefix, const char *name,
                          struct moe_params *params) {
  char suffix[32];
  const int64_t in[3] = {2, width, model->hidden}, out[2] = {model->hidden, width};
  snprintf(suffix, sizeof suffix, "%s.in", name);
  struct moe_slot slot = moe_slot_make(prefix, suffix, 3, in);
  slot.init_std = (float)model->init_std;
  moe_slot_split(&slot, 1, place.tp);
  MOE_TRY(moe_param_declare(params, &slot, &f->in.w));
  snprintf(suffix, sizeof suffix, "%s.out", name);
  slot = moe_slot_make(prefix, suffix, 2, out);
  slot.init_std = (float)(model->init_std / sqrt(2.0 * model->n_blocks));
  moe_slot_split(&slot, 1, place.tp);
  return moe_param_declare(params, &slot, &f->out.w);
}

void moe_ffn_init(struct moe_ffn *f, moe_part part, int64_t hidden, int64_t width,
                  struct moe_place place, moe_dtype dtype, int64_t rows_hint) {
  int64_t mine = moe_part_count(width, place.tp);
  moe_linear_init(&f->in, part, dtype, 1, 2 * mine, hidden, rows_hint);
  moe_linear_init(&f->out, part, dtype, 1, hidden, mine, rows_hint);
}

moe_status moe_ffn_bind(struct moe_ffn *f, const struct moe_kernels *k,
                        const struct moe_param_memory *memory, struct moe_arena *prepared) {
  MOE_TRY(moe_linear_bind(&f->in, k, memory, prepared));
  return moe_linear_bind(&f->out, k, memory, prepared);
}

void moe_ffn_prepare(const struct moe_ffn *f, const struct moe_run *run) {
  moe_linear_prepare(&f->in, run);
  moe_linear_prepare(&f->out, run);
}

moe_status moe_ffn_forward(const struct moe_ffn *f, const struct moe_run *run, struct moe_mat x,
                           struct moe_ffn_saved *saved, struct moe_mat y) {
  const struct moe_groups_rows whole = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_swiglu_args args = {0};
  struct moe_mat part;
  MOE_TRY(moe_sequence_gather(run, x, &x));
  MOE_TRY(moe_mat_get(run->saved, run->dtype, x.rows, f->in.weight.out, &saved->gu));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, f->out.weight.in, &args.h));
  args.gu = saved->gu;
  moe_linear_forward(&f->in, run, x, whole, saved->gu, false);
  moe_trace_begin(run->trace, (int32_t)f->in.part);
  run->k->swiglu(run->stream, &args);
  moe_trace_end(run->trace);
  MOE_TRY(moe_sequence_part(run, y, &part));
  moe_linear_forward(&f->out, run, args.h, whole, part, false);
  MOE_TRY(moe_sequence_scatter(run, part, y));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

/* dx [+]= gradient of the input; ranks of tp have a share of every row each. */
static moe_status input_gradient(const struct moe_ffn *f, const struct moe_run *run,
                                 struct moe_mat dgu, struct moe_mat dx, bool accumulate) {
  const struct moe_groups_rows whole = {0};
  struct moe_mat part, sum = dx;
  bool split = run->place.tp.size > 1;
  MOE_TRY(moe_sequence_part(run, dx, &part));
  moe_linear_backward_x(&f->in, run, dgu, whole, part, accumulate && !split);
  if (!split) return MOE_OK;
  if (accumulate) MOE_TRY(moe_mat_get(run->scratch, dx.dtype, dx.rows, dx.cols, &sum));
  MOE_TRY(moe_sequence_scatter(run, part, sum));
  if (!accumulate) return MOE_OK;
  moe_trace_begin(run->trace, (int32_t)f->in.part);
  run->k->add(run->stream, dx, dx, sum);
  moe_trace_end(run->trace);
  return MOE_OK;
}

moe_status moe_ffn_backward(const struct moe_ffn *f, const struct moe_run *run,
                            const struct moe_ffn_saved *saved, struct moe_mat x, struct moe_mat dy,
                            struct moe_mat dx, bool accumulate) {
  const struct moe_groups_rows whole = {0};
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_swiglu_bwd_args args = {.gu = saved->gu, .dgu = saved->gu};
  MOE_TRY(moe_sequence_gather(run, x, &x));
  MOE_TRY(moe_sequence_gather(run, dy, &dy));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, f->out.weight.in, &args.dh));
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, f->out.weight.in, &args.h));
  moe_linear_backward_x(&f->out, run, dy, whole, args.dh, false);
  moe_trace_begin(run->trace, (int32_t)f->in.part);
  run->k->swiglu_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_linear_backward_w(&f->out, run, dy, args.h, whole);
  moe_linear_backward_w(&f->in, run, args.dgu, x, whole);
  MOE_TRY(input_gradient(f, run, args.dgu, dx, accumulate));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
