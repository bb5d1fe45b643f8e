/* What happens between backward and the next forward: gradients are summed over the ranks that
 * share them, squared for clipping, and the weights are updated. Knows packs and groups, no layers.
 *
 * With ZeRO-1 (config.shard) a rank keeps moments for its parts of the buckets only: gradients are
 * reduce-scattered, so that those of other parts are undefined afterwards, and updated weights are
 * all-gathered. */
#ifndef MOE_OPTIM_OPTIM_H
#define MOE_OPTIM_OPTIM_H

#include "mesh/groups.h"
#include "moelua/config.h"
#include "optim/buckets.h"

struct moe_optim {
  moe_ctx *ctx;
  const struct moe_kernels *k;
  struct moe_stream *stream;
  struct moe_place place;
  const struct moe_params *params;
  const struct moe_param_memory *memory;
  struct moe_group group[MOE_FAMILIES]; /* sum over it */
  struct moe_group world;
  struct moe_buckets buckets;
  struct moe_copied *copied; /* kv heads that lie on several tp ranks */
  int32_t copieds;
  struct moe_request *request; /* one a bucket */
  int32_t started;             /* buckets of this step under way */
};

/* params and memory must outlive it; memory's pointers may be set later. first_slot, blocks: as in
 * moe_buckets_create. Collective over the stage's ranks. */
moe_status moe_optim_create(moe_ctx *ctx, const struct moe_params *params,
                            const struct moe_param_memory *memory,
                            const int32_t (*first_slot)[MOE_FAMILIES], int32_t blocks,
                            const struct moe_layout *layout, const struct moe_groups *groups,
                            bool zero, const struct moe_kernels *k, struct moe_stream *stream,
                            struct moe_optim *out);
void moe_optim_destroy(struct moe_optim *optim);

/* The gradients of block b and of all that backward did before are final: starts to sum what is
 * complete. */
moe_status moe_optim_ready(struct moe_optim *optim, int32_t block);
/* All gradients are final: returns when they are summed. */
moe_status moe_optim_finish(struct moe_optim *optim);
/* *sum (device) = squares of the gradient of the whole model, each element once. Collective over
 * the world. */
moe_status moe_optim_square(struct moe_optim *optim, double *sum);
/* AdamW; grad_scale: device, one float; step: 1 for the first. */
moe_status moe_optim_update(struct moe_optim *optim, const moe_optimizer_config *config, double lr,
                            int64_t step, const float *grad_scale);

#endif
