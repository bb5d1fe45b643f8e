/* A weight (or one per group) and its products. Invariant: between moe_linear_prepare and the next
 * change of the weights, `weight.prepared` is what the products want. */
#ifndef MOE_LAYERS_LINEAR_H
#define MOE_LAYERS_LINEAR_H

#include "layers/run.h"

struct moe_linear {
  struct moe_param w, b;    /* b.elements 0: no bias */
  struct moe_weight weight; /* local sizes: groups, out, in */
  moe_part part;            /* its time and FLOPs go here */
};

/* Sizes; rows_hint: rows a group usually gets. */
void moe_linear_init(struct moe_linear *l, moe_part part, moe_dtype dtype, int64_t groups,
                     int64_t out, int64_t in, int64_t rows_hint);
/* Points the weight at the master copy and takes room for its prepared form. */
moe_status moe_linear_bind(struct moe_linear *l, const struct moe_kernels *k,
                           const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_linear_prepare(const struct moe_linear *l, const struct moe_run *run);

/* y = x W^T + b [y += when accumulate]. rows: as in struct moe_groups_rows. */
void moe_linear_forward(const struct moe_linear *l, const struct moe_run *run, struct moe_mat x,
                        struct moe_groups_rows rows, struct moe_mat y, bool accumulate);
/* dx = dy W [dx += when accumulate]. */
void moe_linear_backward_x(const struct moe_linear *l, const struct moe_run *run, struct moe_mat dy,
                           struct moe_groups_rows rows, struct moe_mat dx, bool accumulate);
/* Gradients of weight and bias. */
void moe_linear_backward_w(const struct moe_linear *l, const struct moe_run *run, struct moe_mat dy,
                           struct moe_mat x, struct moe_groups_rows rows);

#endif
