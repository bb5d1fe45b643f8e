/* A growing string, and the nearest match for "did you mean". */
#ifndef MOE_BASE_TEXT_H
#define MOE_BASE_TEXT_H

#include "base/base.h"

struct moe_text {
  moe_ctx *ctx;
  char *s; /* NUL-terminated once anything was added, else NULL */
  size_t len, cap;
  bool failed; /* an addition found no memory; the error is set */
};

void moe_text_init(moe_ctx *ctx, struct moe_text *text);
void moe_text_destroy(struct moe_text *text);
void moe_text_add(struct moe_text *text, const char *fmt, ...) MOE_PRINTF(2, 3);
void moe_text_append(struct moe_text *text, const char *bytes, size_t n);

/* The candidate nearest to word by edit distance (at most 2, or a third of the word), or NULL. */
const char *moe_text_nearest(const char *word, const char *const *candidates, size_t n);

#endif
