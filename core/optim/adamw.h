/* AdamW over a pack: slots are gathered into ranges of the same weight decay; buffers are left out.
 */
#ifndef MOE_OPTIM_ADAMW_H
#define MOE_OPTIM_ADAMW_H

#include "kernels/kernels.h"
#include "tensor/pack.h"

/* Updates the part [first, last) of the pack (all of it, or this rank's shard). grad_scale: device
 * memory, one float. step: 1 for the first update. */
void moe_adamw_step(const struct moe_kernels *k, struct moe_stream *stream,
                    const struct moe_pack *pack, const struct moe_param_memory *memory,
                    int64_t first, int64_t last, const moe_optimizer_config *config, double lr,
                    int64_t step, const float *grad_scale);

#endif
