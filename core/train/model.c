#include "train/model.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* Blocks [first, first + count) of an even split over the pipeline; earlier stages take the rest.
 */
static void stage_blocks(int32_t n, struct moe_coord pp, int32_t *first, int32_t *count) {
  int32_t base = n / pp.size, rest = n % pp.size;
  *count = base + (pp.rank < rest);
  *first = pp.rank * base + (pp.rank < rest ? pp.rank : rest);
}

static void mark_slots(struct moe_model *m, int32_t block) {
  for (int f = 0; f < MOE_FAMILIES; f++) m->first_slot[block][f] = m->params.pack[f].slots;
}

static moe_status declare(struct moe_model *m) {
  if (m->has_embed) MOE_TRY(moe_embed_params(&m->embed, &m->config, m->place, &m->params));
  for (int32_t i = 0; i < m->blocks; i++) {
    char prefix[32];
    int32_t number = m->first_block + i;
    mark_slots(m, i);
    snprintf(prefix, sizeof prefix, "blocks.%d.", number);
    MOE_TRY(moe_block_params(&m->block[i], &m->config, &m->config.blocks[number], m->place, prefix,
                             &m->params));
  }
  mark_slots(m, m->blocks);
  if (m->has_head) MOE_TRY(moe_head_params(&m->head, &m->config, &m->embed, m->place, &m->params));
  return MOE_OK;
}

/* The table for (theta, D), added when it is new. */
static struct moe_rope_table *rope_table(struct moe_model *m, double theta, int64_t head_dim) {
  for (int32_t i = 0; i < m->ropes; i++)
    if (m->rope[i].theta == theta && m->rope[i].head_dim == head_dim) return &m->rope[i];
  m->rope[m->ropes] = (struct moe_rope_table){
      .theta = theta, .head_dim = head_dim, .positions = m->seq * m->place.cp.size};
  return &m->rope[m->ropes++];
}

static void init_layers(struct moe_model *m, const moe_train_config *config) {
  int64_t rows = m->micro_batch * m->seq;
  for (int32_t i = 0; i < m->blocks; i++) {
    const moe_block_config *block = &m->config.blocks[m->first_block + i];
    moe_block_init(&m->block[i], &m->config, block, &config->dispatch, m->place, m->dtype, rows);
    m->block[i].attn.cp_kind = config->layout.cp_kind;
    m->block[i].attn.rope = rope_table(m, block->rope_theta, block->head_dim);
    if (m->block[i].is_moe && block->aux_coef != 0 && block->aux_scope == MOE_AUX_GLOBAL)
      m->global_aux = true;
  }
  moe_head_init(&m->head, &m->config, m->place, m->dtype, rows);
}

moe_status moe_model_create(moe_ctx *ctx, const moe_train_config *config, struct moe_place place,
                            struct moe_model **out) {
  *out = NULL;
  struct moe_model *m = moe_alloc(ctx, sizeof *m);
  if (m == NULL) return MOE_MEMORY;
  m->ctx = ctx;
  m->config = config->model;
  m->config.blocks = NULL;
  m->dtype = (moe_dtype)config->dtype;
  m->place = place;
  m->micro_batch = config->micro_batch;
  m->seq = config->seq / place.cp.size;
  m->micros = config->global_batch / place.dp.size / config->micro_batch;
  moe_params_init(ctx, &m->params);
  stage_blocks(config->model.n_blocks, place.pp, &m->first_block, &m->blocks);
  m->has_embed = place.pp.rank == 0;
  m->has_head = place.pp.rank == place.pp.size - 1;

  size_t n = (size_t)config->model.n_blocks;
  moe_block_config *blocks = moe_alloc_array(ctx, n, sizeof *blocks);
  m->config.blocks = blocks;
  m->block = moe_alloc_array(ctx, (size_t)m->blocks, sizeof *m->block);
  m->rope = moe_alloc_array(ctx, (size_t)m->blocks + 1, sizeof *m->rope);
  m->first_slot = moe_alloc_array(ctx, (size_t)m->blocks + 1, sizeof *m->first_slot);
  moe_status status = MOE_MEMORY;
  if (blocks && m->block && m->rope && m->first_slot) {
    memcpy(blocks, config->model.blocks, n * sizeof *blocks);
    init_layers(m, config);
    status = declare(m);
  }
  if (status != MOE_OK) {
    moe_model_destroy(m);
    return status;
  }
  *out = m;
  return MOE_OK;
}

void moe_model_destroy(struct moe_model *m) {
  if (m == NULL) return;
  moe_params_destroy(&m->params);
  moe_release(m->ctx, (void *)(uintptr_t)m->config.blocks);
  moe_release(m->ctx, m->block);
  moe_release(m->ctx, m->rope);
  moe_release(m->ctx, m->first_slot);
  moe_release(m->ctx, m);
}

moe_status moe_model_saved_create(const struct moe_model *m, struct moe_model_saved *out) {
  *out = (struct moe_model_saved){0};
  out->block = moe_alloc_array(m->ctx, (size_t)m->blocks, sizeof *out->block);
  if (out->block == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < m->blocks; i++)
    if (m->block[i].is_moe)
      MOE_TRY(moe_dispatch_host_create(m->ctx, &m->block[i].moe.dispatch, m->config.hidden,
                                       &out->block[i].moe.plan.host));
  return MOE_OK;
}

void moe_model_saved_destroy(const struct moe_model *m, struct moe_model_saved *saved) {
  if (saved->block == NULL) return;
  for (int32_t i = 0; i < m->blocks; i++) moe_release(m->ctx, saved->block[i].moe.plan.host);
  moe_release(m->ctx, saved->block);
  saved->block = NULL;
}

static moe_status bind_stats(struct moe_model *m, struct moe_layer *layer, moe_aux_scope scope,
                             struct moe_arena *arena) {
  struct moe_moe_stats *s = &layer->stats;
  s->experts = layer->router.experts;
  s->segments = scope == MOE_AUX_SEQUENCE ? m->micro_batch : 1;
  int64_t entries = m->micros * s->segments * s->experts;
  MOE_GET(arena, s->count, entries);
  MOE_GET(arena, s->prob_sum, entries);
  MOE_GET(arena, s->dropped, m->micros);
  MOE_GET(arena, s->z_sum, m->micros);
  MOE_GET(arena, s->total, s->experts);
  return MOE_OK;
}

moe_status moe_model_bind(struct moe_model *m, const struct moe_kernels *k,
                          const struct moe_param_memory *memory, struct moe_arena *prepared,
                          struct moe_arena *stats) {
  for (int32_t i = 0; i < m->ropes; i++) {
    int64_t n = m->rope[i].positions * (m->rope[i].head_dim / 2);
    MOE_GET(prepared, m->rope[i].cos_t, n);
    MOE_GET(prepared, m->rope[i].sin_t, n);
  }
  for (int32_t i = 0; i < m->blocks; i++) {
    struct moe_block *b = &m->block[i];
    MOE_TRY(moe_block_bind(b, k, memory, prepared));
    if (b->is_moe) MOE_TRY(bind_stats(m, &b->moe, b->moe.router.aux_scope, stats));
  }
  return m->has_head ? moe_linear_bind(&m->head.out, k, memory, prepared) : MOE_OK;
}

moe_status moe_model_upload(struct moe_model *m, const struct moe_run *run) {
  for (int32_t i = 0; i < m->ropes; i++) {
    struct moe_rope_table *t = &m->rope[i];
    size_t n = (size_t)(t->positions * (t->head_dim / 2)), bytes = n * sizeof(float);
    float *host = moe_alloc_array(m->ctx, 2 * n, sizeof *host);
    if (host == NULL) return MOE_MEMORY;
    moe_rope_table_fill(t, host, host + n);
    run->k->copy(run->stream, t->cos_t, host, bytes);
    run->k->copy(run->stream, t->sin_t, host + n, bytes);
    moe_status status = run->k->stream_sync(run->stream);
    moe_release(m->ctx, host);
    MOE_TRY(status);
  }
  return MOE_OK;
}

void moe_model_prepare(const struct moe_model *m, const struct moe_run *run) {
  moe_trace_begin(run->trace, MOE_PART_PREPARE);
  for (int32_t i = 0; i < m->blocks; i++) moe_block_prepare(&m->block[i], run);
  if (m->has_head) moe_linear_prepare(&m->head.out, run);
  moe_trace_end(run->trace);
}

moe_status moe_model_hidden(const struct moe_model *m, const struct moe_run *run,
                            const int32_t *token, struct moe_model_saved *saved,
                            struct moe_mat *x) {
  MOE_TRY(moe_mat_get(run->saved, run->dtype, run->tokens, m->config.hidden, &saved->x));
  MOE_TRY(moe_embed_forward(&m->embed, run, token, saved->x));
  *x = saved->x;
  for (int32_t i = 0; i < m->blocks; i++) {
    struct moe_mat y; /* before what the block keeps: it stays when the block recomputes */
    MOE_TRY(moe_mat_get(run->saved, run->dtype, run->tokens, m->config.hidden, &y));
    MOE_TRY(moe_block_forward(&m->block[i], run, *x, &saved->block[i], y));
    *x = y;
  }
  return MOE_OK;
}

moe_status moe_model_forward(const struct moe_model *m, const struct moe_run *run,
                             const int32_t *token, const int32_t *label, double *loss_sum,
                             struct moe_model_saved *saved) {
  struct moe_mat x;
  MOE_TRY(moe_model_hidden(m, run, token, saved, &x));
  return moe_head_forward(&m->head, run, x, label, loss_sum, &saved->head);
}

moe_status moe_model_backward(const struct moe_model *m, const struct moe_run *run,
                              const int32_t *token, struct moe_model_saved *saved) {
  struct moe_mat d = saved->head.dx;
  MOE_TRY(moe_run_final(run, m->blocks)); /* the head's came with forward */
  for (int32_t i = m->blocks - 1; i >= 0; i--) {
    MOE_TRY(moe_block_backward(&m->block[i], run, &saved->block[i], d));
    MOE_TRY(moe_run_final(run, i));
  }
  return moe_embed_backward(&m->embed, run, token, d);
}
