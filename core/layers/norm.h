/* RMS norm with its weight. */
#ifndef MOE_LAYERS_NORM_H
#define MOE_LAYERS_NORM_H

#include "layers/run.h"

struct moe_norm {
  struct moe_param w;
  int64_t inner; /* parts of a row that are normed on their own */
  float eps;
};

/* y = norm(x), or with res.p: sum = x + res, y = norm(sum). rstd: (rows * inner), may be NULL. */
void moe_norm_forward(const struct moe_norm *n, const struct moe_run *run, struct moe_mat x,
                      struct moe_mat res, struct moe_mat sum, struct moe_mat y, float *rstd);
/* dx = d norm + dres (dres.p NULL: none); dx may be dy or dres. x: what was normed. */
void moe_norm_backward(const struct moe_norm *n, const struct moe_run *run, struct moe_mat dy,
                       struct moe_mat x, const float *rstd, struct moe_mat dres, struct moe_mat dx);

/* The same for rows that are split over tp: part m of a row lies on rank m, each as long. The sums
 * of a row are taken over tp; where ranks hold the same part, each stands for its share of it. */
moe_status moe_norm_split_forward(const struct moe_norm *n, const struct moe_run *run,
                                  struct moe_mat x, struct moe_mat y, float *rstd);
moe_status moe_norm_split_backward(const struct moe_norm *n, const struct moe_run *run,
                                   struct moe_mat dy, struct moe_mat x, const float *rstd,
                                   struct moe_mat dx);

#endif
