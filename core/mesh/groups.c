#include "mesh/groups.h"

#include <stdio.h>

#include "base/alloc.h"

/* What the named groups span. */
static const struct {
  const char *name;
  enum moe_view view;
  uint32_t axes;
} spans[] = {
#define SPAN(kind, text, view, axes) {text, MOE_VIEW_##view, axes},
    MOE_GROUP_MAP(SPAN)
#undef SPAN
};

const char *moe_group_name(enum moe_group_kind kind) { return spans[kind].name; }

enum moe_view moe_group_view(enum moe_group_kind kind) { return spans[kind].view; }

static int32_t index_of(const struct moe_layout *layout, enum moe_view view, int32_t axis,
                        int32_t rank) {
  return rank / layout->stride[view][axis] % layout->size[view][axis];
}

static struct moe_coord coord(const struct moe_layout *layout, enum moe_view view, int32_t axis,
                              int32_t rank) {
  return (struct moe_coord){layout->size[view][axis], index_of(layout, view, axis, rank)};
}

struct moe_place moe_place_of(const struct moe_layout *layout, int32_t rank) {
  return (struct moe_place){.tp = coord(layout, MOE_VIEW_ATTN, MOE_AXIS_TP, rank),
                            .cp = coord(layout, MOE_VIEW_ATTN, MOE_AXIS_CP, rank),
                            .dp = coord(layout, MOE_VIEW_ATTN, MOE_AXIS_DP, rank),
                            .pp = coord(layout, MOE_VIEW_ATTN, MOE_AXIS_PP, rank),
                            .etp = coord(layout, MOE_VIEW_MOE, MOE_AXIS_TP, rank),
                            .ep = coord(layout, MOE_VIEW_MOE, MOE_AXIS_EP, rank),
                            .edp = coord(layout, MOE_VIEW_MOE, MOE_AXIS_DP, rank)};
}

int32_t moe_layout_members(const struct moe_layout *layout, enum moe_view view, uint32_t axes,
                           int32_t rank, int32_t *ranks) {
  int32_t first = rank, n = 1;
  for (int axis = 0; axis < MOE_AXES; axis++)
    if (axes & 1u << axis) first -= index_of(layout, view, axis, rank) * layout->stride[view][axis];
  ranks[0] = first;
  for (int i = 0; i < MOE_AXES; i++) {
    int32_t axis = layout->order[i], had = n;
    if (!(axes & 1u << axis)) continue;
    for (int32_t step = 1; step < layout->size[view][axis]; step++)
      for (int32_t m = 0; m < had; m++) ranks[n++] = ranks[m] + step * layout->stride[view][axis];
  }
  return n;
}

int32_t moe_group_members(const struct moe_layout *layout, enum moe_group_kind kind, int32_t rank,
                          int32_t *ranks) {
  return moe_layout_members(layout, spans[kind].view, spans[kind].axes, rank, ranks);
}

struct moe_coord moe_layout_share(const struct moe_layout *layout, enum moe_group_kind kind,
                                  int32_t rank) {
  enum moe_view view = spans[kind].view;
  struct moe_coord at = {1, 0};
  for (int i = 0; i < MOE_AXES; i++) {
    int32_t axis = layout->order[i];
    if (!(spans[kind].axes & 1u << axis)) continue;
    at.rank += index_of(layout, view, axis, rank) * at.size;
    at.size *= layout->size[view][axis];
  }
  return at;
}

moe_status moe_groups_copies(struct moe_world *world, const struct moe_layout *layout,
                             int32_t copies, struct moe_group *out) {
  int32_t stride = layout->stride[MOE_VIEW_ATTN][MOE_AXIS_TP];
  int32_t me = index_of(layout, MOE_VIEW_ATTN, MOE_AXIS_TP, world->rank) % copies;
  int32_t *ranks = moe_alloc_array(world->ctx, (size_t)copies, sizeof *ranks);
  if (ranks == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < copies; i++) ranks[i] = world->rank + (i - me) * stride;
  out->tag = MOE_GROUP_TP;
  moe_status status = moe_comm_get(world, ranks, copies, &out->comm);
  moe_release(world->ctx, ranks);
  return status;
}

static moe_status make_copies(struct moe_world *world, const struct moe_layout *layout) {
  int32_t tp = layout->size[MOE_VIEW_ATTN][MOE_AXIS_TP];
  struct moe_group unused;
  for (int32_t copies = 2; copies < tp; copies++)
    if (tp % copies == 0) MOE_TRY(moe_groups_copies(world, layout, copies, &unused));
  return MOE_OK;
}

static bool at_an_end(const struct moe_layout *layout, int32_t rank) {
  struct moe_coord pp = moe_place_of(layout, rank).pp;
  return pp.size > 1 && (pp.rank == 0 || pp.rank == pp.size - 1);
}

moe_status moe_groups_ends(struct moe_world *world, const struct moe_layout *layout,
                           struct moe_group *out) {
  struct moe_coord pp = moe_place_of(layout, world->rank).pp;
  int32_t stride = layout->stride[MOE_VIEW_ATTN][MOE_AXIS_PP];
  int32_t first = world->rank - pp.rank * stride;
  const int32_t ranks[2] = {first, first + (pp.size - 1) * stride};
  out->tag = MOE_GROUP_PP;
  return moe_comm_get(world, ranks, 2, &out->comm);
}

/* What reports of the ranks say of this one and of the groups. */
static void name(struct moe_world *world, const struct moe_layout *layout) {
  for (size_t i = 0; i < MOE_COUNTOF(spans); i++) world->group_name[i] = spans[i].name;
  struct moe_place p = moe_place_of(layout, world->rank);
  snprintf(world->board->place, sizeof world->board->place, "tp %d, cp %d, dp %d, pp %d", p.tp.rank,
           p.cp.rank, p.dp.rank, p.pp.rank);
}

moe_status moe_ctx_name_ranks(moe_ctx *ctx, const moe_layout_config *config) {
  struct moe_world *world;
  struct moe_layout layout;
  MOE_TRY(moe_ctx_world(ctx, &world));
  MOE_TRY(moe_layout_make(ctx, config, world->size, &layout));
  name(world, &layout);
  return MOE_OK;
}

moe_status moe_groups_create(struct moe_world *world, const struct moe_layout *layout,
                             struct moe_groups *out) {
  *out = (struct moe_groups){0};
  name(world, layout);
  int32_t *ranks = moe_alloc_array(world->ctx, (size_t)layout->world, sizeof *ranks);
  if (ranks == NULL) return MOE_MEMORY;
  moe_status status = MOE_OK;
  for (size_t i = 0; i < MOE_COUNTOF(spans) && status == MOE_OK; i++) {
    int32_t n = moe_group_members(layout, (enum moe_group_kind)i, world->rank, ranks);
    out->of[i].tag = (int32_t)i;
    status = moe_comm_get(world, ranks, n, &out->of[i].comm);
  }
  moe_release(world->ctx, ranks);
  MOE_TRY(status);
  MOE_TRY(make_copies(world, layout));
  struct moe_group unused;
  return at_an_end(layout, world->rank) ? moe_groups_ends(world, layout, &unused) : MOE_OK;
}
