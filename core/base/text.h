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
/* Adds a line of its own: lines are separated, not ended, by newlines. */
void moe_text_line(struct moe_text *text, const char *fmt, ...) MOE_PRINTF(2, 3);
/* Adds the divisors of n > 0, ascending, separated by spaces: all, or the ones nearest to wanted
 * with ".." where others are left out. */
void moe_text_divisors(struct moe_text *text, int64_t n, int64_t wanted);
/* Adds the positive multiples of step > 0 next to wanted: "8 or 16", or one where only one is. */
void moe_text_multiples(struct moe_text *text, int64_t step, int64_t wanted);

/* The candidate nearest to word by edit distance (at most 2, or a third of the word), or NULL. */
const char *moe_text_nearest(const char *word, const char *const *candidates, size_t n);

#endif
