#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void moe_text_init(moe_ctx *ctx, struct moe_text *text) { *text = (struct moe_text){.ctx = ctx}; }

void moe_text_destroy(struct moe_text *text) {
  moe_release(text->ctx, text->s);
  *text = (struct moe_text){.ctx = text->ctx};
}

static bool reserve(struct moe_text *text, size_t more) {
  if (text->failed) return false;
  if (text->len + more + 1 <= text->cap) return true;
  size_t cap = text->cap ? text->cap : 128;
  while (cap < text->len + more + 1) cap *= 2;
  char *s = moe_realloc(text->ctx, text->s, cap);
  if (s == NULL) {
    text->failed = true;
    return false;
  }
  text->s = s;
  text->cap = cap;
  return true;
}

void moe_text_append(struct moe_text *text, const char *bytes, size_t n) {
  if (!reserve(text, n)) return;
  memcpy(text->s + text->len, bytes, n);
  text->len += n;
  text->s[text->len] = 0;
}

static MOE_PRINTF(2, 0) void add_args(struct moe_text *text, const char *fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  if (n > 0 && reserve(text, (size_t)n)) {
    vsnprintf(text->s + text->len, (size_t)n + 1, fmt, again);
    text->len += (size_t)n;
  }
  va_end(again);
}

void moe_text_add(struct moe_text *text, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  add_args(text, fmt, args);
  va_end(args);
}

void moe_text_line(struct moe_text *text, const char *fmt, ...) {
  va_list args;
  if (text->len > 0) moe_text_append(text, "\n", 1);
  va_start(args, fmt);
  add_args(text, fmt, args);
  va_end(args);
}

enum { MAX_DIVISORS = 2048, SHOWN_DIVISORS = 12 };

/* Ascending. A number below 2^31 has at most 1536 divisors; sizes and ranks are below that. */
static int find_divisors(int64_t n, int64_t *out) {
  int count = 0;
  for (int64_t d = 1; d * d <= n && count < MAX_DIVISORS / 2; d++)
    if (n % d == 0) out[count++] = d;
  int small = count;
  for (int i = small - 1; i >= 0; i--)
    if (n / out[i] != out[i]) out[count++] = n / out[i];
  return count;
}

void moe_text_divisors(struct moe_text *text, int64_t n, int64_t wanted) {
  int64_t all[MAX_DIVISORS];
  int count = find_divisors(n, all), above = 0;
  while (above < count && all[above] < wanted) above++;
  int first = above - SHOWN_DIVISORS / 2, last = first + SHOWN_DIVISORS;
  if (last > count) first -= last - count, last = count;
  if (first < 0) last = last - first < count ? last - first : count, first = 0;
  if (first > 0) moe_text_add(text, ".. ");
  for (int i = first; i < last; i++)
    moe_text_add(text, "%s%lld", i > first ? " " : "", (long long)all[i]);
  if (last < count) moe_text_add(text, " ..");
}

void moe_text_multiples(struct moe_text *text, int64_t step, int64_t wanted) {
  int64_t below = wanted / step * step;
  if (below > 0) moe_text_add(text, "%lld or ", (long long)below);
  moe_text_add(text, "%lld", (long long)((below > 0 ? below : 0) + step));
}

enum { MAX_WORD = 64 };

/* Edits (insert, delete, replace, swap of neighbours) from a to b. */
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t row[3][MAX_WORD + 1];
  for (size_t j = 0; j <= m; j++) row[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *cur = row[i % 3], *up = row[(i + 2) % 3], *upup = row[(i + 1) % 3];
    cur[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);
      if (up[j] + 1 < best) best = up[j] + 1;
      if (cur[j - 1] + 1 < best) best = cur[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && upup[j - 2] + 1 < best)
        best = upup[j - 2] + 1;
      cur[j] = best;
    }
  }
  return row[n % 3][m];
}

const char *moe_text_nearest(const char *word, const char *const *candidates, size_t n) {
  size_t len = strlen(word), limit = len / 3 > 2 ? len / 3 : 2;
  const char *best = NULL;
  if (len > MAX_WORD) return NULL;
  for (size_t i = 0; i < n; i++) {
    size_t m = strlen(candidates[i]);
    if (m > MAX_WORD) continue;
    size_t d = distance(word, len, candidates[i], m);
    if (d <= limit && d < len) {
      best = candidates[i];
      limit = d ? d - 1 : 0;
      if (d == 0) break;
    }
  }
  return best;
}
