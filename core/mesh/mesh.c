/* The public mesh: a resolved layout and the names of its groups. */
#include "moelua/mesh.h"

#include "base/alloc.h"
#include "mesh/groups.h"

struct moe_mesh {
  moe_ctx *ctx;
  struct moe_layout layout;
  char *order;
};

moe_status moe_mesh_create(moe_ctx *ctx, const moe_layout_config *config, int32_t world,
                           moe_mesh **out) {
  *out = NULL;
  MOE_CHECK_SIZE(ctx, config);
  struct moe_layout layout;
  MOE_TRY(moe_layout_make(ctx, config, world, &layout));
  moe_mesh *mesh = moe_alloc(ctx, sizeof *mesh);
  if (mesh == NULL) return MOE_MEMORY;
  *mesh = (moe_mesh){.ctx = ctx,
                     .layout = layout,
                     .order = moe_strdup(ctx, config->order ? config->order : MOE_ORDER_DEFAULT)};
  if (mesh->order == NULL) {
    moe_mesh_destroy(mesh);
    return MOE_MEMORY;
  }
  *out = mesh;
  return MOE_OK;
}

void moe_mesh_destroy(moe_mesh *mesh) {
  if (mesh == NULL) return;
  moe_release(mesh->ctx, mesh->order);
  moe_release(mesh->ctx, mesh);
}

moe_status moe_mesh_get_info(const moe_mesh *mesh, moe_mesh_info *out) {
  MOE_CHECK_SIZE(mesh->ctx, out);
  const int32_t *attn = mesh->layout.size[MOE_VIEW_ATTN], *moe = mesh->layout.size[MOE_VIEW_MOE];
  *out = (moe_mesh_info){.size = sizeof *out,
                         .world = mesh->layout.world,
                         .tp = attn[MOE_AXIS_TP],
                         .cp = attn[MOE_AXIS_CP],
                         .dp = attn[MOE_AXIS_DP],
                         .pp = attn[MOE_AXIS_PP],
                         .etp = moe[MOE_AXIS_TP],
                         .ep = moe[MOE_AXIS_EP],
                         .edp = moe[MOE_AXIS_DP],
                         .groups = MOE_GROUPS,
                         .order = mesh->order};
  return MOE_OK;
}

static moe_status check_rank(const moe_mesh *mesh, int32_t rank) {
  if (rank >= 0 && rank < mesh->layout.world) return MOE_OK;
  return moe_fail(mesh->ctx, MOE_INVALID, "rank %d: the layout has ranks 0 .. %d", rank,
                  mesh->layout.world - 1);
}

static moe_status check_kind(const moe_mesh *mesh, int32_t kind) {
  if (kind >= 0 && kind < MOE_GROUPS) return MOE_OK;
  return moe_fail(mesh->ctx, MOE_INVALID, "kind of groups %d: there are 0 .. %d", kind,
                  MOE_GROUPS - 1);
}

moe_status moe_mesh_get_place(const moe_mesh *mesh, int32_t rank, moe_mesh_place *out) {
  MOE_CHECK_SIZE(mesh->ctx, out);
  MOE_TRY(check_rank(mesh, rank));
  struct moe_place at = moe_place_of(&mesh->layout, rank);
  *out = (moe_mesh_place){.size = sizeof *out,
                          .tp = at.tp.rank,
                          .cp = at.cp.rank,
                          .dp = at.dp.rank,
                          .pp = at.pp.rank,
                          .etp = at.etp.rank,
                          .ep = at.ep.rank,
                          .edp = at.edp.rank};
  return MOE_OK;
}

moe_status moe_mesh_get_group(const moe_mesh *mesh, int32_t kind, moe_mesh_group *out) {
  MOE_CHECK_SIZE(mesh->ctx, out);
  MOE_TRY(check_kind(mesh, kind));
  *out = (moe_mesh_group){
      .size = sizeof *out,
      .name = moe_group_name((enum moe_group_kind)kind),
      .moe = moe_group_view((enum moe_group_kind)kind) == MOE_VIEW_MOE,
      .members = moe_layout_share(&mesh->layout, (enum moe_group_kind)kind, 0).size};
  return MOE_OK;
}

moe_status moe_mesh_get_members(const moe_mesh *mesh, int32_t kind, int32_t rank, int32_t *ranks,
                                int32_t n) {
  MOE_TRY(check_kind(mesh, kind));
  MOE_TRY(check_rank(mesh, rank));
  int32_t members = moe_layout_share(&mesh->layout, (enum moe_group_kind)kind, rank).size;
  if (n != members)
    return moe_fail(mesh->ctx, MOE_INVALID, "%d ranks of a %s group: it has %d", n,
                    moe_group_name((enum moe_group_kind)kind), members);
  moe_group_members(&mesh->layout, (enum moe_group_kind)kind, rank, ranks);
  return MOE_OK;
}
