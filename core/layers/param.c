#include "layers/param.h"

#include <stdio.h>

struct moe_slot moe_slot_make(const char *prefix, const char *suffix, int32_t dims,
                              const int64_t *dim) {
  struct moe_slot slot = {.dims = dims, .decay = MOE_DECAY_MATRIX};
  snprintf(slot.name, sizeof slot.name, "%s%s", prefix, suffix);
  for (int32_t d = 0; d < dims; d++) slot.dim[d] = slot.count[d] = dim[d];
  return slot;
}

void moe_slot_split(struct moe_slot *slot, int32_t d, struct moe_coord axis) {
  slot->start[d] = moe_part_start(slot->dim[d], axis);
  slot->count[d] = moe_part_count(slot->dim[d], axis);
}

moe_status moe_param_declare(struct moe_params *params, const struct moe_slot *slot,
                             struct moe_param *out) {
  bool replicated = slot->replicated && slot->family == MOE_FAMILY_DENSE;
  enum moe_family family = replicated ? MOE_FAMILY_REPLICATED : slot->family;
  struct moe_pack *pack = &params->pack[family];
  int32_t index;
  MOE_TRY(moe_pack_add(pack, slot, &index));
  *out = (struct moe_param){family, pack->slot[index].offset, pack->slot[index].elements};
  return MOE_OK;
}

moe_status moe_param_norm(struct moe_params *params, const char *prefix, const char *suffix,
                          int64_t n, struct moe_param *out) {
  struct moe_slot slot = moe_slot_make(prefix, suffix, 1, &n);
  slot.init = MOE_INIT_ONES;
  slot.decay = MOE_DECAY_NORM;
  slot.replicated = true;
  return moe_param_declare(params, &slot, out);
}
