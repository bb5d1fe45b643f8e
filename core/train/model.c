#include "train/model.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "pipe/stages.h"

static void mark_slots(struct moe_model *m, int32_t block) {
  for (int f = 0; f < MOE_FAMILIES; f++) m->first_slot[block][f] = m->params.pack[f].slots;
}

/* Tied weights lie on both ends of the pipeline under one name; the last stage has the copy. Its
 * slot stands before the blocks on either side, since its gradient is final when the embedding's is
 * (moe_trainer_sum_tied). */
static moe_status declare_embed(struct moe_model *m) {
  bool tied = m->config.tie_embeddings != 0, copy = tied && m->has_head && !m->has_embed;
  m->shares_embed = tied && m->has_embed != m->has_head;
  if (!m->has_embed && !copy) return MOE_OK;
  MOE_TRY(moe_embed_params(&m->embed, &m->config, m->place, &m->params));
  m->embed.tied = tied && m->has_head;
  struct moe_pack *pack = &m->params.pack[m->embed.w.family];
  pack->slot[pack->slots - 1].second = copy;
  return MOE_OK;
}

static moe_status declare(struct moe_model *m) {
  MOE_TRY(declare_embed(m));
  for (int32_t i = 0; i < m->blocks; i++) {
    char prefix[32];
    mark_slots(m, i);
    snprintf(prefix, sizeof prefix, "blocks.%d.", m->number[i]);
    MOE_TRY(moe_block_params(&m->block[i], &m->config, &m->config.blocks[m->number[i]], m->place,
                             prefix, &m->params));
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
    const moe_block_config *block = &m->config.blocks[m->number[i]];
    moe_block_init(&m->block[i], &m->config, block, &config->dispatch, m->place, m->dtype, rows);
    m->block[i].attn.cp_kind = config->layout.cp_kind;
    m->block[i].attn.rope = rope_table(m, block->rope_theta, block->head_dim);
  }
  moe_head_init(&m->head, &m->config, m->place, m->dtype, rows);
}

static bool has_global_aux(const moe_model_config *model) {
  for (int32_t i = 0; i < model->n_blocks; i++) {
    const moe_block_config *b = &model->blocks[i];
    if (b->ffn_kind == MOE_FFN_MOE && b->aux_coef != 0 && b->aux_scope == MOE_AUX_GLOBAL)
      return true;
  }
  return false;
}

static struct moe_pipe_shape shape_of(const moe_train_config *config, int32_t pp, int32_t dp) {
  int32_t chunks = config->layout.chunks > 1 ? config->layout.chunks : 1;
  return (struct moe_pipe_shape){
      .kind = has_global_aux(&config->model) ? MOE_SCHEDULE_ALL_FORWARD : MOE_SCHEDULE_1F1B,
      .pp = pp,
      .chunks = chunks,
      .micros = config->global_batch / dp / config->micro_batch,
      .group = config->layout.group};
}

struct moe_pipe_shape moe_model_pipe_shape(const moe_train_config *config,
                                           const struct moe_layout *layout) {
  const int32_t *size = layout->size[MOE_VIEW_ATTN];
  return shape_of(config, size[MOE_AXIS_PP], size[MOE_AXIS_DP]);
}

/* Which blocks are here, in which chunk. m->number has room for all of the model. */
static void find_blocks(struct moe_model *m, const moe_train_config *config) {
  int32_t pp = m->shape.pp, stages = pp * m->shape.chunks;
  for (int32_t c = 0; c < m->shape.chunks; c++) {
    int32_t stage = c * pp + m->place.pp.rank;
    struct moe_stage s = moe_stage_of(&config->layout, config->model.n_blocks, stages, stage);
    m->chunk[c] = (struct moe_chunk){
        .first = m->blocks, .blocks = s.count, .embed = stage == 0, .head = stage == stages - 1};
    for (int32_t i = 0; i < s.count; i++) m->number[m->blocks++] = s.first + i;
    m->has_embed |= m->chunk[c].embed;
    m->has_head |= m->chunk[c].head;
  }
}

static void init(struct moe_model *m, const moe_train_config *config, struct moe_place place) {
  m->config = config->model;
  m->config.blocks = NULL;
  m->dtype = (moe_dtype)config->dtype;
  m->place = place;
  m->micro_batch = config->micro_batch;
  m->seq = config->seq / place.cp.size;
  m->shape = shape_of(config, place.pp.size, place.dp.size);
  m->micros = m->shape.micros;
  m->global_aux = m->shape.kind == MOE_SCHEDULE_ALL_FORWARD;
  moe_params_init(m->ctx, &m->params);
}

static moe_status build(struct moe_model *m, const moe_train_config *config) {
  size_t n = (size_t)config->model.n_blocks;
  moe_block_config *blocks = moe_alloc_array(m->ctx, n, sizeof *blocks);
  m->config.blocks = blocks;
  m->chunk = moe_alloc_array(m->ctx, (size_t)m->shape.chunks, sizeof *m->chunk);
  m->number = moe_alloc_array(m->ctx, n, sizeof *m->number);
  if (!blocks || !m->chunk || !m->number) return MOE_MEMORY;
  memcpy(blocks, config->model.blocks, n * sizeof *blocks);
  find_blocks(m, config);
  size_t here = (size_t)m->blocks;
  m->block = moe_alloc_array(m->ctx, here, sizeof *m->block);
  m->rope = moe_alloc_array(m->ctx, here + 1, sizeof *m->rope);
  m->first_slot = moe_alloc_array(m->ctx, here + 1, sizeof *m->first_slot);
  if (!m->block || !m->rope || !m->first_slot) return MOE_MEMORY;
  init_layers(m, config);
  return declare(m);
}

moe_status moe_model_create(moe_ctx *ctx, const moe_train_config *config, struct moe_place place,
                            struct moe_model **out) {
  *out = NULL;
  struct moe_model *m = moe_alloc(ctx, sizeof *m);
  if (m == NULL) return MOE_MEMORY;
  m->ctx = ctx;
  init(m, config, place);
  moe_status status = build(m, config);
  if (status == MOE_OK)
    *out = m;
  else
    moe_model_destroy(m);
  return status;
}

void moe_model_destroy(struct moe_model *m) {
  if (m == NULL) return;
  moe_params_destroy(&m->params);
  moe_release(m->ctx, (void *)(uintptr_t)m->config.blocks);
  moe_release(m->ctx, m->chunk);
  moe_release(m->ctx, m->number);
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
                                       m->micro_batch, &out->block[i].moe.plan.host));
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
  MOE_GET(arena, s->kept, m->micros);
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

/* y: where the output of the chunk's last block goes. */
static moe_status run_blocks(const struct moe_model *m, const struct moe_run *run,
                             const struct moe_chunk *c, struct moe_model_saved *saved,
                             struct moe_mat y) {
  struct moe_mat x = saved->x;
  for (int32_t i = 0; i < c->blocks; i++) {
    struct moe_mat out = y; /* before what the block keeps: it stays when the block recomputes */
    if (i < c->blocks - 1)
      MOE_TRY(moe_mat_get(run->saved, run->dtype, run->tokens, m->config.hidden, &out));
    MOE_TRY(moe_block_forward(&m->block[c->first + i], run, x, &saved->block[c->first + i], out));
    x = out;
  }
  return MOE_OK;
}

moe_status moe_model_hidden(const struct moe_model *m, const struct moe_run *run, int32_t chunk,
                            const int32_t *token, struct moe_mat x, struct moe_model_saved *saved,
                            struct moe_mat *y) {
  const struct moe_chunk *c = &m->chunk[chunk];
  int64_t hidden = m->config.hidden;
  saved->x = x;
  if (c->embed) {
    MOE_TRY(moe_mat_get(run->saved, run->dtype, run->tokens, hidden, &saved->x));
    MOE_TRY(moe_embed_forward(&m->embed, run, token, saved->x));
  }
  if (c->blocks == 0) { /* nothing but an end of the model, or a stage that passes on */
    size_t bytes = (size_t)(run->tokens * hidden) * moe_dtype_bytes(run->dtype);
    if (c->head)
      *y = saved->x;
    else
      run->k->copy(run->stream, y->p, saved->x.p, bytes);
    return MOE_OK;
  }
  if (c->head) MOE_TRY(moe_mat_get(run->saved, run->dtype, run->tokens, hidden, y));
  return run_blocks(m, run, c, saved, *y);
}

moe_status moe_model_forward(const struct moe_model *m, const struct moe_run *run, int32_t chunk,
                             const int32_t *token, const int32_t *label, double *loss_sum,
                             struct moe_mat x, struct moe_model_saved *saved, struct moe_mat y) {
  MOE_TRY(moe_model_hidden(m, run, chunk, token, x, saved, &y));
  if (!m->chunk[chunk].head) return MOE_OK;
  return moe_head_forward(&m->head, run, y, label, loss_sum, &saved->head);
}

moe_status moe_model_backward(const struct moe_model *m, const struct moe_run *run, int32_t chunk,
                              const int32_t *token, struct moe_model_saved *saved,
                              struct moe_mat d) {
  const struct moe_chunk *c = &m->chunk[chunk];
  struct moe_mat dx = saved->head.dx;
  if (c->head) MOE_TRY(moe_run_final(run, m->blocks)); /* the head's came with forward */
  if (c->head && !c->embed)
    run->k->copy(run->stream, d.p, dx.p, (size_t)(dx.rows * dx.cols) * moe_dtype_bytes(run->dtype));
  if (c->head && c->embed) d = dx;
  for (int32_t i = c->first + c->blocks - 1; i >= c->first; i--) {
    MOE_TRY(moe_block_backward(&m->block[i], run, &saved->block[i], d));
    MOE_TRY(moe_run_final(run, i));
  }
  return c->embed ? moe_embed_backward(&m->embed, run, token, d) : MOE_OK;
}
