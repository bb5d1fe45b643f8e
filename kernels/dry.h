/* A table that does nothing: with measuring arenas, running the layers on it tells how many bytes
 * they take and how many FLOPs they do, by the very code that trains. */
#ifndef MOE_KERNELS_DRY_H
#define MOE_KERNELS_DRY_H

#include "kernels/kernels.h"

/* Sizes (weight_bytes, attn_bwd_bytes, embed_bwd_bytes) are those of `real`. */
struct moe_kernels moe_kernels_dry(const struct moe_kernels *real);

#endif
