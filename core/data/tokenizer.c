/* The tokenizer as its users see it, and the built-in one over bytes. */
#include <string.h>

#include "data/tokenizer_parts.h"
#include "data/utf8.h"

enum { BYTES_EOD = 256 };
static const size_t TEXT_MAX = (size_t)1 << 30; /* keeps positions of symbols in 32 bits */

static void init(moe_ctx *ctx, struct moe_tokenizer *t) {
  t->ctx = ctx;
  t->eod = -1;
  moe_vocab_init(ctx, &t->vocab);
  for (int i = 0; i < 2; i++) moe_added_init(ctx, &t->added[i]);
  moe_normal_init(ctx, &t->normal);
  moe_cutter_init(ctx, &t->cutter);
  moe_bpe_init(ctx, &t->vocab, &t->bpe);
  moe_decoder_init(ctx, &t->decoder);
  t->ids.ctx = t->before.ctx = t->after.ctx = ctx;
  moe_text_init(ctx, &t->repaired);
}

void moe_tokenizer_close(moe_tokenizer *t) {
  if (t == NULL) return;
  moe_vocab_destroy(&t->vocab);
  for (int i = 0; i < 2; i++) moe_added_destroy(&t->added[i]);
  moe_normal_destroy(&t->normal);
  moe_cutter_destroy(&t->cutter);
  moe_bpe_destroy(&t->bpe);
  moe_decoder_destroy(&t->decoder);
  moe_ids_destroy(&t->ids);
  moe_ids_destroy(&t->before);
  moe_ids_destroy(&t->after);
  moe_text_destroy(&t->repaired);
  moe_release(t->ctx, t);
}

static moe_status open_bytes(struct moe_tokenizer *t) {
  t->bytes = t->decoder.bytes = true;
  t->eod = BYTES_EOD;
  MOE_TRY(moe_vocab_reserve(&t->vocab, BYTES_EOD + 1, 0));
  for (int32_t i = 0; i < 256; i++) {
    char c = (char)i;
    MOE_TRY(moe_vocab_add(&t->vocab, i, &c, 1, 0));
  }
  return moe_vocab_add(&t->vocab, BYTES_EOD, "", 0, MOE_TOKEN_SPECIAL);
}

moe_status moe_tokenizer_open(moe_ctx *ctx, const char *path, moe_tokenizer **out) {
  *out = NULL;
  struct moe_tokenizer *t = moe_alloc(ctx, sizeof *t);
  if (t == NULL) return MOE_MEMORY;
  init(ctx, t);
  moe_status status =
      path == NULL || strcmp(path, "bytes") == 0 ? open_bytes(t) : moe_tokenizer_json(t, path);
  if (status != MOE_OK) {
    moe_tokenizer_close(t);
    return status;
  }
  *out = t;
  return MOE_OK;
}

int64_t moe_tokenizer_vocab(const moe_tokenizer *t) { return t->vocab.size; }

int32_t moe_tokenizer_eod(const moe_tokenizer *t) { return t->eod; }

static moe_status encode_bytes(struct moe_tokenizer *t, const char *text, size_t bytes) {
  MOE_TRY(moe_ids_reserve(&t->ids, bytes));
  for (size_t i = 0; i < bytes; i++) t->ids.v[i] = (uint8_t)text[i];
  t->ids.n = bytes;
  return MOE_OK;
}

/* Normalised text without added tokens. first: it is the beginning of the user's text. */
static moe_status encode_plain(struct moe_tokenizer *t, const char *text, size_t bytes,
                               bool first) {
  struct moe_cut cut;
  MOE_TRY(moe_cutter_run(&t->cutter, text, bytes, first, &cut));
  for (size_t i = 0; i < cut.n; i++)
    MOE_TRY(moe_bpe_encode(&t->bpe, cut.text + cut.pieces[i].start,
                           cut.pieces[i].end - cut.pieces[i].start, &t->ids));
  return MOE_OK;
}

/* Level 0 looks for the added tokens of raw text, then normalises; level 1 for the others. */
static moe_status encode_parts(struct moe_tokenizer *t, int level, const char *text, size_t bytes,
                               bool first) {
  struct moe_added_walk walk = moe_added_start(&t->added[level], text, bytes);
  struct moe_added_part part;
  while (moe_added_next(&walk, &part)) {
    const char *s = text + part.start;
    size_t n = part.end - part.start;
    if (part.id >= 0) {
      MOE_TRY(moe_ids_append(&t->ids, &part.id, 1));
    } else if (level == 0) {
      MOE_TRY(moe_normal_run(&t->normal, &s, &n));
      MOE_TRY(encode_parts(t, 1, s, n, first && part.start == 0));
    } else {
      MOE_TRY(encode_plain(t, s, n, first && part.start == 0));
    }
  }
  return MOE_OK;
}

moe_status moe_tokenizer_encode(moe_tokenizer *t, const char *text, size_t bytes,
                                int32_t add_special, const int32_t **ids, int64_t *count) {
  if (bytes > TEXT_MAX)
    return moe_fail(t->ctx, MOE_INVALID,
                    "a text of %zu bytes: at most %zu in one call, cut it into documents", bytes,
                    TEXT_MAX);
  t->ids.n = 0;
  if (t->bytes) {
    MOE_TRY(encode_bytes(t, text, bytes));
  } else {
    if (bytes > 0 && moe_utf8_valid(text, bytes) < bytes) {
      t->repaired.len = 0;
      moe_utf8_repair(&t->repaired, text, bytes);
      if (t->repaired.failed) return MOE_MEMORY;
      text = t->repaired.s;
      bytes = t->repaired.len;
    }
    if (add_special) MOE_TRY(moe_ids_append(&t->ids, t->before.v, t->before.n));
    MOE_TRY(encode_parts(t, 0, text, bytes, true));
    if (add_special) MOE_TRY(moe_ids_append(&t->ids, t->after.v, t->after.n));
  }
  *ids = t->ids.v;
  *count = (int64_t)t->ids.n;
  return MOE_OK;
}

moe_status moe_tokenizer_decode(moe_tokenizer *t, const int32_t *ids, int64_t count,
                                int32_t skip_special, const char **text, size_t *bytes) {
  const struct moe_text *out;
  if (count < 0) return moe_fail(t->ctx, MOE_INVALID, "a count of %lld ids", (long long)count);
  MOE_TRY(moe_decoder_run(&t->decoder, &t->vocab, ids, count, skip_special != 0, &out));
  *text = out->s;
  *bytes = out->len;
  return MOE_OK;
}
