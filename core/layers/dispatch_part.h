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
/* Chunks arrive in another order than the experts want. */
static inline bool moe_dispatch_sorts(const struct moe_dispatch *d) {
  return moe_dispatch_local(d) > 1;
}
static inline bool moe_run_dry(const struct moe_run *run) {
  return run->groups->of[MOE_GROUP_WORLD].comm->world->backend->dry;
}
static inline struct moe_mat moe_column(const float *x, int64_t rows) {
  return moe_mat_of((void *)(uintptr_t)x, MOE_F32, rows, 1);
}

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

#endif
