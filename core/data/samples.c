#include "data/samples.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"

/* The validation split is the end of the stream: the cut may fall inside a document, both parts get
 * a token at least. */
static moe_status cut_split(struct moe_samples *s, const moe_loader_config *config) {
  int64_t total = s->tokens->tokens, held = 0;
  if (config->valid_fraction > 0) {
    if (total < 2)
      return moe_fail(s->ctx, MOE_INVALID,
                      "%s: %lld token cannot be split into training and "
                      "validation",
                      s->tokens->prefix, (long long)total);
    held = (int64_t)llround(config->valid_fraction * (double)total);
    held = moe_max64(1, moe_min64(held, total - 1));
  }
  s->begin = config->split == MOE_SPLIT_VALID ? total - held : 0;
  s->end = config->split == MOE_SPLIT_VALID ? total : total - held;
  s->per_epoch = (s->end - s->begin - 1) / s->seq;
  if (s->per_epoch >= 1) return MOE_OK;
  return moe_fail(s->ctx, MOE_INVALID,
                  "%s: the %s split has %lld of %lld tokens, one sample needs %lld (seq + 1); take "
                  "more data, a shorter seq or another valid_fraction (%g)",
                  s->tokens->prefix, config->split == MOE_SPLIT_VALID ? "validation" : "training",
                  (long long)(s->end - s->begin), (long long)total, (long long)s->seq + 1,
                  config->valid_fraction);
}

/* How many documents begin at or before a position. */
static int64_t documents_until(const moe_tokens *t, int64_t position) {
  int64_t low = 0, high = t->documents;
  while (low < high) {
    int64_t mid = low + (high - low) / 2;
    if (moe_tokens_document_start(t, mid) <= position)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static moe_status init_opened(struct moe_samples *s, const moe_loader_config *config) {
  MOE_TRY(cut_split(s, config));
  s->document = documents_until(s->tokens, s->begin) - 1;
  s->documents = documents_until(s->tokens, s->end - 1) - s->document;
  if (!s->shuffle || s->documents < 2) return MOE_OK;
  s->ends = moe_alloc_array(s->ctx, (size_t)s->documents, sizeof *s->ends);
  return s->ends ? MOE_OK : MOE_MEMORY;
}

moe_status moe_samples_init(moe_ctx *ctx, const moe_loader_config *config, int32_t source,
                            struct moe_samples *out) {
  *out = (struct moe_samples){.ctx = ctx,
                              .seq = config->seq,
                              .shuffle = config->shuffle != 0,
                              .seed = config->seed,
                              .source = source,
                              .epoch = -1};
  moe_status status = moe_tokens_open(ctx, config->sources[source].prefix, &out->tokens);
  if (status == MOE_OK) status = init_opened(out, config);
  if (status != MOE_OK) moe_samples_destroy(out);
  return status;
}

void moe_samples_destroy(struct moe_samples *s) {
  moe_tokens_close(s->tokens);
  moe_release(s->ctx, s->ends);
  *s = (struct moe_samples){.ctx = s->ctx};
}

/* The document at `slot` of the shuffled order: its part [first, first+count) of the stream that
 * lies in the split. */
static void shuffled_document(const struct moe_samples *s, int64_t slot, int64_t *first,
                              int64_t *count) {
  int64_t d = s->document +
              (int64_t)moe_rng_permute(s->document_key, (uint64_t)slot, (uint64_t)s->documents);
  *first = moe_max64(moe_tokens_document_start(s->tokens, d), s->begin);
  *count = moe_min64(moe_tokens_document_start(s->tokens, d + 1), s->end) - *first;
}

static struct moe_rng_key epoch_key(const struct moe_samples *s, const char *what, int64_t epoch) {
  char name[96];
  snprintf(name, sizeof name, "data.%s.%d.%lld", what, s->source, (long long)epoch);
  return moe_rng_key(s->seed, name);
}

static void enter_epoch(struct moe_samples *s, int64_t epoch) {
  if (s->epoch == epoch || !s->shuffle) return;
  s->epoch = epoch;
  s->document_key = epoch_key(s, "documents", epoch);
  s->sample_key = epoch_key(s, "samples", epoch);
  int64_t end = 0;
  for (int64_t slot = 0; s->ends && slot < s->documents; slot++) {
    int64_t first, count;
    shuffled_document(s, slot, &first, &count);
    s->ends[slot] = end += count;
  }
}

/* The first slot that ends behind a position of the shuffled order: the one that holds it. */
static int64_t slot_at(const struct moe_samples *s, int64_t position) {
  int64_t low = 0, high = s->documents - 1;
  while (low < high) {
    int64_t mid = low + (high - low) / 2;
    if (s->ends[mid] > position)
      high = mid;
    else
      low = mid + 1;
  }
  return low;
}

static moe_status read_shuffled(const struct moe_samples *s, int64_t position, int64_t limit,
                                int32_t *ids) {
  int64_t left = s->seq + 1, slot = slot_at(s, position);
  int64_t skip = position - (slot ? s->ends[slot - 1] : 0);
  while (left > 0) {
    int64_t first, count;
    shuffled_document(s, slot++, &first, &count);
    int64_t n = moe_min64(left, count - skip);
    if (n > 0) MOE_TRY(moe_tokens_copy(s->tokens, first + skip, n, limit, ids));
    ids += n;
    left -= n;
    skip = 0;
  }
  return MOE_OK;
}

moe_status moe_samples_read(struct moe_samples *s, int64_t index, int64_t limit, int32_t *ids) {
  enter_epoch(s, index / s->per_epoch);
  int64_t window = index % s->per_epoch;
  if (s->shuffle)
    window = (int64_t)moe_rng_permute(s->sample_key, (uint64_t)window, (uint64_t)s->per_epoch);
  int64_t position = window * s->seq;
  if (s->ends) return read_shuffled(s, position, limit, ids);
  return moe_tokens_copy(s->tokens, s->begin + position, s->seq + 1, limit, ids);
}
