#include "data/loader.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

void moe_source_config_init(moe_source_config *config) {
  *config = (moe_source_config){.size = sizeof *config, .weight = 1};
}

void moe_loader_config_init(moe_loader_config *config) {
  *config = (moe_loader_config){.size = sizeof *config, .shuffle = 1, .mask_id = -1};
}

static moe_status check_source(moe_ctx *ctx, const moe_loader_config *config, int32_t i) {
  const moe_source_config *source = &config->sources[i];
  if (source->size != sizeof *source) /* an array: a larger size would be another stride */
    return moe_fail(ctx, MOE_INVALID,
                    "sources[%d]: size is %zu, must be %zu (call its _init first)", i, source->size,
                    sizeof *source);
  if (source->prefix == NULL || *source->prefix == 0)
    return moe_fail(ctx, MOE_INVALID, "sources[%d]: no prefix of a token file", i);
  if (!(source->weight > 0) || !isfinite(source->weight))
    return moe_fail(ctx, MOE_INVALID, "sources[%d]: the weight of %s is %g, must be positive", i,
                    source->prefix, source->weight);
  return MOE_OK;
}

static moe_status check_config(moe_ctx *ctx, const moe_loader_config *config) {
  MOE_CHECK_SIZE(ctx, config);
  if (config->n_sources < 1 || config->n_sources > MOE_BLEND_SOURCES || config->sources == NULL)
    return moe_fail(ctx, MOE_INVALID, "data has %d sources, must be 1 to %d", config->n_sources,
                    MOE_BLEND_SOURCES);
  for (int32_t i = 0; i < config->n_sources; i++) MOE_TRY(check_source(ctx, config, i));
  if (config->seq < 1)
    return moe_fail(ctx, MOE_INVALID, "seq is %d, must be 1 or more", config->seq);
  if (config->vocab < 0)
    return moe_fail(ctx, MOE_INVALID, "vocab is %lld, must be 0 (no check) or more",
                    (long long)config->vocab);
  if (!(config->valid_fraction >= 0 && config->valid_fraction < 1))
    return moe_fail(ctx, MOE_INVALID, "valid_fraction is %g, must be in [0, 1)",
                    config->valid_fraction);
  if (config->split != MOE_SPLIT_TRAIN && config->split != MOE_SPLIT_VALID)
    return moe_fail(ctx, MOE_INVALID, "split is %d, must be %d (train) or %d (valid)",
                    config->split, MOE_SPLIT_TRAIN, MOE_SPLIT_VALID);
  if (config->split == MOE_SPLIT_VALID && config->valid_fraction == 0)
    return moe_fail(ctx, MOE_INVALID,
                    "the validation split is empty: valid_fraction is 0, set it above 0");
  if (config->mask_id < -1)
    return moe_fail(ctx, MOE_INVALID, "mask_id is %d, must be an id or -1 (none)", config->mask_id);
  return MOE_OK;
}

static moe_status open_sources(moe_loader *l, const moe_loader_config *config) {
  l->samples = moe_alloc_array(l->ctx, (size_t)config->n_sources, sizeof *l->samples);
  if (l->samples == NULL) return MOE_MEMORY;
  for (; l->sources < config->n_sources; l->sources++) {
    MOE_TRY(moe_samples_init(l->ctx, config, l->sources, &l->samples[l->sources]));
    l->epoch_samples += l->samples[l->sources].per_epoch;
  }
  return MOE_OK;
}

static moe_status init_blend(moe_loader *l, const moe_loader_config *config) {
  double *weights = moe_alloc_array(l->ctx, (size_t)config->n_sources, sizeof *weights);
  if (weights == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < config->n_sources; i++) weights[i] = config->sources[i].weight;
  moe_status status = moe_blend_init(l->ctx, weights, config->n_sources, &l->blend);
  moe_release(l->ctx, weights);
  return status;
}

/* Of everything that decides which tokens sample n has; not of the names of the files. */
static uint64_t fingerprint(const moe_loader *l, const moe_loader_config *config) {
  uint64_t words[5] = {(uint64_t)config->seq, config->seed, config->shuffle != 0,
                       (uint64_t)config->split, (uint64_t)(int64_t)config->mask_id};
  uint64_t hash = XXH3_64bits(words, sizeof words);
  double fraction = config->valid_fraction + 0.0;
  hash = XXH3_64bits_withSeed(&fraction, sizeof fraction, hash);
  for (int32_t i = 0; i < l->sources; i++) {
    uint64_t source[2] = {(uint64_t)l->blend.share[i], moe_tokens_hash(l->samples[i].tokens)};
    hash = XXH3_64bits_withSeed(source, sizeof source, hash);
  }
  return hash;
}

static moe_status init(moe_loader *l, const moe_loader_config *config) {
  l->seq = config->seq;
  l->mask_id = config->mask_id;
  l->limit =
      config->vocab == 0 ? MOE_TOKENS_ID_LIMIT : moe_min64(config->vocab, MOE_TOKENS_ID_LIMIT);
  MOE_TRY(open_sources(l, config));
  MOE_TRY(init_blend(l, config));
  l->row = moe_alloc_array(l->ctx, (size_t)config->seq + 1, sizeof *l->row);
  if (l->row == NULL) return MOE_MEMORY;
  l->fingerprint = fingerprint(l, config);
  return MOE_OK;
}

moe_status moe_loader_create(moe_ctx *ctx, const moe_loader_config *config, moe_loader **out) {
  *out = NULL;
  MOE_TRY(check_config(ctx, config));
  moe_loader *l = moe_alloc(ctx, sizeof *l);
  if (l == NULL) return MOE_MEMORY;
  l->ctx = ctx;
  l->blend.ctx = ctx;
  moe_status status = init(l, config);
  if (status != MOE_OK) {
    moe_loader_destroy(l);
    return status;
  }
  *out = l;
  return MOE_OK;
}

void moe_loader_destroy(moe_loader *l) {
  if (l == NULL) return;
  for (int32_t i = 0; i < l->sources; i++) moe_samples_destroy(&l->samples[i]);
  moe_blend_destroy(&l->blend);
  moe_release(l->ctx, l->samples);
  moe_release(l->ctx, l->row);
  moe_release(l->ctx, l);
}

moe_status moe_loader_read(moe_loader *l, int64_t cursor, int64_t count, int32_t *tokens_BS,
                           int32_t *labels_BS) {
  if (cursor < 0 || count < 0 || cursor > INT64_MAX - count)
    return moe_fail(l->ctx, MOE_INVALID, "cannot read %lld samples from %lld", (long long)count,
                    (long long)cursor);
  const int64_t S = l->seq;
  moe_blend_seek(&l->blend, cursor);
  for (int64_t b = 0; b < count; b++) {
    int32_t source;
    int64_t index;
    moe_blend_next(&l->blend, &source, &index);
    MOE_TRY(moe_samples_read(&l->samples[source], index, l->limit, l->row));
    memcpy(tokens_BS + b * S, l->row, (size_t)S * sizeof *l->row);
    int32_t *labels_S = labels_BS + b * S;
    for (int64_t s = 0; s < S; s++) labels_S[s] = l->row[s + 1] == l->mask_id ? -1 : l->row[s + 1];
  }
  return MOE_OK;
}

int64_t moe_loader_epoch_samples(const moe_loader *l) { return l->epoch_samples; }

uint64_t moe_loader_fingerprint(const moe_loader *l) { return l->fingerprint; }
