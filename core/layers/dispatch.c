#include "layers/dispatch.h"

#include <math.h>

int64_t moe_dispatch_capacity(const struct moe_dispatch *d, int64_t tokens) {
  if (d->capacity_factor <= 0) return 0;
  double c = ceil((double)tokens * (double)d->topk / (double)d->experts * d->capacity_factor);
  return c >= (double)tokens ? tokens : moe_max64(1, (int64_t)c);
}

int64_t moe_dispatch_rows(const struct moe_dispatch *d, int64_t tokens) {
  int64_t capacity = moe_dispatch_capacity(d, tokens), all = tokens * d->topk;
  if (d->capacity_factor <= 0) return all;
  return d->pad ? d->experts * capacity : moe_min64(all, d->experts * capacity);
}

moe_status moe_dispatch_plan_make(const struct moe_dispatch *d, const struct moe_run *run,
                                  const int32_t *index, const float *prob, int32_t *dropped,
                                  struct moe_dispatch_plan *plan) {
  int64_t t = run->tokens, n = moe_dispatch_rows(d, t);
  plan->rows = n;
  MOE_GET(run->saved, plan->row, t * d->topk);
  MOE_GET(run->saved, plan->token, n);
  MOE_GET(run->saved, plan->slot, n);
  MOE_GET(run->saved, plan->offset, d->experts + 1);
  MOE_GET(run->saved, plan->prob, n);
  const struct moe_route_args route = {.tokens = t,
                                       .experts = d->experts,
                                       .topk = d->topk,
                                       .capacity = moe_dispatch_capacity(d, t),
                                       .drop = d->drop,
                                       .pad = d->pad,
                                       .index = index,
                                       .prob = prob,
                                       .row = plan->row,
                                       .token = plan->token,
                                       .slot = plan->slot,
                                       .offset = plan->offset,
                                       .dropped = dropped,
                                       .rows_max = n};
  const struct moe_prob_rows_args rows = {.to_rows = true,
                                          .tokens = t,
                                          .topk = d->topk,
                                          .n_rows = n,
                                          .row = plan->row,
                                          .token = plan->token,
                                          .slot = plan->slot,
                                          .in = prob,
                                          .out = plan->prob};
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  run->k->route(run->stream, &route);
  run->k->prob_rows(run->stream, &rows);
  moe_trace_end(run->trace);
  return MOE_OK;
}

void moe_dispatch_forward(const struct moe_dispatch *d, const struct moe_run *run,
                          const struct moe_dispatch_plan *plan, struct moe_mat x,
                          struct moe_mat rows) {
  (void)d;
  const struct moe_gather_args args = {.x = x, .out = rows, .token = plan->token};
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  run->k->gather(run->stream, &args);
  moe_trace_end(run->trace);
}

void moe_combine_forward(const struct moe_dispatch *d, const struct moe_run *run,
                         const struct moe_dispatch_plan *plan, struct moe_mat rows,
                         struct moe_mat base, struct moe_mat y) {
  const struct moe_combine_args args = {
      .rows = rows, .base = base, .y = y, .row = plan->row, .topk = d->topk};
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  run->k->combine(run->stream, &args);
  moe_trace_end(run->trace);
}

void moe_dispatch_backward_prob(const struct moe_dispatch *d, const struct moe_run *run,
                                const struct moe_dispatch_plan *plan, const float *dprob_rows,
                                float *dprob) {
  const struct moe_prob_rows_args args = {.to_rows = false,
                                          .tokens = run->tokens,
                                          .topk = d->topk,
                                          .n_rows = plan->rows,
                                          .row = plan->row,
                                          .token = plan->token,
                                          .slot = plan->slot,
                                          .in = dprob_rows,
                                          .out = dprob};
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  run->k->prob_rows(run->stream, &args);
  moe_trace_end(run->trace);
}
