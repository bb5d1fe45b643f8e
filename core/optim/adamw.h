/* AdamW over a pack: slots are gathered into ranges of the same weight decay; buffers are left out.
 */
#ifndef MOE_OPTIM_ADAMW_H
#define MOE_OPTIM_ADAMW_H

#include "kernels/kernels.h"
#include "optim/buckets.h"

/* Updates a part of the pack, whose moments begin at part.moment of theirs. grad_scale: device
 * memory, one float. step: 1 for the first update. */
void moe_adamw_step(const struct moe_kernels *k, struct moe_stream *stream,
                    const struct moe_pack *pack, const struct moe_param_memory *memory,
                    struct moe_held part, const moe_optimizer_config *config, double lr,
                    int64_t step, const float *grad_scale);

#endif
