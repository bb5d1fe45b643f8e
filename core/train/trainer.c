#include "train/trainer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/ctx.h"

/* Device memory is one mapping; every arena is a part of it. */
static moe_status allocate_arenas(struct moe_trainer *t, const struct moe_model_size *size) {
  int64_t tokens = t->model->micros * t->model->micro_batch * t->model->seq;
  int64_t micro = t->model->micro_batch * t->model->seq;
  size_t io = (size_t)(2 * tokens + micro + 2 * t->config.seq) * sizeof(int32_t) + 1024;
  size_t parts[] = {size->prepared, size->stats, size->again, size->scratch, io};
  struct moe_arena *arena[] = {&t->prepared, &t->stats, &t->again, &t->scratch, &t->io};
  const char *name[] = {"prepared weights", "statistics", "recomputed activations", "scratch",
                        "input"};
  size_t transfers = size->transfer * (size_t)t->pipe.buffers;
  size_t total = 0, saved = moe_round_up(size->saved + !size->saved, MOE_ALIGN);
  for (size_t i = 0; i < MOE_COUNTOF(parts); i++) {
    parts[i] = moe_round_up(parts[i] + !parts[i], MOE_ALIGN); /* an arena is never empty */
    total += parts[i];
  }
  total += saved * (size_t)t->pipe.slots + transfers;
  void *base = t->k->mem_alloc(t->ctx, total);
  if (base == NULL) return MOE_MEMORY;
  moe_arena_wrap(t->ctx, "device", base, total, &t->device);
  for (size_t i = 0; i < MOE_COUNTOF(parts); i++)
    moe_arena_wrap(t->ctx, name[i], moe_arena_get(&t->device, parts[i]), parts[i], arena[i]);
  for (int32_t i = 0; i < t->pipe.slots; i++)
    moe_arena_wrap(t->ctx, "saved activations", moe_arena_get(&t->device, saved), saved,
                   &t->saved[i]);
  if (transfers) moe_pipe_bind(&t->pipe, moe_arena_get(&t->device, transfers), size->transfer);
  t->stats.solid = true; /* one copy brings them to the host */
  return MOE_OK;
}

static moe_status allocate_packs(struct moe_trainer *t) {
  for (int f = 0; f < MOE_FAMILIES; f++) {
    float **kinds[] = {&t->memory.weight[f], &t->memory.grad[f], &t->memory.exp_avg[f],
                       &t->memory.exp_avg_sq[f]};
    int64_t moments = t->optim.buckets.moments[f], n = t->model->params.pack[f].elements;
    int64_t elements[] = {n, n, moments, moments};
    for (size_t i = 0; i < MOE_COUNTOF(kinds); i++) {
      *kinds[i] = t->k->mem_alloc(t->ctx, (size_t)elements[i] * sizeof(float));
      if (*kinds[i] == NULL) return MOE_MEMORY;
    }
  }
  return MOE_OK;
}

static int64_t bias_elements(const struct moe_model *m) {
  int64_t n = 0;
  for (int32_t i = 0; i < m->blocks; i++)
    if (m->block[i].is_moe) n += m->block[i].moe.router.bias.elements;
  return n;
}

static moe_status allocate_host(struct moe_trainer *t) {
  moe_ctx *ctx = t->ctx;
  MOE_TRY(moe_pipe_create(ctx, &t->model->shape, t->model->place.pp.rank, &t->pipe));
  t->saved = moe_alloc_array(ctx, (size_t)t->pipe.slots, sizeof *t->saved);
  t->slot = moe_alloc_array(ctx, (size_t)t->pipe.slots, sizeof *t->slot);
  t->bias_host = moe_alloc_array(ctx, (size_t)bias_elements(t->model), sizeof(float));
  t->routing = moe_alloc_array(ctx, (size_t)moe_trainer_routing_size(t->model), sizeof *t->routing);
  int64_t rows = t->model->micro_batch * t->model->seq + 2 * t->config.seq;
  t->position_host = moe_alloc_array(ctx, (size_t)rows, sizeof *t->position_host);
  t->padded = moe_alloc_array(ctx, (size_t)t->config.seq, sizeof *t->padded);
  if (!t->saved || !t->slot || !t->bias_host || !t->routing) return MOE_MEMORY;
  if (!t->position_host || !t->padded) return MOE_MEMORY;
  for (int32_t i = 0; i < t->pipe.slots; i++)
    MOE_TRY(moe_model_saved_create(t->model, &t->slot[i]));
  return MOE_OK;
}

static moe_status carve_io(struct moe_trainer *t) {
  int64_t tokens = t->model->micros * t->model->micro_batch * t->model->seq;
  MOE_GET(&t->io, t->token, tokens);
  MOE_GET(&t->io, t->label, tokens);
  MOE_GET(&t->io, t->position, t->model->micro_batch * t->model->seq);
  MOE_GET(&t->io, t->cp_position, t->config.seq);
  MOE_GET(&t->io, t->all_position, t->config.seq);
  MOE_GET(&t->io, t->sums, MOE_COUNTOF(t->sums_host));
  MOE_GET(&t->io, t->grad_scale, 1);
  return MOE_OK;
}

static moe_status upload_start(struct moe_trainer *t) {
  struct moe_run run = moe_trainer_run(t, 1, t->model->seq);
  MOE_TRY(moe_model_upload(t->model, &run));
  MOE_TRY(moe_trainer_set_positions(t, t->config.seq));
  for (int f = 0; f < MOE_FAMILIES; f++) {
    const struct moe_pack *pack = &t->model->params.pack[f];
    size_t bytes = (size_t)pack->elements * sizeof(float);
    float *host = moe_map(t->ctx, bytes);
    if (host == NULL) return MOE_MEMORY;
    moe_pack_fill_initial(pack, t->config.seed, host);
    t->k->copy(t->stream, t->memory.weight[f], host, bytes);
    moe_status status = t->k->stream_sync(t->stream);
    moe_unmap(t->ctx, host, bytes);
    MOE_TRY(status);
  }
  return MOE_OK;
}

static moe_status build(struct moe_trainer *t, const moe_train_config *config) {
  struct moe_model_size size;
  MOE_TRY(moe_layout_make(t->ctx, &config->layout, t->world->size, &t->layout));
  MOE_TRY(moe_groups_create(t->world, &t->layout, &t->groups));
  MOE_TRY(moe_kernels_cpu(t->ctx, t->ctx->isa, &t->k));
  MOE_TRY(moe_model_create(t->ctx, config, moe_place_of(&t->layout, t->world->rank), &t->model));
  t->config.model.blocks = t->model->config.blocks;
  t->config.layout.order = NULL;
  t->config.layout.blocks = NULL;
  t->config.layout.n_blocks = 0;
  if (t->model->shares_embed) MOE_TRY(moe_groups_ends(t->world, &t->layout, &t->ends));
  MOE_TRY(moe_model_measure(t->model, t->k, &t->layout, t->world->rank, false, &size));
  MOE_TRY(t->k->stream_create(t->ctx, &t->stream));
  MOE_TRY(allocate_host(t));
  MOE_TRY(moe_optim_create(t->ctx, &t->model->params, &t->memory,
                           (const int32_t(*)[MOE_FAMILIES])t->model->first_slot, t->model->blocks,
                           &t->layout, &t->groups, config->optimizer.shard != 0, t->k, t->stream,
                           &t->optim));
  MOE_TRY(allocate_packs(t));
  MOE_TRY(allocate_arenas(t, &size));
  t->stats_host = moe_alloc(t->ctx, t->stats.capacity);
  if (t->stats_host == NULL) return MOE_MEMORY;
  MOE_TRY(moe_model_bind(t->model, t->k, &t->memory, &t->prepared, &t->stats));
  MOE_TRY(carve_io(t));
  MOE_TRY(upload_start(t));
  t->state = (moe_trainer_state){.size = sizeof t->state, .seed = config->seed};
  t->stale = true;
  return MOE_OK;
}

moe_status moe_trainer_create(moe_ctx *ctx, const moe_train_config *config, moe_trainer **out) {
  *out = NULL;
  struct moe_world *world;
  MOE_TRY(moe_ctx_world(ctx, &world));
  MOE_TRY(moe_train_config_check(ctx, config, world->size));
  struct moe_trainer *t = moe_alloc(ctx, sizeof *t);
  if (t == NULL) return MOE_MEMORY;
  t->ctx = ctx;
  t->config = *config;
  t->world = world;
  moe_status status = build(t, config);
  if (t->groups.of[MOE_GROUP_WORLD].comm) /* one rank may lack memory that the others have */
    status = moe_comm_agree(t->groups.of[MOE_GROUP_WORLD], t->stream, status);
  if (status != MOE_OK) {
    moe_trainer_destroy(t);
    return status;
  }
  *out = t;
  return MOE_OK;
}

static void release_packs(struct moe_trainer *t) {
  if (t->model == NULL) return;
  for (int f = 0; f < MOE_FAMILIES; f++) {
    size_t bytes = (size_t)t->model->params.pack[f].elements * sizeof(float);
    size_t moments = (size_t)t->optim.buckets.moments[f] * sizeof(float);
    t->k->mem_release(t->ctx, t->memory.weight[f], bytes);
    t->k->mem_release(t->ctx, t->memory.grad[f], bytes);
    t->k->mem_release(t->ctx, t->memory.exp_avg[f], moments);
    t->k->mem_release(t->ctx, t->memory.exp_avg_sq[f], moments);
  }
}

void moe_trainer_destroy(moe_trainer *t) {
  if (t == NULL) return;
  release_packs(t);
  moe_optim_destroy(&t->optim);
  if (t->device.base) t->k->mem_release(t->ctx, t->device.base, t->device.capacity);
  if (t->stream) t->k->stream_destroy(t->stream);
  if (t->slot)
    for (int32_t i = 0; i < t->pipe.slots; i++) moe_model_saved_destroy(t->model, &t->slot[i]);
  moe_pipe_destroy(&t->pipe);
  moe_release(t->ctx, t->saved);
  moe_release(t->ctx, t->slot);
  moe_release(t->ctx, t->bias_host);
  moe_release(t->ctx, t->routing);
  moe_release(t->ctx, t->position_host);
  moe_release(t->ctx, t->padded);
  moe_release(t->ctx, t->stats_host);
  moe_model_destroy(t->model);
  moe_release(t->ctx, t);
}

struct moe_run moe_trainer_run(struct moe_trainer *t, int64_t batch, int64_t seq) {
  return (struct moe_run){.ctx = t->ctx,
                          .k = t->k,
                          .stream = t->stream,
                          .saved = &t->saved[0],
                          .again = &t->again,
                          .scratch = &t->scratch,
                          .trace = &t->trace,
                          .memory = &t->memory,
                          .place = t->model->place,
                          .groups = &t->groups,
                          .dtype = t->model->dtype,
                          .batch = batch,
                          .seq = seq,
                          .rows = batch * seq,
                          .tokens = batch * seq / t->model->place.tp.size,
                          .position = t->position,
                          .cp_position = t->cp_position,
                          .all_position = t->all_position,
                          .global_tokens = (double)t->config.global_batch * (double)t->config.seq};
}

void moe_trainer_refresh(struct moe_trainer *t, const struct moe_run *run) {
  if (t->stale) moe_model_prepare(t->model, run);
  t->stale = false;
}

moe_status moe_trainer_get_state(const moe_trainer *t, moe_trainer_state *out) {
  MOE_CHECK_SIZE(t->ctx, out);
  *out = t->state;
  return MOE_OK;
}

moe_status moe_trainer_set_state(moe_trainer *t, const moe_trainer_state *state) {
  MOE_CHECK_SIZE(t->ctx, state);
  if (state->step < 0 || state->cursor < 0)
    return moe_fail(t->ctx, MOE_INVALID, "state: step %lld and cursor %lld must not be negative",
                    (long long)state->step, (long long)state->cursor);
  t->state = *state;
  return MOE_OK;
}
