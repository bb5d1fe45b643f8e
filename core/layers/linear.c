#include "layers/linear.h"

void moe_linear_init(struct moe_linear *l, moe_part part, moe_dtype dtype, int64_t groups,
                     int64_t out, int64_t in, int64_t rows_hint) {
  l->part = part;
  l->weight = (struct moe_weight){
      .groups = groups, .out = out, .in = in, .dtype = dtype, .rows_hint = rows_hint};
}

moe_status moe_linear_bind(struct moe_linear *l, const struct moe_kernels *k,
                           const struct moe_param_memory *memory, struct moe_arena *prepared) {
  l->weight.master = moe_param_weight(memory, l->w);
  size_t bytes = k->weight_bytes(&l->weight);
  l->weight.prepared = NULL;
  if (bytes > 0) {
    l->weight.prepared = moe_arena_get(prepared, bytes);
    if (l->weight.prepared == NULL) return MOE_INTERNAL;
  }
  return MOE_OK;
}

void moe_linear_prepare(const struct moe_linear *l, const struct moe_run *run) {
  if (l->weight.prepared) run->k->weight_prepare(run->stream, &l->weight);
}

static double product_flops(const struct moe_linear *l, int64_t rows) {
  return 2.0 * (double)rows * (double)l->weight.out * (double)l->weight.in;
}

void moe_linear_forward(const struct moe_linear *l, const struct moe_run *run, struct moe_mat x,
                        struct moe_groups_rows rows, struct moe_mat y, bool accumulate) {
  const struct moe_matmul_args args = {.x = x,
                                       .w = &l->weight,
                                       .rows = rows,
                                       .y = y,
                                       .bias = moe_param_weight(run->memory, l->b),
                                       .accumulate = accumulate};
  moe_trace_begin(run->trace, (int32_t)l->part);
  run->k->matmul(run->stream, &args);
  moe_trace_end(run->trace);
  moe_run_flops(run, l->part, product_flops(l, x.rows));
}

void moe_linear_backward_x(const struct moe_linear *l, const struct moe_run *run, struct moe_mat dy,
                           struct moe_groups_rows rows, struct moe_mat dx, bool accumulate) {
  const struct moe_matmul_args args = {
      .x = dy, .w = &l->weight, .rows = rows, .y = dx, .accumulate = accumulate};
  moe_trace_begin(run->trace, (int32_t)l->part);
  run->k->matmul_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_run_flops(run, l->part, product_flops(l, dy.rows));
}

void moe_linear_backward_w(const struct moe_linear *l, const struct moe_run *run, struct moe_mat dy,
                           struct moe_mat x, struct moe_groups_rows rows) {
  const struct moe_wgrad_args args = {.dy = dy,
                                      .x = x,
                                      .groups = l->weight.groups,
                                      .rows = rows,
                                      .dw = moe_param_grad(run->memory, l->w),
                                      .accumulate = moe_run_accumulates(run)};
  moe_trace_begin(run->trace, (int32_t)l->part);
  run->k->matmul_wgrad(run->stream, &args);
  if (l->b.elements) {
    const struct moe_bias_grad_args bias = {
        .dy = dy, .db = moe_param_grad(run->memory, l->b), .accumulate = moe_run_accumulates(run)};
    run->k->bias_grad(run->stream, &bias);
  }
  moe_trace_end(run->trace);
  moe_run_flops(run, l->part, product_flops(l, dy.rows));
}
