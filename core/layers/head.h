/* Final norm, output product and cross entropy. Works on chunks of rows, so that only a chunk of
 * the logits ever exists; in training its gradient is made in the same pass, as the loss's scale is
 * known before. */
#ifndef MOE_LAYERS_HEAD_H
#define MOE_LAYERS_HEAD_H

#include "layers/embed.h"
#include "layers/linear.h"
#include "layers/norm.h"

struct moe_head {
  struct moe_norm norm;
  struct moe_linear out; /* (V local, H); the embedding's weight when tied */
  int64_t first;         /* id of my first row */
};

struct moe_head_saved {
  struct moe_mat dx; /* (T, H): gradient of the head's input */
};

moe_status moe_head_params(struct moe_head *h, const moe_model_config *model,
                           const struct moe_embed *embed, struct moe_place place,
                           struct moe_params *params);
void moe_head_init(struct moe_head *h, const moe_model_config *model, struct moe_place place,
                   moe_dtype dtype, int64_t rows_hint);
/* Adds the sum of cross entropy of unmasked labels (rows) to *loss_sum (device) of the first rank
 * of tp; others add nothing. Training: also gradients of the head's weights, and of x (T, H) into
 * *saved. */
moe_status moe_head_forward(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                            const int32_t *label, double *loss_sum, struct moe_head_saved *saved);
/* Logits (rows, V local), fp32, of rows [first, first + rows) of run->rows to host memory, chunk by
 * chunk, enqueued. x (T, H). */
moe_status moe_head_logits(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                           int64_t first, int64_t rows, float *host);

#endif
