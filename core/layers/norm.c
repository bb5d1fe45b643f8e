#include "layers/norm.h"

void moe_norm_forward(const struct moe_norm *n, const struct moe_run *run, struct moe_mat x,
                      struct moe_mat res, struct moe_mat sum, struct moe_mat y, float *rstd) {
  const struct moe_rmsnorm_args args = {.x = x,
                                        .y = y,
                                        .res = res,
                                        .sum = sum,
                                        .w = moe_param_weight(run->memory, n->w),
                                        .inner = n->inner,
                                        .eps = n->eps,
                                        .rstd = rstd};
  moe_trace_begin(run->trace, MOE_PART_NORM);
  run->k->rmsnorm(run->stream, &args);
  moe_trace_end(run->trace);
}

void moe_norm_backward(const struct moe_norm *n, const struct moe_run *run, struct moe_mat dy,
                       struct moe_mat x, const float *rstd, struct moe_mat dres,
                       struct moe_mat dx) {
  const struct moe_rmsnorm_bwd_args args = {.dy = dy,
                                            .x = x,
                                            .w = moe_param_weight(run->memory, n->w),
                                            .rstd = rstd,
                                            .inner = n->inner,
                                            .dx = dx,
                                            .dres = dres,
                                            .dw = moe_param_grad(run->memory, n->w),
                                            .dw_accumulate = moe_run_accumulates(run)};
  moe_trace_begin(run->trace, MOE_PART_NORM);
  run->k->rmsnorm_bwd(run->stream, &args);
  moe_trace_end(run->trace);
}

/* Sums of whole rows, (rows), in scratch. */
static moe_status row_sums(const struct moe_norm *n, const struct moe_run *run, struct moe_mat x,
                           struct moe_mat dy, float **out) {
  MOE_GET(run->scratch, *out, x.rows);
  const struct moe_rmsnorm_sum_args args = {
      .x = x, .dy = dy, .w = moe_param_weight(run->memory, n->w), .out = *out};
  run->k->rmsnorm_sum(run->stream, &args);
  return moe_all_reduce(run->groups->of[MOE_GROUP_TP], run->stream, *out, x.rows, MOE_F32, MOE_SUM,
                        NULL);
}

moe_status moe_norm_split_forward(const struct moe_norm *n, const struct moe_run *run,
                                  struct moe_mat x, struct moe_mat y, float *rstd) {
  size_t mark = moe_arena_mark(run->scratch);
  float *sums;
  MOE_TRY(row_sums(n, run, x, (struct moe_mat){0}, &sums));
  const struct moe_rmsnorm_args args = {.x = x,
                                        .y = y,
                                        .w = moe_param_weight(run->memory, n->w),
                                        .inner = 1,
                                        .eps = n->eps,
                                        .rstd = rstd,
                                        .row_sum = sums,
                                        .total = x.cols * run->place.tp.size};
  run->k->rmsnorm(run->stream, &args);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_norm_split_backward(const struct moe_norm *n, const struct moe_run *run,
                                   struct moe_mat dy, struct moe_mat x, const float *rstd,
                                   struct moe_mat dx) {
  size_t mark = moe_arena_mark(run->scratch);
  float *sums;
  MOE_TRY(row_sums(n, run, x, dy, &sums));
  const struct moe_rmsnorm_bwd_args args = {.dy = dy,
                                            .x = x,
                                            .w = moe_param_weight(run->memory, n->w),
                                            .rstd = rstd,
                                            .inner = 1,
                                            .dx = dx,
                                            .dw = moe_param_grad(run->memory, n->w),
                                            .dw_accumulate = moe_run_accumulates(run),
                                            .row_sum = sums,
                                            .total = x.cols * run->place.tp.size};
  run->k->rmsnorm_bwd(run->stream, &args);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
