/* Reading ids out of a mapped token file. */
#include <string.h>

#include "data/tokens.h"

int64_t moe_tokens_start(const moe_tokens *t, int64_t sequence) {
  if (sequence == t->sequences) return t->tokens;
  return t->starts ? t->starts[sequence] : moe_load_i64(t->offsets + 8 * sequence) / t->id_bytes;
}

int64_t moe_tokens_document_start(const moe_tokens *t, int64_t document) {
  return moe_tokens_start(t, moe_load_i64(t->first + 8 * document));
}

static int64_t length_of(const moe_tokens *t, int64_t sequence) {
  return moe_load_i32(t->lengths + 4 * sequence);
}

#define DECODE(type)                        \
  for (int64_t i = 0; i < count; i++) {     \
    type v;                                 \
    memcpy(&v, p + i * sizeof v, sizeof v); \
    ids[i] = (int32_t)v;                    \
  }                                         \
  break

/* Ids that no int32 holds become -1. */
static void decode(int32_t type, const unsigned char *p, int64_t count, int32_t *ids) {
  switch (type) {
    case MOE_TOKENS_U8:
      DECODE(uint8_t);
    case MOE_TOKENS_I8:
      DECODE(int8_t);
    case MOE_TOKENS_I16:
      DECODE(int16_t);
    case MOE_TOKENS_U16:
      DECODE(uint16_t);
    case MOE_TOKENS_I32:
      DECODE(int32_t);
    default:
      for (int64_t i = 0; i < count; i++) {
        int64_t v = moe_load_i64(p + 8 * i);
        ids[i] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
      }
  }
}

/* Negative ids count as above every limit. */
static uint32_t largest(const int32_t *ids, int64_t count) {
  uint32_t max = 0;
  for (int64_t i = 0; i < count; i++) max = (uint32_t)ids[i] > max ? (uint32_t)ids[i] : max;
  return max;
}

static moe_status fail_id(const moe_tokens *t, int64_t sequence, int64_t first, int64_t limit,
                          const unsigned char *p, const int32_t *ids) {
  int64_t i = 0;
  while ((uint32_t)ids[i] < limit) i++;
  int64_t id = t->type == MOE_TOKENS_I64 ? moe_load_i64(p + 8 * i) : ids[i];
  if (id < 0)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.bin: token %lld of sequence %lld is negative: %lld",
                    t->prefix, (long long)(first + i), (long long)sequence, (long long)id);
  return moe_fail(t->ctx, MOE_FORMAT,
                  "%s.bin: token %lld of sequence %lld is %lld, ids must be below %lld%s",
                  t->prefix, (long long)(first + i), (long long)sequence, (long long)id,
                  (long long)limit, limit == MOE_TOKENS_ID_LIMIT ? "" : " (the vocabulary)");
}

/* Part of one sequence. */
static moe_status copy_part(const moe_tokens *t, int64_t sequence, int64_t first, int64_t count,
                            int64_t limit, int32_t *ids) {
  const unsigned char *p = t->bin + moe_load_i64(t->offsets + 8 * sequence) + first * t->id_bytes;
  decode(t->type, p, count, ids);
  if (largest(ids, count) < limit) return MOE_OK;
  return fail_id(t, sequence, first, limit, p, ids);
}

/* The last sequence that begins at or before a position: the one that holds it. */
static int64_t sequence_at(const moe_tokens *t, int64_t position) {
  int64_t low = 0, high = t->sequences;
  while (high - low > 1) {
    int64_t mid = low + (high - low) / 2;
    if (moe_tokens_start(t, mid) <= position)
      low = mid;
    else
      high = mid;
  }
  return low;
}

moe_status moe_tokens_copy(const moe_tokens *t, int64_t first, int64_t count, int64_t limit,
                           int32_t *ids) {
  int64_t sequence = sequence_at(t, first), skip = first - moe_tokens_start(t, sequence);
  while (count > 0) {
    int64_t n = moe_min64(count, length_of(t, sequence) - skip);
    MOE_TRY(copy_part(t, sequence, skip, n, limit, ids));
    ids += n;
    count -= n;
    skip = 0;
    sequence++;
  }
  return MOE_OK;
}

static moe_status check_index(const moe_tokens *t, int64_t index) {
  if (index >= 0 && index < t->sequences) return MOE_OK;
  return moe_fail(t->ctx, MOE_INVALID, "%s: no sequence %lld, there are %lld (from 0)", t->prefix,
                  (long long)index, (long long)t->sequences);
}

moe_status moe_tokens_length(const moe_tokens *t, int64_t index, int64_t *out) {
  MOE_TRY(check_index(t, index));
  *out = length_of(t, index);
  return MOE_OK;
}

moe_status moe_tokens_read(const moe_tokens *t, int64_t index, int64_t first, int64_t count,
                           int32_t *ids) {
  MOE_TRY(check_index(t, index));
  int64_t length = length_of(t, index);
  if (first < 0 || count < 0 || first > length || count > length - first)
    return moe_fail(t->ctx, MOE_INVALID,
                    "%s: sequence %lld has %lld tokens, asked for %lld from %lld", t->prefix,
                    (long long)index, (long long)length, (long long)count, (long long)first);
  return copy_part(t, index, first, count, MOE_TOKENS_ID_LIMIT, ids);
}

moe_status moe_tokens_verify(moe_tokens *t, int64_t vocab, moe_tokens_info *out) {
  enum { CHUNK = 4096 };
  int32_t ids[CHUNK];
  if (out) MOE_CHECK_SIZE(t->ctx, out);
  if (vocab < 0)
    return moe_fail(t->ctx, MOE_INVALID, "vocab is %lld, must be 0 (no limit) or more",
                    (long long)vocab);
  int64_t limit = vocab == 0 ? MOE_TOKENS_ID_LIMIT : moe_min64(vocab, MOE_TOKENS_ID_LIMIT);
  int64_t max = -1;
  for (int64_t s = 0; s < t->sequences; s++) {
    int64_t length = length_of(t, s);
    for (int64_t at = 0; at < length; at += CHUNK) {
      int64_t n = moe_min64(CHUNK, length - at);
      MOE_TRY(copy_part(t, s, at, n, limit, ids));
      max = moe_max64(max, largest(ids, n));
    }
  }
  t->max_id = max;
  return out ? moe_tokens_get_info(t, out) : MOE_OK;
}
