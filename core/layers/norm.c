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
