/* The regexes of tokenizer files: written for Oniguruma, run by PCRE2. Invariant: a pattern that
 * the two would read differently is refused when it is compiled, never matched differently. */
#ifndef MOE_DATA_REGEX_H
#define MOE_DATA_REGEX_H

#include "base/base.h"

struct moe_regex;

/* where: the file and field, for messages. literal: the pattern is a plain string. A pattern that
 * can match nothing ("a*") is refused. */
moe_status moe_regex_create(moe_ctx *ctx, const char *where, const char *pattern, size_t bytes,
                            bool literal, struct moe_regex **out);
void moe_regex_destroy(struct moe_regex *regex);
/* Next match in valid UTF-8 at or after `from`: *found, and its [*start, *end). */
moe_status moe_regex_next(struct moe_regex *regex, const char *text, size_t bytes, size_t from,
                          bool *found, size_t *start, size_t *end);

#endif
