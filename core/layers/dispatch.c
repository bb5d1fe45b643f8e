#include "layers/dispatch_part.h"

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
  plan->sent = plan->rows = n;
  MOE_GET(run->saved, plan->row, t * d->topk);
  MOE_GET(run->saved, plan->token, n);
  MOE_GET(run->saved, plan->slot, n);
  MOE_GET(run->saved, plan->offset, d->experts + 1);
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
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  run->k->route(run->stream, &route);
  plan->ranges = (struct moe_groups_rows){plan->offset, plan->offset};
  moe_status status = moe_dispatch_travels(d) ? moe_dispatch_splits(d, run, plan) : MOE_OK;
  if (status == MOE_OK) {
    plan->prob = moe_arena_get(run->saved, (size_t)plan->rows * sizeof *plan->prob);
    if (plan->prob == NULL) status = MOE_INTERNAL;
  }
  moe_trace_end(run->trace);
  return status;
}

/* rows (sent, H) of x in the order of sending. */
static void gather(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                   struct moe_mat x, struct moe_mat rows) {
  const struct moe_gather_args args = {.x = x, .out = rows, .token = plan->token};
  run->k->gather(run->stream, &args);
}

static void combine(const struct moe_dispatch *d, const struct moe_run *run,
                    const struct moe_dispatch_plan *plan, struct moe_mat rows, struct moe_mat base,
                    struct moe_mat y) {
  const struct moe_combine_args args = {
      .rows = rows, .base = base, .y = y, .row = plan->row, .topk = d->topk};
  run->k->combine(run->stream, &args);
}

/* Between (T, K) and (sent). */
static void probs(const struct moe_dispatch *d, const struct moe_run *run,
                  const struct moe_dispatch_plan *plan, bool to_rows, const float *in, float *out) {
  const struct moe_prob_rows_args args = {.to_rows = to_rows,
                                          .tokens = run->tokens,
                                          .topk = d->topk,
                                          .n_rows = plan->sent,
                                          .row = plan->row,
                                          .token = plan->token,
                                          .slot = plan->slot,
                                          .in = in,
                                          .out = out};
  run->k->prob_rows(run->stream, &args);
}

static moe_status start(const struct moe_dispatch *d, const struct moe_run *run,
                        struct moe_dispatch_plan *plan, struct moe_mat x, const float *prob,
                        struct moe_dispatch_flight *flight) {
  if (!moe_dispatch_travels(d)) {
    probs(d, run, plan, true, prob, plan->prob);
    return MOE_OK;
  }
  struct moe_mat send;
  float *send_prob;
  MOE_TRY(moe_mat_get(run->saved, x.dtype, plan->rows, x.cols, &plan->x));
  flight->arrived = plan->x;
  flight->arrived_prob = plan->prob;
  if (moe_dispatch_sorts(d)) {
    MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->rows, x.cols, &flight->arrived));
    MOE_GET(run->scratch, flight->arrived_prob, plan->rows);
  }
  MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->sent, x.cols, &send));
  MOE_GET(run->scratch, send_prob, plan->sent);
  gather(run, plan, x, send);
  probs(d, run, plan, true, prob, send_prob);
  MOE_TRY(moe_to_experts_start(run, plan, send, flight->arrived, &flight->rows));
  return moe_to_experts_start(run, plan, moe_column(send_prob, plan->sent),
                              moe_column(flight->arrived_prob, plan->rows), &flight->prob);
}

moe_status moe_dispatch_start(const struct moe_dispatch *d, const struct moe_run *run,
                              struct moe_dispatch_plan *plan, struct moe_mat x, const float *prob,
                              struct moe_dispatch_flight *flight) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = start(d, run, plan, x, prob, flight);
  moe_trace_end(run->trace);
  return status;
}

static moe_status finish(const struct moe_dispatch *d, const struct moe_run *run,
                         struct moe_dispatch_plan *plan, struct moe_mat x,
                         struct moe_dispatch_flight *flight, struct moe_mat *rows) {
  if (!moe_dispatch_travels(d)) {
    MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->rows, x.cols, rows));
    gather(run, plan, x, *rows);
    return MOE_OK;
  }
  *rows = plan->x;
  MOE_TRY(moe_to_experts_finish(d, run, plan, flight->arrived, &flight->rows, plan->x));
  return moe_to_experts_finish(d, run, plan, moe_column(flight->arrived_prob, plan->rows),
                               &flight->prob, moe_column(plan->prob, plan->rows));
}

moe_status moe_dispatch_finish(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_plan *plan, struct moe_mat x,
                               struct moe_dispatch_flight *flight, struct moe_mat *rows) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = finish(d, run, plan, x, flight, rows);
  moe_trace_end(run->trace);
  return status;
}

moe_status moe_dispatch_again(const struct moe_dispatch *d, const struct moe_run *run,
                              const struct moe_dispatch_plan *plan, struct moe_mat x,
                              struct moe_mat *rows) {
  *rows = plan->x;
  if (moe_dispatch_travels(d)) return MOE_OK;
  MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->rows, x.cols, rows));
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  gather(run, plan, x, *rows);
  moe_trace_end(run->trace);
  return MOE_OK;
}

static moe_status back_start(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, struct moe_mat dy,
                             struct moe_dispatch_flight *flight) {
  struct moe_mat send;
  if (!moe_dispatch_travels(d)) return MOE_OK;
  MOE_TRY(moe_mat_get(run->scratch, dy.dtype, plan->rows, dy.cols, &flight->arrived));
  MOE_TRY(moe_mat_get(run->scratch, dy.dtype, plan->sent, dy.cols, &send));
  gather(run, plan, dy, send);
  return moe_to_experts_start(run, plan, send, flight->arrived, &flight->rows);
}

moe_status moe_combine_back_start(const struct moe_dispatch *d, const struct moe_run *run,
                                  const struct moe_dispatch_plan *plan, struct moe_mat dy,
                                  struct moe_dispatch_flight *flight) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = back_start(d, run, plan, dy, flight);
  moe_trace_end(run->trace);
  return status;
}

static moe_status back_finish(const struct moe_dispatch *d, const struct moe_run *run,
                              const struct moe_dispatch_plan *plan, struct moe_mat dy,
                              struct moe_dispatch_flight *flight, struct moe_mat *drows) {
  if (moe_dispatch_travels(d) && !moe_dispatch_sorts(d)) {
    *drows = flight->arrived;
    return moe_to_experts_finish(d, run, plan, flight->arrived, &flight->rows, *drows);
  }
  MOE_TRY(moe_mat_get(run->scratch, dy.dtype, plan->rows, dy.cols, drows));
  if (moe_dispatch_travels(d))
    return moe_to_experts_finish(d, run, plan, flight->arrived, &flight->rows, *drows);
  gather(run, plan, dy, *drows);
  return MOE_OK;
}

moe_status moe_combine_back_finish(const struct moe_dispatch *d, const struct moe_run *run,
                                   const struct moe_dispatch_plan *plan, struct moe_mat dy,
                                   struct moe_dispatch_flight *flight, struct moe_mat *drows) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = back_finish(d, run, plan, dy, flight, drows);
  moe_trace_end(run->trace);
  return status;
}

static moe_status rows_home(const struct moe_dispatch *d, const struct moe_run *run,
                            const struct moe_dispatch_plan *plan, struct moe_mat rows,
                            struct moe_mat base, struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat home = rows;
  if (moe_dispatch_travels(d)) {
    MOE_TRY(moe_mat_get(run->scratch, rows.dtype, plan->sent, rows.cols, &home));
    MOE_TRY(moe_to_tokens(d, run, plan, rows, home));
  }
  combine(d, run, plan, home, base, y);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

static moe_status probs_home(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, float *dprob_rows,
                             float *dprob) {
  size_t mark = moe_arena_mark(run->scratch);
  float *home = dprob_rows;
  if (moe_dispatch_travels(d)) {
    MOE_GET(run->scratch, home, plan->sent);
    MOE_TRY(moe_to_tokens(d, run, plan, moe_column(dprob_rows, plan->rows),
                          moe_column(home, plan->sent)));
  }
  probs(d, run, plan, false, home, dprob);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_combine(const struct moe_dispatch *d, const struct moe_run *run,
                       const struct moe_dispatch_plan *plan, struct moe_mat rows,
                       struct moe_mat base, struct moe_mat y) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = rows_home(d, run, plan, rows, base, y);
  moe_trace_end(run->trace);
  return status;
}

moe_status moe_dispatch_back(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, struct moe_mat drows,
                             float *dprob_rows, struct moe_mat base, struct moe_mat dx,
                             float *dprob) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = rows_home(d, run, plan, drows, base, dx);
  if (status == MOE_OK) status = probs_home(d, run, plan, dprob_rows, dprob);
  moe_trace_end(run->trace);
  return status;
}
