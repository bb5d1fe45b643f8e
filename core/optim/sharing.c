#include "optim/sharing.h"

enum moe_group_kind moe_family_group(enum moe_family family) {
  static const enum moe_group_kind group[MOE_FAMILIES] = {
#define ROW(family, group) [MOE_FAMILY_##family] = MOE_GROUP_##group,
      MOE_SHARING_MAP(ROW)
#undef ROW
  };
  return group[family];
}

struct moe_sharing moe_sharing_of(const struct moe_slot *slot, const struct moe_place *place) {
  struct moe_sharing s = {.group = moe_family_group(slot->family),
                          .copies = slot->copies > 1 ? slot->copies : 1};
  s.counted = !slot->buffer && !slot->second && place->tp.rank % s.copies == 0;
  return s;
}
