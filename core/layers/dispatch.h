/* The token dispatcher: from the router's choice to rows ordered by expert, and back. What routing
 * decided for one micro-batch is a plan; combine and backward consume it. This kind serves experts
 * that all live on this rank. */
#ifndef MOE_LAYERS_DISPATCH_H
#define MOE_LAYERS_DISPATCH_H

#include "layers/run.h"

struct moe_dispatch {
  int64_t experts, topk;
  double capacity_factor; /* 0: dropless */
  moe_drop_policy drop;
  bool pad;
};

struct moe_dispatch_plan {
  int64_t rows;          /* N: rows the experts see (upper bound where rows may be dropped) */
  int32_t *row;          /* (T, K) */
  int32_t *token, *slot; /* (N) */
  int32_t *offset;       /* (E + 1) */
  float *prob;           /* (N), of the rows */
};

/* Rows an expert may have: ceil(T*K/E * factor), at most T; 0 when dropless. */
int64_t moe_dispatch_capacity(const struct moe_dispatch *d, int64_t tokens);
/* Rows of a plan for T tokens. */
int64_t moe_dispatch_rows(const struct moe_dispatch *d, int64_t tokens);

/* Makes the plan (kept in run->saved); dropped: where the number of dropped pairs goes (device). */
moe_status moe_dispatch_plan_make(const struct moe_dispatch *d, const struct moe_run *run,
                                  const int32_t *index, const float *prob, int32_t *dropped,
                                  struct moe_dispatch_plan *plan);
/* rows (N, H) = x (T, H) in the plan's order. */
void moe_dispatch_forward(const struct moe_dispatch *d, const struct moe_run *run,
                          const struct moe_dispatch_plan *plan, struct moe_mat x,
                          struct moe_mat rows);
/* y (T, H) = base + sum of each token's rows; base.p may be NULL or y's. */
void moe_combine_forward(const struct moe_dispatch *d, const struct moe_run *run,
                         const struct moe_dispatch_plan *plan, struct moe_mat rows,
                         struct moe_mat base, struct moe_mat y);
/* Backward of combine is a dispatch of dy; backward of dispatch a combine of d rows. dprob (T, K)
 * from the rows' (N). */
void moe_dispatch_backward_prob(const struct moe_dispatch *d, const struct moe_run *run,
                                const struct moe_dispatch_plan *plan, const float *dprob_rows,
                                float *dprob);

static inline struct moe_groups_rows moe_plan_rows(const struct moe_dispatch_plan *plan) {
  return (struct moe_groups_rows){plan->offset, plan->offset};
}

#endif
