/* UTF-8: stepping, checking and repairing. Invariant: everything behind moe_tokenizer_encode works
 * on valid UTF-8; only moe_utf8_repair and moe_utf8_valid see anything else. */
#ifndef MOE_DATA_UTF8_H
#define MOE_DATA_UTF8_H

#include "base/text.h"

enum { MOE_UTF8_MAX = 4 };

/* Length of the longest valid prefix. */
size_t moe_utf8_valid(const char *s, size_t n);
/* Appends s with every maximal ill-formed part replaced by one U+FFFD: what Python's
 * decode(errors="replace") and Rust's from_utf8_lossy give (Unicode 15, section 3.9, table 3-8). */
void moe_utf8_repair(struct moe_text *out, const char *s, size_t n);
/* Bytes of the code point at the start of valid text, n > 0. */
size_t moe_utf8_length(const char *s);
/* The code point at the start of valid text; *length is its bytes. */
int32_t moe_utf8_get(const char *s, size_t *length);
/* The code point that ends before s + at, at > 0; *length is its bytes. */
int32_t moe_utf8_before(const char *s, size_t at, size_t *length);
/* Writes cp (a scalar value), returns its bytes. */
size_t moe_utf8_put(int32_t cp, char out[MOE_UTF8_MAX]);

/* First place of find (k > 0 bytes) in s, or NULL. */
const char *moe_utf8_find(const char *s, size_t n, const char *find, size_t k);
/* Appends s with every `find` replaced by `with`. */
void moe_utf8_replace(struct moe_text *out, const char *s, size_t n, const char *find, size_t k,
                      const char *with, size_t n_with);

/* Unicode White_Space. */
bool moe_utf8_space(int32_t cp);
/* What Rust's regexes call a word character: alphabetic, marks, decimal digits, connectors and
 * joiners. */
bool moe_utf8_word(int32_t cp);

#endif
