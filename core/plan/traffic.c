/* What a step exchanges: its layers, the gradients and updated weights, and the few numbers that
 * ranks agree on. */
#include "plan/traffic.h"

#include "base/alloc.h"
#include "optim/buckets.h"
#include "optim/sharing.h"
#include "train/trainer.h"

/* ---- the pipeline ---- */

/* Every micro-batch's activation to the next virtual stage and its gradient to the one before. */
static void stages(struct moe_traffic_run *run, const struct moe_model *model) {
  for (int32_t c = 0; c < model->shape.chunks && model->shape.pp > 1; c++) {
    int64_t sends = !model->chunk[c].head + !model->chunk[c].embed;
    run->out->bytes[MOE_GROUP_PP][MOE_COMM_SEND] +=
        sends * run->times * run->tokens * run->H * run->act;
  }
}

static void layers(struct moe_traffic_run *run, const struct moe_model *model,
                   struct moe_traffic *moe) {
  for (int32_t c = 0; c < model->shape.chunks; c++) {
    const struct moe_chunk *chunk = &model->chunk[c];
    if (chunk->embed) moe_traffic_embed(run);
    for (int32_t i = chunk->first; i < chunk->first + chunk->blocks; i++)
      moe_traffic_block(run, &model->config.blocks[model->number[i]], moe);
    if (chunk->head) moe_traffic_head(run);
  }
  stages(run, model);
}

/* ---- gradients and weights ---- */

/* ZeRO-1: gradients of others' parts are given away, the own part of the weights to all; else one
 * sum over the family's group. A bucket is one transfer of fp32. */
static void bucket(struct moe_traffic_run *run, const struct moe_buckets *all,
                   const struct moe_bucket *b) {
  enum moe_group_kind kind = moe_family_group(b->family);
  int64_t n = b->last - b->first, mine = b->count[all->share[b->family].rank];
  if (!all->zero[b->family]) {
    moe_traffic_all_reduce(run, kind, n, 4);
    return;
  }
  run->out->bytes[kind][MOE_COMM_REDUCE_SCATTER] += (n - mine) * 4;
  moe_traffic_all_gather(run, kind, mine, 4);
}

/* kv heads that lie on several tp ranks: what this rank holds of them is summed over the copies,
 * run by run of neighbouring slots. Counted as tp's. */
static void copied(struct moe_traffic_run *run, const struct moe_model *model,
                   const struct moe_buckets *all, enum moe_family family) {
  const struct moe_pack *pack = &model->params.pack[family];
  for (int32_t i = 0; i < pack->slots; i++) {
    struct moe_slot range = pack->slot[i];
    struct moe_held held;
    int64_t c = range.copies;
    if (c <= 1) continue;
    while (i + 1 < pack->slots && pack->slot[i + 1].copies == c &&
           pack->slot[i + 1].offset == range.offset + range.elements)
      range.elements += pack->slot[++i].elements;
    for (int32_t at = 0; moe_buckets_next(all, &range, &at, &held);)
      run->out->bytes[MOE_GROUP_TP][MOE_COMM_ALL_REDUCE] +=
          2 * (held.last - held.first) * (c - 1) / c * 4;
  }
}

static moe_status gradients(struct moe_traffic_run *run, const struct moe_model *model, bool zero) {
  struct moe_coord share[MOE_FAMILIES];
  struct moe_buckets all;
  for (int f = 0; f < MOE_FAMILIES; f++)
    share[f] = moe_layout_share(run->layout, moe_family_group((enum moe_family)f), run->rank);
  MOE_TRY(moe_buckets_create(model->ctx, &model->params,
                             (const int32_t(*)[MOE_FAMILIES])model->first_slot, model->blocks,
                             share, zero, &all));
  for (int32_t i = 0; i < all.buckets; i++) bucket(run, &all, &all.bucket[i]);
  for (int f = 0; f < MOE_FAMILIES; f++) copied(run, model, &all, (enum moe_family)f);
  moe_buckets_destroy(&all);
  if (model->shares_embed) /* the two ends sum what is tied: 2n(2-1)/2 */
    run->out->bytes[MOE_GROUP_PP][MOE_COMM_ALL_REDUCE] += model->embed.w.elements * 4;
  return MOE_OK;
}

/* ---- numbers ---- */

/* Counts of the whole step, for an aux loss that spans it. */
static void whole_counts(struct moe_traffic_run *run, const struct moe_model *model) {
  for (int32_t i = 0; i < model->blocks && model->global_aux; i++) {
    const moe_block_config *b = &model->config.blocks[model->number[i]];
    if (b->ffn_kind == MOE_FFN_MOE && b->aux_scope == MOE_AUX_GLOBAL)
      moe_traffic_all_reduce(run, MOE_GROUP_TP_CP_DP, b->experts, 4);
  }
}

/* Twice all agree on their batches, and those who share one compare it; tokens of the loss, loss
 * and squared norm; routing statistics, and their sums and one maximum over the stages. */
static void numbers(struct moe_traffic_run *run, const struct moe_model *model) {
  for (int i = 0; i < 2 + 2; i++) moe_traffic_all_reduce(run, MOE_GROUP_WORLD, 1, 8);
  moe_traffic_all_reduce(run, MOE_GROUP_TP_CP, 2, 8);
  moe_traffic_all_reduce(run, MOE_GROUP_PP, 2, 8);
  moe_traffic_all_reduce(run, MOE_GROUP_DP, 1, 8);
  moe_traffic_all_reduce(run, MOE_GROUP_TP_CP_DP, moe_trainer_routing_size(model), 8);
  moe_traffic_all_reduce(run, MOE_GROUP_PP, 5, 8);
  moe_traffic_all_reduce(run, MOE_GROUP_PP, 1, 8);
}

/* ---- all of it ---- */

static moe_status step(struct moe_traffic_run *run, const moe_train_config *config,
                       const struct moe_model *model, struct moe_traffic *out,
                       struct moe_traffic *moe) {
  *moe = *out = (struct moe_traffic){0};
  run->out = out;
  run->times = model->micros;
  run->act = (int64_t)moe_dtype_bytes(model->dtype);
  run->H = model->config.hidden;
  run->batch = model->micro_batch;
  run->seq = model->seq;
  run->rows = run->batch * run->seq;
  run->tokens = run->rows / model->place.tp.size;
  layers(run, model, moe);
  run->times = 1;
  whole_counts(run, model);
  numbers(run, model);
  MOE_TRY(gradients(run, model, config->optimizer.shard != 0));
  for (int k = 0; k < MOE_GROUPS; k++)
    for (int op = 0; op < MOE_COMM_OPS; op++) out->bytes[k][op] += moe->bytes[k][op];
  return MOE_OK;
}

moe_status moe_traffic_step(moe_ctx *ctx, const moe_train_config *config,
                            const struct moe_layout *layout, int32_t rank,
                            struct moe_traffic_routing routing, struct moe_traffic *out,
                            struct moe_traffic *moe) {
  struct moe_traffic_run run = {.layout = layout,
                                .rank = rank,
                                .cp_kind = config->layout.cp_kind,
                                .dispatch = config->dispatch,
                                .routing = routing};
  struct moe_model *model;
  for (int k = 0; k < MOE_GROUPS; k++)
    run.size[k] = moe_layout_share(layout, (enum moe_group_kind)k, rank).size;
  run.ep = moe_alloc_array(ctx, 2 * (size_t)layout->world, sizeof *run.ep);
  if (run.ep == NULL) return MOE_MEMORY;
  run.etp = run.ep + layout->world;
  moe_status status = moe_model_create(ctx, config, moe_place_of(layout, rank), &model);
  if (status == MOE_OK) {
    status = step(&run, config, model, out, moe);
    moe_model_destroy(model);
  }
  moe_release(ctx, run.ep);
  return status;
}

moe_status moe_plan_traffic(moe_ctx *ctx, const moe_train_config *config, int32_t world,
                            int32_t rank, int32_t part, int64_t *bytes, int32_t n) {
  struct moe_layout layout;
  struct moe_traffic all, moe;
  MOE_TRY(moe_traffic_check(ctx, n));
  MOE_TRY(moe_train_config_check(ctx, config, world));
  MOE_TRY(moe_layout_make(ctx, &config->layout, world, &layout));
  if (rank < 0 || rank >= layout.world)
    return moe_fail(ctx, MOE_INVALID, "rank %d: the layout has ranks 0 .. %d", rank,
                    layout.world - 1);
  if (part != MOE_TRAFFIC_STEP && part != MOE_TRAFFIC_MOE)
    return moe_fail(ctx, MOE_INVALID, "part %d: must be MOE_TRAFFIC_STEP or MOE_TRAFFIC_MOE", part);
  MOE_TRY(
      moe_traffic_step(ctx, config, &layout, rank, (struct moe_traffic_routing){0}, &all, &moe));
  const struct moe_traffic *t = part == MOE_TRAFFIC_MOE ? &moe : &all;
  for (int32_t i = 0; i < n; i++)
    bytes[i] = i < MOE_GROUPS * MOE_COMM_OPS ? t->bytes[i / MOE_COMM_OPS][i % MOE_COMM_OPS] : 0;
  return MOE_OK;
}
