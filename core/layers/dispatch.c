#include <math.h>

#include "layers/dispatch_part.h"

int64_t moe_dispatch_capacity(const struct moe_dispatch *d, int64_t tokens) {
  if (d->capacity_factor <= 0) return 0;
  double c = ceil((double)tokens * (double)d->topk / (double)d->experts * d->capacity_factor);
  return c >= (double)tokens ? tokens : moe_max64(1, (int64_t)c);
}

int64_t moe_dispatch_rows(const struct moe_dispatch *d, int64_t tokens) {
  int64_t capacity = moe_dispatch_capacity(d, tokens), all = tokens * d->topk;
  if (d->capacity_factor <= 0 || d->across) return all;
  return d->pad ? d->experts * capacity : moe_min64(all, d->experts * capacity);
}

moe_dispatch_kind moe_dispatch_pick(const struct moe_dispatch *d) {
  double k = (double)d->topk, f = d->capacity_factor, ep = d->ep.size, etp = d->etp.size;
  if (f > 0 && (d->pad || f < 1)) k *= f; /* rows of a token */
  double exchanged = k * ((ep - 1) / ep + etp - 1), gathered = ep * etp - 1;
  return gathered < exchanged ? MOE_DISPATCH_ALLGATHER : MOE_DISPATCH_ALLTOALL;
}

struct moe_dispatch moe_dispatch_make(const moe_dispatch_config *config, int64_t experts,
                                      int64_t topk, struct moe_place place) {
  struct moe_dispatch d = {.kind = (moe_dispatch_kind)config->kind,
                           .experts = experts,
                           .topk = topk,
                           .etp = place.etp,
                           .ep = place.ep,
                           .tp = place.tp,
                           .cp = place.cp,
                           .capacity_factor = config->capacity_factor,
                           .drop = (moe_drop_policy)config->drop,
                           .pad = config->pad != 0};
  d.across = d.capacity_factor > 0 && config->capacity_scope == MOE_CAPACITY_SEQUENCE &&
             place.tp.size * place.cp.size > 1;
  if (d.kind == MOE_DISPATCH_AUTO) d.kind = moe_dispatch_pick(&d);
  return d;
}

moe_status moe_plan_carve(const struct moe_run *run, struct moe_dispatch_plan *plan, int64_t topk,
                          int64_t sent, int64_t experts) {
  plan->sent = plan->rows = sent;
  MOE_GET(run->saved, plan->row, plan->tokens * topk);
  MOE_GET(run->saved, plan->token, sent);
  MOE_GET(run->saved, plan->slot, sent);
  MOE_GET(run->saved, plan->offset, experts + 1);
  return MOE_OK;
}

void moe_plan_probs(const struct moe_run *run, const struct moe_dispatch_plan *plan, int64_t topk,
                    bool to_rows, const float *in, float *out) {
  const struct moe_prob_rows_args args = {.to_rows = to_rows,
                                          .tokens = plan->tokens,
                                          .topk = topk,
                                          .n_rows = plan->sent,
                                          .row = plan->row,
                                          .token = plan->token,
                                          .slot = plan->slot,
                                          .in = in,
                                          .out = out};
  run->k->prob_rows(run->stream, &args);
}

/* My tokens' rows; index: what is left of their choices. */
static moe_status route(const struct moe_dispatch *d, const struct moe_run *run,
                        const int32_t *index, const float *prob, struct moe_dispatch_counts counts,
                        struct moe_dispatch_plan *plan) {
  int64_t t = run->tokens, n = moe_dispatch_rows(d, t);
  plan->tokens = t;
  MOE_TRY(moe_plan_carve(run, plan, d->topk, n, d->experts));
  struct moe_route_args args = {.tokens = t,
                                .experts = d->experts,
                                .topk = d->topk,
                                .capacity = d->across ? 0 : moe_dispatch_capacity(d, t),
                                .drop = d->drop,
                                .pad = d->pad,
                                .index = index,
                                .prob = prob,
                                .row = plan->row,
                                .token = plan->token,
                                .slot = plan->slot,
                                .offset = plan->offset,
                                .dropped = counts.dropped,
                                .kept = counts.kept,
                                .rows_max = n};
  if (d->across) MOE_GET(run->scratch, args.dropped, 1);
  run->k->route(run->stream, &args);
  plan->ranges = (struct moe_groups_rows){plan->offset, plan->offset};
  if (moe_dispatch_travels(d)) MOE_TRY(moe_dispatch_splits(d, run, plan));
  MOE_GET(run->saved, plan->prob, plan->rows);
  return MOE_OK;
}

static moe_status make(const struct moe_dispatch *d, const struct moe_run *run,
                       const int32_t *index, const float *prob, struct moe_dispatch_counts counts,
                       struct moe_dispatch_plan *plan) {
  size_t mark = moe_arena_mark(run->scratch);
  if (moe_dispatch_chooses(d)) {
    int32_t *left;
    MOE_GET(run->scratch, left, run->tokens * d->topk);
    MOE_TRY(moe_dispatch_choose(d, run, plan->host, index, prob, counts.dropped, left));
    index = left;
  } else if (moe_dispatch_gathers(d)) {
    run->k->fill(run->stream, counts.dropped, 0, sizeof *counts.dropped);
  }
  if (moe_dispatch_gathers(d))
    MOE_TRY(moe_gather_plan(d, run, index, prob, counts.kept, plan));
  else
    MOE_TRY(route(d, run, index, prob, counts, plan));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_dispatch_plan_make(const struct moe_dispatch *d, const struct moe_run *run,
                                  const int32_t *index, const float *prob,
                                  struct moe_dispatch_counts counts,
                                  struct moe_dispatch_plan *plan) {
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  moe_status status = make(d, run, index, prob, counts, plan);
  moe_trace_end(run->trace);
  return status;
}

/* rows (sent, H) of x (tokens, H). */
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

static moe_status start(const struct moe_dispatch *d, const struct moe_run *run,
                        struct moe_dispatch_plan *plan, struct moe_mat x, const float *prob,
                        struct moe_dispatch_flight *flight) {
  if (!moe_dispatch_travels(d)) {
    moe_plan_probs(run, plan, d->topk, true, prob, plan->prob);
    return MOE_OK;
  }
  if (moe_dispatch_gathers(d)) { /* the probabilities came with the choices */
    MOE_TRY(moe_mat_get(run->saved, x.dtype, plan->tokens, x.cols, &plan->x));
    return moe_gather_start(run, plan, x, plan->x, &flight->rows);
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
  moe_plan_probs(run, plan, d->topk, true, prob, send_prob);
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
  if (!moe_dispatch_exchanges(d)) {
    MOE_TRY_TRANSFER(run, moe_comm_wait(run->stream, &flight->rows));
    MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->rows, x.cols, rows));
    gather(run, plan, moe_dispatch_gathers(d) ? plan->x : x, *rows);
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
  if (moe_dispatch_exchanges(d)) return MOE_OK;
  MOE_TRY(moe_mat_get(run->scratch, x.dtype, plan->rows, x.cols, rows));
  moe_trace_begin(run->trace, MOE_PART_DISPATCH);
  gather(run, plan, moe_dispatch_gathers(d) ? plan->x : x, *rows);
  moe_trace_end(run->trace);
  return MOE_OK;
}

static moe_status back_start(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, struct moe_mat dy,
                             struct moe_dispatch_flight *flight) {
  struct moe_mat send;
  if (!moe_dispatch_travels(d)) return MOE_OK;
  if (moe_dispatch_gathers(d)) {
    MOE_TRY(moe_mat_get(run->scratch, dy.dtype, plan->tokens, dy.cols, &flight->arrived));
    return moe_gather_start(run, plan, dy, flight->arrived, &flight->rows);
  }
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
  *drows = flight->arrived;
  if (!moe_dispatch_exchanges(d) || moe_dispatch_sorts(d))
    MOE_TRY(moe_mat_get(run->scratch, dy.dtype, plan->rows, dy.cols, drows));
  if (moe_dispatch_exchanges(d))
    return moe_to_experts_finish(d, run, plan, flight->arrived, &flight->rows, *drows);
  MOE_TRY_TRANSFER(run, moe_comm_wait(run->stream, &flight->rows));
  gather(run, plan, moe_dispatch_gathers(d) ? flight->arrived : dy, *drows);
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

/* y (T, H) = base + my part of what all members computed. */
static moe_status sums_home(const struct moe_dispatch *d, const struct moe_run *run,
                            const struct moe_dispatch_plan *plan, struct moe_mat rows,
                            struct moe_mat base, struct moe_mat y) {
  struct moe_mat all, home = y;
  MOE_TRY(moe_mat_get(run->scratch, rows.dtype, plan->tokens, rows.cols, &all));
  if (base.p) MOE_TRY(moe_mat_get(run->scratch, rows.dtype, y.rows, y.cols, &home));
  combine(d, run, plan, rows, (struct moe_mat){0}, all);
  MOE_TRY(moe_gather_home(run, plan, all, home));
  if (base.p) run->k->add(run->stream, y, base, home);
  return MOE_OK;
}

static moe_status rows_home(const struct moe_dispatch *d, const struct moe_run *run,
                            const struct moe_dispatch_plan *plan, struct moe_mat rows,
                            struct moe_mat base, struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat home = rows;
  if (moe_dispatch_exchanges(d)) {
    MOE_TRY(moe_mat_get(run->scratch, rows.dtype, plan->sent, rows.cols, &home));
    MOE_TRY(moe_to_tokens(d, run, plan, rows, home));
  }
  if (moe_dispatch_gathers(d))
    MOE_TRY(sums_home(d, run, plan, rows, base, y));
  else
    combine(d, run, plan, home, base, y);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

static moe_status probs_home(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, float *dprob_rows,
                             float *dprob) {
  size_t mark = moe_arena_mark(run->scratch);
  float *home = dprob_rows, *all = dprob;
  if (moe_dispatch_gathers(d)) MOE_GET(run->scratch, all, plan->tokens * d->topk);
  if (moe_dispatch_exchanges(d)) {
    MOE_GET(run->scratch, home, plan->sent);
    MOE_TRY(moe_to_tokens(d, run, plan, moe_column(dprob_rows, plan->rows),
                          moe_column(home, plan->sent)));
  }
  moe_plan_probs(run, plan, d->topk, false, home, all);
  if (moe_dispatch_gathers(d))
    MOE_TRY(moe_gather_home(run, plan, moe_mat_of(all, MOE_F32, plan->tokens, d->topk),
                            moe_mat_of(dprob, MOE_F32, run->tokens, d->topk)));
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
