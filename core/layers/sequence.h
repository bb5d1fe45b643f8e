/* Sequence parallelism: outside attention, ffn and head a tp rank holds a tp-th of every sequence
 * of its micro-batch, (tokens, H) of (rows, H). Around a layer that is split over tp the parts are
 * gathered, and what its ranks computed is summed and scattered back.
 *
 * Rows of sequence b: [b * seq, (b + 1) * seq) gathered; member m of tp has the m-th part of them.
 */
#ifndef MOE_LAYERS_SEQUENCE_H
#define MOE_LAYERS_SEQUENCE_H

#include "layers/run.h"

/* *full (rows, H): all parts of x (tokens, H), in scratch; x itself when tp is 1. */
moe_status moe_sequence_gather(const struct moe_run *run, struct moe_mat x, struct moe_mat *full);
/* Where a layer puts its share of an output y (tokens, H): *part (rows, H) in scratch; y itself
 * when tp is 1. */
moe_status moe_sequence_part(const struct moe_run *run, struct moe_mat y, struct moe_mat *part);
/* y = my rows of the sum of all part; nothing to do when tp is 1. part is undefined afterwards. */
moe_status moe_sequence_scatter(const struct moe_run *run, struct moe_mat part, struct moe_mat y);

#endif
