/* Layouts as a host sees them: where each rank stands in both views, and every group. Plain
 * arithmetic on a layout of any number of ranks: nothing here needs the other ranks. */
#ifndef MOELUA_MESH_H
#define MOELUA_MESH_H

#include "moelua/config.h"

MOE_BEGIN

typedef struct moe_mesh moe_mesh;

/* world: number of ranks; 0: the fewest the layout allows. An illegal layout: MOE_INVALID, with all
 * errors, one a line "layout.field: text". */
MOE_API moe_status moe_mesh_create(moe_ctx *ctx, const moe_layout_config *layout, int32_t world,
                                   moe_mesh **out);
MOE_API void moe_mesh_destroy(moe_mesh *mesh);

typedef struct moe_mesh_info {
  size_t size;
  int32_t world;
  int32_t tp, cp, dp, pp, etp, ep, edp; /* all of them: those left 0 are filled in */
  int32_t groups;                       /* kinds of groups */
  const char *order;                    /* lives as long as the mesh */
} moe_mesh_info;
MOE_API moe_status moe_mesh_get_info(const moe_mesh *mesh, moe_mesh_info *out);

/* Coordinates of a rank: tp cp dp pp in the attention view, etp ep edp pp in the MoE view. */
typedef struct moe_mesh_place {
  size_t size;
  int32_t tp, cp, dp, pp, etp, ep, edp;
} moe_mesh_place;
MOE_API moe_status moe_mesh_get_place(const moe_mesh *mesh, int32_t rank, moe_mesh_place *out);

/* A kind of groups: the ranks that differ only in the axes it is named for. */
typedef struct moe_mesh_group {
  size_t size;
  const char *name; /* "tp", "etp-ep", ..; static storage */
  int32_t moe;      /* 1: of the MoE view */
  int32_t members;  /* of each group; there are world / members groups */
} moe_mesh_group;
/* kind: 0 .. info.groups - 1 */
MOE_API moe_status moe_mesh_get_group(const moe_mesh *mesh, int32_t kind, moe_mesh_group *out);
/* The group of that kind which `rank` is in, in the order string's order: n = members ranks. */
MOE_API moe_status moe_mesh_get_members(const moe_mesh *mesh, int32_t kind, int32_t rank,
                                        int32_t *ranks, int32_t n);

MOE_END

#endif
