#include "data/vocab.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"

void moe_vocab_init(moe_ctx *ctx, struct moe_vocab *vocab) {
  *vocab = (struct moe_vocab){.ctx = ctx};
  moe_text_init(ctx, &vocab->text);
}

void moe_vocab_destroy(struct moe_vocab *vocab) {
  moe_text_destroy(&vocab->text);
  moe_release(vocab->ctx, vocab->entries_V);
  moe_release(vocab->ctx, vocab->slots);
  moe_vocab_init(vocab->ctx, vocab);
}

moe_status moe_vocab_reserve(struct moe_vocab *vocab, int64_t ids, size_t entries) {
  vocab->n_slots = 16;
  while (vocab->n_slots < 2 * entries) vocab->n_slots *= 2;
  vocab->cap = ids;
  vocab->entries_V = moe_alloc_array(vocab->ctx, (size_t)ids, sizeof *vocab->entries_V);
  vocab->slots = moe_alloc_array(vocab->ctx, vocab->n_slots, sizeof *vocab->slots);
  return vocab->entries_V && vocab->slots ? MOE_OK : MOE_MEMORY;
}

/* The slot that holds the text, or the free one where it belongs. */
static size_t slot_of(const struct moe_vocab *vocab, const char *s, size_t n) {
  size_t slot = XXH3_64bits(s, n) & (vocab->n_slots - 1);
  for (; vocab->slots[slot]; slot = (slot + 1) & (vocab->n_slots - 1)) {
    const struct moe_vocab_entry *entry = &vocab->entries_V[vocab->slots[slot] - 1];
    if (entry->bytes == n && memcmp(vocab->text.s + entry->at, s, n) == 0) break;
  }
  return slot;
}

moe_status moe_vocab_add(struct moe_vocab *vocab, int32_t id, const char *s, size_t n,
                         uint8_t flags) {
  struct moe_vocab_entry *entry = &vocab->entries_V[id];
  *entry = (struct moe_vocab_entry){vocab->text.len, (uint32_t)n, flags | MOE_TOKEN_USED};
  moe_text_append(&vocab->text, s, n);
  if (vocab->text.failed) return MOE_MEMORY;
  if (id >= vocab->size) vocab->size = id + 1;
  if (flags & MOE_TOKEN_MODEL) {
    vocab->slots[slot_of(vocab, s, n)] = (uint32_t)id + 1;
    vocab->n_model++;
  }
  return MOE_OK;
}

int32_t moe_vocab_find(const struct moe_vocab *vocab, const char *s, size_t n) {
  return (int32_t)vocab->slots[slot_of(vocab, s, n)] - 1;
}

const struct moe_vocab_entry *moe_vocab_get(const struct moe_vocab *vocab, int64_t id) {
  if (id < 0 || id >= vocab->size || !(vocab->entries_V[id].flags & MOE_TOKEN_USED)) return NULL;
  return &vocab->entries_V[id];
}
