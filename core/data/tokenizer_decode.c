/* From ids to text: the decoder of a tokenizer.json, step by step over a list of strings. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_parts.h"
#include "data/utf8.h"

void moe_decoder_init(moe_ctx *ctx, struct moe_decoder *decoder) {
  *decoder = (struct moe_decoder){.ctx = ctx};
  for (int i = 0; i < 2; i++) moe_text_init(ctx, &decoder->strings[i].text);
}

void moe_decoder_destroy(struct moe_decoder *decoder) {
  for (size_t i = 0; i < decoder->n; i++) {
    moe_release(decoder->ctx, decoder->steps[i].find);
    moe_release(decoder->ctx, decoder->steps[i].with);
  }
  for (int i = 0; i < 2; i++) {
    moe_text_destroy(&decoder->strings[i].text);
    moe_release(decoder->ctx, decoder->strings[i].end);
  }
  moe_decoder_init(decoder->ctx, decoder);
}

/* Ends the string that was appended to strings->text. */
static moe_status finish(struct moe_strings *strings) {
  if (strings->text.failed) return MOE_MEMORY;
  if (strings->n == strings->cap) {
    size_t cap = strings->cap ? 2 * strings->cap : 64;
    size_t *end = moe_realloc(strings->text.ctx, strings->end, cap * sizeof *end);
    if (end == NULL) return MOE_MEMORY;
    strings->end = end;
    strings->cap = cap;
  }
  strings->end[strings->n++] = strings->text.len;
  return MOE_OK;
}

static void clear(struct moe_strings *strings) {
  strings->n = 0;
  strings->text.len = 0;
  moe_text_append(&strings->text, "", 0);
}

static const char *string_at(const struct moe_strings *strings, size_t i, size_t *n) {
  size_t start = i ? strings->end[i - 1] : 0;
  *n = strings->end[i] - start;
  return strings->text.s + start;
}

/* The bytes a string in the byte alphabet stands for; a string with any other character stands for
 * itself. */
static void from_alphabet(const char *s, size_t n, struct moe_text *out) {
  size_t length, mark = out->len;
  for (size_t i = 0; i < n; i += length) {
    int32_t byte = moe_byte_alphabet_byte(moe_utf8_get(s + i, &length));
    if (byte < 0) {
      out->len = mark;
      moe_text_append(out, s, n);
      return;
    }
    char c = (char)byte;
    moe_text_append(out, &c, 1);
  }
}

static moe_status byte_level(const struct moe_strings *in, struct moe_strings *out) {
  struct moe_text bytes;
  moe_text_init(in->text.ctx, &bytes);
  for (size_t i = 0, n; i < in->n; i++) {
    const char *s = string_at(in, i, &n);
    from_alphabet(s, n, &bytes);
  }
  if (bytes.len) moe_utf8_repair(&out->text, bytes.s, bytes.len);
  if (bytes.failed) out->text.failed = true;
  moe_text_destroy(&bytes);
  return finish(out);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xNN>", or -1. */
static int fallback_byte(const char *s, size_t n) {
  if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
  int high = hex(s[3]), low = hex(s[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Strings [i, j) are bytes: one string of them, or one U+FFFD for each where they are not UTF-8. */
static moe_status spell(const struct moe_strings *in, size_t i, size_t j, struct moe_strings *out) {
  size_t mark = out->text.len, n;
  for (size_t k = i; k < j; k++) {
    const char *s = string_at(in, k, &n);
    char byte = (char)fallback_byte(s, n);
    moe_text_append(&out->text, &byte, 1);
  }
  if (out->text.failed) return MOE_MEMORY;
  if (moe_utf8_valid(out->text.s + mark, j - i) == j - i) return finish(out);
  out->text.len = mark;
  for (size_t k = i; k < j; k++) {
    moe_text_append(&out->text, "\xEF\xBF\xBD", 3);
    MOE_TRY(finish(out));
  }
  return MOE_OK;
}

static moe_status byte_fallback(const struct moe_strings *in, struct moe_strings *out) {
  for (size_t i = 0, j, n; i < in->n; i = j) {
    const char *s = string_at(in, i, &n);
    for (j = i; j < in->n; j++) {
      size_t m;
      const char *t = string_at(in, j, &m);
      if (fallback_byte(t, m) < 0) break;
    }
    if (j > i) {
      MOE_TRY(spell(in, i, j, out));
    } else {
      j = i + 1;
      moe_text_append(&out->text, s, n);
      MOE_TRY(finish(out));
    }
  }
  return MOE_OK;
}

static void strip(const struct moe_decode_step *step, const char *s, size_t n,
                  struct moe_text *out) {
  size_t k = step->n_find;
  for (int64_t i = 0; i < step->start && n >= k && memcmp(s, step->find, k) == 0; i++) {
    s += k;
    n -= k;
  }
  for (int64_t i = 0; i < step->stop && n >= k && memcmp(s + n - k, step->find, k) == 0; i++)
    n -= k;
  moe_text_append(out, s, n);
}

static moe_status each(const struct moe_decode_step *step, const struct moe_strings *in,
                       struct moe_strings *out) {
  for (size_t i = 0, n; i < in->n; i++) {
    const char *s = string_at(in, i, &n);
    if (step->kind == MOE_DECODE_STRIP)
      strip(step, s, n, &out->text);
    else if (step->kind == MOE_DECODE_REPLACE)
      moe_utf8_replace(&out->text, s, n, step->find, step->n_find, step->with, step->n_with);
    else
      moe_utf8_replace(&out->text, s, n, step->find, step->n_find, " ",
                       i == 0 && step->start ? 0 : 1);
    MOE_TRY(finish(out));
  }
  return MOE_OK;
}

static moe_status run_step(const struct moe_decode_step *step, const struct moe_strings *in,
                           struct moe_strings *out) {
  clear(out);
  switch (step->kind) {
    case MOE_DECODE_BYTE_LEVEL:
      return byte_level(in, out);
    case MOE_DECODE_BYTE_FALLBACK:
      return byte_fallback(in, out);
    case MOE_DECODE_FUSE:
      moe_text_append(&out->text, in->text.s, in->text.len);
      return finish(out);
    default:
      return each(step, in, out);
  }
}

static moe_status gather(const struct moe_decoder *decoder, const struct moe_vocab *vocab,
                         const int32_t *ids, int64_t count, bool skip_special,
                         struct moe_strings *out) {
  clear(out);
  for (int64_t i = 0; i < count; i++) {
    const struct moe_vocab_entry *entry = moe_vocab_get(vocab, ids[i]);
    if (entry == NULL)
      return moe_fail(decoder->ctx, MOE_INVALID, "id %d at position %lld is %s", ids[i],
                      (long long)i,
                      ids[i] < 0 || ids[i] >= vocab->size ? "outside the vocabulary"
                                                          : "not used by the vocabulary");
    if (skip_special && (entry->flags & MOE_TOKEN_SPECIAL)) continue;
    if (decoder->n == 0 && !decoder->bytes && out->n) moe_text_append(&out->text, " ", 1);
    moe_text_append(&out->text, vocab->text.s + entry->at, entry->bytes);
    MOE_TRY(finish(out));
  }
  return out->text.failed ? MOE_MEMORY : MOE_OK;
}

moe_status moe_decoder_run(struct moe_decoder *decoder, const struct moe_vocab *vocab,
                           const int32_t *ids, int64_t count, bool skip_special,
                           const struct moe_text **out) {
  struct moe_strings *now = &decoder->strings[0], *next = &decoder->strings[1];
  MOE_TRY(gather(decoder, vocab, ids, count, skip_special, now));
  for (size_t i = 0; i < decoder->n; i++) {
    MOE_TRY(run_step(&decoder->steps[i], now, next));
    struct moe_strings *swap = now;
    now = next;
    next = swap;
  }
  if (now->text.failed) return MOE_MEMORY;
  *out = &now->text;
  return MOE_OK;
}
