/* Declaring parameters: the few shapes that all layers use. */
#ifndef MOE_LAYERS_PARAM_H
#define MOE_LAYERS_PARAM_H

#include "mesh/place.h"
#include "tensor/pack.h"

/* A whole tensor: start 0, count dim. Name is prefix + suffix. */
struct moe_slot moe_slot_make(const char *prefix, const char *suffix, int32_t dims,
                              const int64_t *dim);
/* My even part of dimension d along an axis. */
void moe_slot_split(struct moe_slot *slot, int32_t d, struct moe_coord axis);
/* Adds to the pack of the slot's family; a replicated slot to that of the replicated. */
moe_status moe_param_declare(struct moe_params *params, const struct moe_slot *slot,
                             struct moe_param *out);
/* A norm weight: ones, (n), the same on all tp ranks. */
moe_status moe_param_norm(struct moe_params *params, const char *prefix, const char *suffix,
                          int64_t n, struct moe_param *out);

#endif
