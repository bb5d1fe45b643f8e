/* Every member of etp-ep gets the tokens and choices of all, computes what its experts owe to each,
 * and the sums go back: fewer bytes where few ranks share many experts per token. */
#include "layers/dispatch_part.h"

static const struct moe_parts *parts_of(const struct moe_dispatch_plan *plan, int64_t width) {
  return width == plan->host->hidden ? &plan->host->tokens : &plan->host->choices;
}

moe_status moe_gather_start(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                            struct moe_mat in, struct moe_mat out, struct moe_request *request) {
  const struct moe_parts *p = parts_of(plan, in.cols);
  MOE_TRY_TRANSFER(run, moe_all_gather_v(run->groups->of[MOE_GROUP_ETP_EP], run->stream, in.p,
                                         out.p, p->count, p->offset, in.dtype, request));
  return MOE_OK;
}

moe_status moe_gather_home(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                           struct moe_mat all, struct moe_mat out) {
  const struct moe_parts *p = parts_of(plan, all.cols);
  MOE_TRY_TRANSFER(run, moe_reduce_scatter_v(run->groups->of[MOE_GROUP_ETP_EP], run->stream, all.p,
                                             out.p, p->count, p->offset, all.dtype, NULL));
  return MOE_OK;
}

/* How many tokens each member has: padding and the dry run know it. */
static moe_status tokens_of_members(const struct moe_dispatch *d, const struct moe_run *run,
                                    struct moe_dispatch_plan *plan) {
  struct moe_dispatch_host *h = plan->host;
  int64_t members = moe_dispatch_members(d);
  for (int64_t m = 0; m < members; m++) h->tokens.rows[m] = run->tokens;
  if (!d->pad && !moe_run_dry(run)) {
    int32_t *one, *all;
    size_t mark = moe_arena_mark(run->scratch);
    MOE_GET(run->scratch, one, 1);
    MOE_GET(run->scratch, all, members);
    h->mine = (int32_t)run->tokens;
    run->k->copy(run->stream, one, &h->mine, sizeof *one);
    for (int64_t m = 0; m < members; m++) h->choices.rows[m] = 1;
    moe_parts_lay_out(&h->choices, members, 1);
    MOE_TRY_TRANSFER(run, moe_all_gather_v(run->groups->of[MOE_GROUP_ETP_EP], run->stream, one, all,
                                           h->choices.count, h->choices.offset, MOE_I32, NULL));
    run->k->copy(run->stream, h->offsets, all, (size_t)members * sizeof *all);
    MOE_TRY(run->k->stream_sync(run->stream));
    for (int64_t m = 0; m < members; m++) h->tokens.rows[m] = h->offsets[m];
    moe_arena_reset(run->scratch, mark);
  }
  for (int64_t m = 0; m < members; m++) h->choices.rows[m] = h->tokens.rows[m];
  moe_parts_lay_out(&h->choices, members, d->topk);
  plan->tokens = moe_parts_lay_out(&h->tokens, members, h->hidden);
  return MOE_OK;
}

/* The most rows that my experts may get. */
static int64_t bound(const struct moe_dispatch *d, const struct moe_run *run,
                     const struct moe_dispatch_plan *plan, int64_t capacity) {
  if (d->pad) return moe_dispatch_local(d) * capacity;
  if (moe_run_dry(run) && run->even) return moe_dispatch_rows(d, plan->tokens) / d->ep.size;
  int64_t n = 0;
  for (int64_t m = 0; m < moe_dispatch_members(d); m++)
    n += moe_dispatch_most_rows(d, plan->host->tokens.rows[m]);
  return n;
}

/* Ranges of my experts' rows on the host; all offsets are known where all experts are padded. */
static moe_status read_ranges(const struct moe_dispatch *d, const struct moe_run *run,
                              int64_t capacity, struct moe_dispatch_plan *plan) {
  int64_t local = moe_dispatch_local(d);
  int32_t *offset = plan->host->table;
  if (d->pad)
    for (int64_t l = 0; l <= local; l++) offset[l] = (int32_t)(l * capacity);
  else
    run->k->copy(run->stream, offset, plan->offset, (size_t)(local + 1) * sizeof *offset);
  plan->ranges = (struct moe_groups_rows){plan->offset, offset};
  if (d->pad || moe_run_dry(run)) return MOE_OK;
  MOE_TRY(run->k->stream_sync(run->stream));
  plan->sent = plan->rows = offset[local];
  return MOE_OK;
}

/* Room for the rows of plan->tokens tokens, and the rows. capacity: of padding, else 0. */
static moe_status route(const struct moe_dispatch *d, const struct moe_run *run,
                        const int32_t *index, const float *prob, int64_t capacity, int32_t *kept,
                        struct moe_dispatch_plan *plan) {
  int64_t local = moe_dispatch_local(d), n = bound(d, run, plan, capacity);
  int32_t *none;
  MOE_TRY(moe_plan_carve(run, plan, d->topk, n, local));
  MOE_GET(run->scratch, none, 2);
  const struct moe_route_args args = {.tokens = plan->tokens,
                                      .experts = local,
                                      .first = moe_part_start(d->experts, d->ep),
                                      .topk = d->topk,
                                      .capacity = capacity,
                                      .pad = d->pad,
                                      .index = index,
                                      .prob = prob,
                                      .row = plan->row,
                                      .token = plan->token,
                                      .slot = plan->slot,
                                      .offset = plan->offset,
                                      .dropped = none,
                                      .kept = d->etp.rank == 0 ? kept : none + 1,
                                      .rows_max = n};
  if (d->etp.rank > 0) run->k->fill(run->stream, kept, 0, sizeof *kept);
  run->k->route(run->stream, &args);
  return read_ranges(d, run, capacity, plan);
}

moe_status moe_gather_plan(const struct moe_dispatch *d, const struct moe_run *run,
                           const int32_t *index, const float *prob, int32_t *kept,
                           struct moe_dispatch_plan *plan) {
  int64_t K = d->topk, capacity = 0;
  size_t mark = moe_arena_mark(run->scratch);
  int32_t *index_all;
  float *prob_all;
  MOE_TRY(tokens_of_members(d, run, plan));
  MOE_GET(run->scratch, index_all, plan->tokens * K);
  MOE_GET(run->scratch, prob_all, plan->tokens * K);
  const struct moe_parts *p = &plan->host->choices;
  struct moe_group g = run->groups->of[MOE_GROUP_ETP_EP];
  MOE_TRY_TRANSFER(
      run, moe_all_gather_v(g, run->stream, index, index_all, p->count, p->offset, MOE_I32, NULL));
  MOE_TRY_TRANSFER(
      run, moe_all_gather_v(g, run->stream, prob, prob_all, p->count, p->offset, MOE_F32, NULL));
  /* What each member kept fits: together they fill no more than this. */
  if (d->pad) capacity = moe_dispatch_members(d) * moe_dispatch_capacity(d, run->tokens);
  MOE_TRY(route(d, run, index_all, prob_all, capacity, kept, plan));
  MOE_GET(run->saved, plan->prob, plan->rows);
  moe_plan_probs(run, plan, K, true, prob_all, plan->prob);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
