/* What the files of the dispatcher share. */
#ifndef MOE_LAYERS_DISPATCH_PART_H
#define MOE_LAYERS_DISPATCH_PART_H

#include "layers/dispatch.h"

static inline int64_t moe_dispatch_members(const struct moe_dispatch *d) {
  return (int64_t)d->etp.size * d->ep.size;
}
static inline bool moe_dispatch_travels(const struct moe_dispatch *d) {
  return moe_dispatch_members(d) > 1;
}
static inline int64_t moe_dispatch_local(const struct moe_dispatch *d) {
  return moe_part_count(d->experts, d->ep);
}
static inline bool moe_dispatch_gathers(const struct moe_dispatch *d) {
  return moe_dispatch_travels(d) && d->kind == MOE_DISPATCH_ALLGATHER;
}
static inline bool moe_dispatch_exchanges(const struct moe_dispatch *d) {
  return moe_dispatch_travels(d) && d->kind == MOE_DISPATCH_ALLTOALL;
}
/* All-to-all: chunks arrive in another order than the experts want. */
static inline bool moe_dispatch_sorts(const struct moe_dispatch *d) {
  return moe_dispatch_local(d) > 1;
}
/* Which pairs a capacity drops is known before the pairs get their rows. */
static inline bool moe_dispatch_chooses(const struct moe_dispatch *d) {
  return d->across || (d->capacity_factor > 0 && moe_dispatch_gathers(d));
}
static inline bool moe_run_dry(const struct moe_run *run) {
  return run->groups->of[MOE_GROUP_WORLD].comm->world->backend->dry;
}
/* Passes a failing transfer on; its time is exchange's, not the dispatcher's. */
#define MOE_TRY_TRANSFER(run, expr)                    \
  do {                                                 \
    moe_trace_begin((run)->trace, MOE_PART_COMM);      \
    moe_status moe_transfer_ = (expr);                 \
    moe_trace_end((run)->trace);                       \
    if (moe_transfer_ != MOE_OK) return moe_transfer_; \
  } while (0)
static inline struct moe_mat moe_column(const float *x, int64_t rows) {
  return moe_mat_of((void *)(uintptr_t)x, MOE_F32, rows, 1);
}

/* count and offset of rows from their number; returns their sum. */
int64_t moe_parts_lay_out(struct moe_parts *p, int64_t n, int64_t width);
/* The most rows that one member may send to my experts. */
int64_t moe_dispatch_most_rows(const struct moe_dispatch *d, int64_t tokens);
/* In `all` neighbours are neighbours along `axis`; how far apart members of the axis lie else. */
bool moe_group_neighbours(struct moe_group all, struct moe_group axis);

/* Room in run->saved for the rows of plan->tokens tokens: `sent` of them (at most), of so many
 * experts. */
moe_status moe_plan_carve(const struct moe_run *run, struct moe_dispatch_plan *plan, int64_t topk,
                          int64_t sent, int64_t experts);
/* Between (tokens, K) and (sent). */
void moe_plan_probs(const struct moe_run *run, const struct moe_dispatch_plan *plan, int64_t topk,
                    bool to_rows, const float *in, float *out);

/* Entries of host->order for so many sequences. */
int64_t moe_dispatch_order_size(const struct moe_dispatch *d, int64_t batch);
/* out (T, K): index, -1 where the capacity (of this rank's tokens, or across) drops a pair. */
moe_status moe_dispatch_choose(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_host *host, const int32_t *index,
                               const float *prob, int32_t *dropped, int32_t *out);

/* Fills plan->host, plan->rows, ranges and the orders of chunks from plan->offset of all members.
 */
moe_status moe_dispatch_splits(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_plan *plan);

/* The all-to-all kind. to_experts_start: in (sent, W) sets out; arrived (N, W) is where it goes. W
 * is H or 1. to_experts_finish waits and sorts into out (where moe_dispatch_sorts). to_tokens: in
 * (N, W; undefined after) to out (sent, W), the sums over etp. */
moe_status moe_to_experts_start(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                                struct moe_mat in, struct moe_mat arrived,
                                struct moe_request *request);
moe_status moe_to_experts_finish(const struct moe_dispatch *d, const struct moe_run *run,
                                 const struct moe_dispatch_plan *plan, struct moe_mat arrived,
                                 struct moe_request *request, struct moe_mat out);
moe_status moe_to_tokens(const struct moe_dispatch *d, const struct moe_run *run,
                         const struct moe_dispatch_plan *plan, struct moe_mat in,
                         struct moe_mat out);

/* The all-gather kind. plan: from the choices of all members. start: in (T, W) to out (tokens, W),
 * waited for with moe_comm_wait. home: out (T, W) = my part of the sum of all (tokens, W). W is H
 * or K. */
moe_status moe_gather_plan(const struct moe_dispatch *d, const struct moe_run *run,
                           const int32_t *index, const float *prob, int32_t *kept,
                           struct moe_dispatch_plan *plan);
moe_status moe_gather_start(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                            struct moe_mat in, struct moe_mat out, struct moe_request *request);
moe_status moe_gather_home(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                           struct moe_mat all, struct moe_mat out);

#endif
