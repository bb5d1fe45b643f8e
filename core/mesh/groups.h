/* All groups of a layout that this rank is a member of, by name. */
#ifndef MOE_MESH_GROUPS_H
#define MOE_MESH_GROUPS_H

#include "comm/comm.h"
#include "mesh/layout.h"
#include "mesh/place.h"

/* X(NAME, "name", view, axes of the order string it spans) */
#define MOE_GROUP_MAP(X)                                               \
  X(TP, "tp", ATTN, MOE_IN(TP))                                        \
  X(CP, "cp", ATTN, MOE_IN(CP))                                        \
  X(DP, "dp", ATTN, MOE_IN(DP))                                        \
  X(PP, "pp", ATTN, MOE_IN(PP))                                        \
  X(TP_CP, "tp-cp", ATTN, MOE_IN(TP) | MOE_IN(CP))                     \
  X(DP_CP, "dp-cp", ATTN, MOE_IN(DP) | MOE_IN(CP))                     \
  X(TP_CP_DP, "tp-cp-dp", ATTN, MOE_IN(TP) | MOE_IN(CP) | MOE_IN(DP))  \
  X(ETP, "etp", MOE, MOE_IN(TP))                                       \
  X(EP, "ep", MOE, MOE_IN(EP))                                         \
  X(EDP, "edp", MOE, MOE_IN(DP))                                       \
  X(ETP_EP, "etp-ep", MOE, MOE_IN(TP) | MOE_IN(EP))                    \
  X(ETP_EP_PP, "etp-ep-pp", MOE, MOE_IN(TP) | MOE_IN(EP) | MOE_IN(PP)) \
  X(WORLD, "world", ATTN, MOE_IN(TP) | MOE_IN(CP) | MOE_IN(DP) | MOE_IN(PP))
#define MOE_IN(axis) (1u << MOE_AXIS_##axis)
#define MOE_GROUP_ENUM(name, text, view, axes) MOE_GROUP_##name,
enum moe_group_kind { MOE_GROUP_MAP(MOE_GROUP_ENUM) MOE_GROUPS };
#undef MOE_GROUP_ENUM

struct moe_groups {
  struct moe_group of[MOE_GROUPS];
};

/* Coordinates of a rank. */
struct moe_place moe_place_of(const struct moe_layout *layout, int32_t rank);
/* "tp", "etp-ep", ..: as the map has them; static storage. */
const char *moe_group_name(enum moe_group_kind kind);
/* The view whose axes the group spans. */
enum moe_view moe_group_view(enum moe_group_kind kind);
/* World ranks of the group of `rank` that spans these axes (bits MOE_IN(axis)) of a view, in the
 * order string's order; ranks has room for all. Returns how many. */
int32_t moe_layout_members(const struct moe_layout *layout, enum moe_view view, uint32_t axes,
                           int32_t rank, int32_t *ranks);
/* The same of a named group. */
int32_t moe_group_members(const struct moe_layout *layout, enum moe_group_kind kind, int32_t rank,
                          int32_t *ranks);
/* Size of a named group of `rank`, and the rank's place in it, as moe_groups_create has them. */
struct moe_coord moe_layout_share(const struct moe_layout *layout, enum moe_group_kind kind,
                                  int32_t rank);
/* Collective over the world, in the order of the map. */
moe_status moe_groups_create(struct moe_world *world, const struct moe_layout *layout,
                             struct moe_groups *out);
/* The `copies` neighbours in tp that share what tp / copies ranks could hold: this rank's run of so
 * many members of its tp group. copies divides tp. Counted as tp's. moe_groups_create made all of
 * them, so ranks of different stages may ask for different ones. */
moe_status moe_groups_copies(struct moe_world *world, const struct moe_layout *layout,
                             int32_t copies, struct moe_group *out);
/* The first and the last stage of this rank's pipeline, where this rank is on one of them. Counted
 * as pp's. Made by moe_groups_create. */
moe_status moe_groups_ends(struct moe_world *world, const struct moe_layout *layout,
                           struct moe_group *out);
/* Arrays of moe_ctx_traffic must have this many entries. */
moe_status moe_traffic_check(moe_ctx *ctx, int32_t n);

#endif
