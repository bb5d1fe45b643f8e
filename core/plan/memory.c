/* What a layout needs on its fullest device, by the same dry run that sizes a trainer. */
#include "base/alloc.h"
#include "base/ctx.h"
#include "mesh/layout.h"
#include "optim/buckets.h"
#include "optim/sharing.h"
#include "train/model.h"

static void count_params(const moe_model_config *model, const struct moe_model *whole,
                         moe_memory_report *out) {
  double idle = 0;
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < whole->params.pack[f].slots; i++)
      if (!whole->params.pack[f].slot[i].buffer)
        out->params_total += whole->params.pack[f].slot[i].elements;
  for (int32_t i = 0; i < model->n_blocks; i++) {
    const moe_block_config *b = &model->blocks[i];
    if (b->ffn_kind == MOE_FFN_MOE)
      idle += (double)(b->experts - b->topk) * 3.0 * (double)b->ffn * (double)model->hidden;
  }
  out->params_active = out->params_total - (int64_t)idle;
}

static moe_status whole_model(moe_ctx *ctx, const moe_train_config *config,
                              const struct moe_kernels *k, moe_memory_report *out) {
  struct moe_model *whole;
  struct moe_model_size size;
  moe_train_config alone = *config;
  struct moe_layout layout;
  alone.layout = (moe_layout_config){.size = sizeof alone.layout};
  MOE_TRY(moe_layout_make(ctx, &alone.layout, 1, &layout));
  MOE_TRY(moe_model_create(ctx, &alone, moe_place_of(&layout, 0), &whole));
  count_params(&config->model, whole, out);
  moe_status status = moe_model_measure(whole, k, &layout, 0, true, &size);
  double flops = 0, tokens = (double)config->micro_batch * config->seq;
  for (int i = 0; i < MOE_TRACE_PARTS; i++) flops += size.flops[i];
  out->flops_per_token = status == MOE_OK ? flops / tokens : 0;
  moe_model_destroy(whole);
  return status;
}

/* Both moments, in the buckets that the optimizer of this rank would have. */
static moe_status moments_bytes(const struct moe_model *model, const struct moe_layout *layout,
                                int32_t rank, bool zero, uint64_t *out) {
  struct moe_coord share[MOE_FAMILIES];
  struct moe_buckets buckets;
  for (int f = 0; f < MOE_FAMILIES; f++)
    share[f] = moe_layout_share(layout, moe_family_group((enum moe_family)f), rank);
  MOE_TRY(moe_buckets_create(model->ctx, &model->params,
                             (const int32_t(*)[MOE_FAMILIES])model->first_slot, model->blocks,
                             share, zero, &buckets));
  for (int f = 0; f < MOE_FAMILIES; f++) *out += 2 * sizeof(float) * (uint64_t)buckets.moments[f];
  moe_buckets_destroy(&buckets);
  return MOE_OK;
}

static moe_status stage_report(moe_ctx *ctx, const moe_train_config *config,
                               const struct moe_kernels *k, const struct moe_layout *layout,
                               int32_t rank, const struct moe_pipe_need *needs,
                               moe_memory_report *out) {
  struct moe_place place = moe_place_of(layout, rank);
  struct moe_model *model;
  struct moe_model_size size;
  MOE_TRY(moe_model_create(ctx, config, place, &model));
  moe_status status = moe_model_measure(model, k, layout, rank, true, &size);
  if (status == MOE_OK)
    status = moments_bytes(model, layout, rank, config->optimizer.shard != 0, &out->optimizer);
  if (status == MOE_OK) {
    for (int f = 0; f < MOE_FAMILIES; f++) out->params_local += model->params.pack[f].elements;
    const struct moe_pipe_need *need = &needs[place.pp.rank];
    uint64_t buffers = (uint64_t)moe_pipe_buffers(&model->shape, need);
    out->weights = 4 * (uint64_t)out->params_local;
    out->gradients = out->weights;
    out->prepared = size.prepared;
    out->saved = size.saved * (uint64_t)need->live + size.transfer * buffers;
    out->scratch = size.scratch + size.again + size.stats;
    out->total =
        out->weights + out->gradients + out->optimizer + out->prepared + out->saved + out->scratch;
  }
  moe_model_destroy(model);
  return status;
}

/* The report of the fullest stage. */
static moe_status fullest(moe_ctx *ctx, const moe_train_config *config, const struct moe_kernels *k,
                          const struct moe_layout *layout, struct moe_pipe_need *needs,
                          moe_memory_report *out) {
  const struct moe_pipe_shape shape = moe_model_pipe_shape(config, layout);
  const moe_memory_report base = *out;
  MOE_TRY(moe_pipe_needs(ctx, &shape, needs));
  for (int32_t stage = 0; stage < shape.pp; stage++) {
    moe_memory_report r = base;
    int32_t rank = stage * layout->stride[MOE_VIEW_ATTN][MOE_AXIS_PP];
    MOE_TRY(stage_report(ctx, config, k, layout, rank, needs, &r));
    if (r.total > out->total) *out = r;
  }
  return MOE_OK;
}

moe_status moe_plan_memory(moe_ctx *ctx, const moe_train_config *config, moe_memory_report *out) {
  MOE_CHECK_SIZE(ctx, out);
  MOE_CHECK_SIZE(ctx, config);
  struct moe_layout layout;
  struct moe_text errors;
  const struct moe_kernels *k;
  MOE_TRY(moe_kernels_cpu(ctx, ctx->isa, &k));
  moe_text_init(ctx, &errors);
  bool legal = moe_layout_resolve(&config->layout, 0, &layout, &errors);
  moe_text_destroy(&errors);
  MOE_TRY(moe_train_config_check(ctx, config, legal ? layout.world : 1));
  moe_memory_report report = {.size = sizeof report};
  MOE_TRY(whole_model(ctx, config, k, &report));
  size_t stages = (size_t)layout.size[MOE_VIEW_ATTN][MOE_AXIS_PP];
  struct moe_pipe_need *needs = moe_alloc_array(ctx, stages, sizeof *needs);
  if (needs == NULL) return MOE_MEMORY;
  moe_status status = fullest(ctx, config, k, &layout, needs, &report);
  moe_release(ctx, needs);
  if (status == MOE_OK) *out = report;
  return status;
}
