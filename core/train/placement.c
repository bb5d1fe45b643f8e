/* The parameters of a model as the public interface tells of them: a trainer's, and those of any
 * rank of any layout, which a placement knows without memory for them. */
#include <string.h>

#include "base/alloc.h"
#include "train/model.h"

const struct moe_slot *moe_model_slot(const struct moe_model *model, int64_t index) {
  if (index < 0) return NULL;
  for (int f = 0; f < MOE_FAMILIES; f++) {
    const struct moe_pack *pack = &model->params.pack[f];
    if (index < pack->slots) return &pack->slot[index];
    index -= pack->slots;
  }
  return NULL;
}

int64_t moe_model_slots(const struct moe_model *model) {
  int64_t n = 0;
  for (int f = 0; f < MOE_FAMILIES; f++) n += model->params.pack[f].slots;
  return n;
}

moe_status moe_model_param_info(const struct moe_model *model, int64_t index, moe_param_info *out) {
  MOE_CHECK_SIZE(model->ctx, out);
  const struct moe_slot *slot = moe_model_slot(model, index);
  if (slot == NULL)
    return moe_fail(model->ctx, MOE_INVALID, "parameter %lld: there are %lld", (long long)index,
                    (long long)moe_model_slots(model));
  *out = (moe_param_info){.size = sizeof *out,
                          .name = slot->name,
                          .dims = slot->dims,
                          .expert = slot->family == MOE_FAMILY_EXPERT};
  memcpy(out->dim, slot->dim, sizeof out->dim);
  memcpy(out->start, slot->start, sizeof out->start);
  memcpy(out->count, slot->count, sizeof out->count);
  return MOE_OK;
}

/* ---- placements ---- */

struct moe_placement {
  moe_ctx *ctx;
  struct moe_model *model; /* declared, never bound to memory */
};

moe_status moe_placement_create(moe_ctx *ctx, const moe_train_config *config, int32_t world,
                                int32_t rank, moe_placement **out) {
  struct moe_layout layout;
  *out = NULL;
  MOE_TRY(moe_train_config_check(ctx, config, world));
  MOE_TRY(moe_layout_make(ctx, &config->layout, world, &layout));
  if (rank < 0 || rank >= layout.world)
    return moe_fail(ctx, MOE_INVALID, "rank %d: the layout has ranks 0 .. %d", rank,
                    layout.world - 1);
  moe_placement *placement = moe_alloc(ctx, sizeof *placement);
  if (placement == NULL) return MOE_MEMORY;
  *placement = (moe_placement){.ctx = ctx};
  moe_status status = moe_model_create(ctx, config, moe_place_of(&layout, rank), &placement->model);
  if (status == MOE_OK)
    *out = placement;
  else
    moe_release(ctx, placement);
  return status;
}

void moe_placement_destroy(moe_placement *placement) {
  if (placement == NULL) return;
  moe_model_destroy(placement->model);
  moe_release(placement->ctx, placement);
}

int64_t moe_placement_count(const moe_placement *placement) {
  return moe_model_slots(placement->model);
}

moe_status moe_placement_info(const moe_placement *placement, int64_t index, moe_param_info *out) {
  return moe_model_param_info(placement->model, index, out);
}
