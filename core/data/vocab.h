/* The vocabulary: id -> token text, and back for the model's own entries. Invariant: an id has at
 * most one text and a text of the model at most one id; unused ids are holes. */
#ifndef MOE_DATA_VOCAB_H
#define MOE_DATA_VOCAB_H

#include "base/text.h"

enum { MOE_TOKEN_USED = 1, MOE_TOKEN_SPECIAL = 2, MOE_TOKEN_MODEL = 4 };

struct moe_vocab_entry {
  size_t at; /* into text */
  uint32_t bytes;
  uint8_t flags;
};

struct moe_vocab {
  moe_ctx *ctx;
  struct moe_text text;
  struct moe_vocab_entry *entries_V;
  int64_t size, cap; /* 1 + largest id */
  uint32_t *slots;   /* open addressing: 1 + id, 0 free */
  size_t n_slots, n_model;
};

void moe_vocab_init(moe_ctx *ctx, struct moe_vocab *vocab);
void moe_vocab_destroy(struct moe_vocab *vocab);
/* Room for ids below `ids` and for `entries` texts of the model. */
moe_status moe_vocab_reserve(struct moe_vocab *vocab, int64_t ids, size_t entries);
/* The id must be free and below what was reserved. With MOE_TOKEN_MODEL it can be found by text. */
moe_status moe_vocab_add(struct moe_vocab *vocab, int32_t id, const char *s, size_t n,
                         uint8_t flags);
/* Id of a text of the model, or -1. */
int32_t moe_vocab_find(const struct moe_vocab *vocab, const char *s, size_t n);
/* NULL for holes and ids outside. */
const struct moe_vocab_entry *moe_vocab_get(const struct moe_vocab *vocab, int64_t id);

#endif
