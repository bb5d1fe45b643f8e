/* Added tokens: texts that become one id wherever they stand, before anything else looks at the
 * text. Invariant: items are sorted by text and no text comes twice. */
#ifndef MOE_DATA_ADDED_H
#define MOE_DATA_ADDED_H

#include "base/base.h"

struct moe_added {
  char *s; /* owned */
  size_t n;
  int32_t id;
  bool lstrip, rstrip; /* takes the white space before, after */
  bool single_word;    /* only where no word character is next to it */
};

struct moe_added_set {
  moe_ctx *ctx;
  struct moe_added *items;
  size_t n, cap;
  size_t begin[257]; /* items that start with byte b: [begin[b], begin[b+1]) */
};

/* A part of a text: an added token, or (id < 0) text between them. */
struct moe_added_part {
  size_t start, end;
  int32_t id;
};

void moe_added_init(moe_ctx *ctx, struct moe_added_set *set);
void moe_added_destroy(struct moe_added_set *set);
/* Copies the text, n > 0. */
moe_status moe_added_add(struct moe_added_set *set, const struct moe_added *item);
/* Sorts; of equal texts the first stays. Call once, after the last moe_added_add. */
void moe_added_finish(struct moe_added_set *set);
/* A walk over the parts of valid text: leftmost longest matches. As in Hugging Face's library,
 * white space that rstrip took in is still searched, so a token made of spaces can follow a token
 * that already took them. */
struct moe_added_walk {
  const struct moe_added_set *set;
  const char *text;
  size_t bytes;
  size_t from;                /* end of the last part */
  size_t scan;                /* where the search goes on; <= from */
  struct moe_added_part next; /* found, but text comes before it; id < 0: none */
};

struct moe_added_walk moe_added_start(const struct moe_added_set *set, const char *text,
                                      size_t bytes);
/* false at the end. */
bool moe_added_next(struct moe_added_walk *walk, struct moe_added_part *out);

#endif
