#include "data/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/utf8.h"

void moe_added_init(moe_ctx *ctx, struct moe_added_set *set) {
  *set = (struct moe_added_set){.ctx = ctx};
}

void moe_added_destroy(struct moe_added_set *set) {
  for (size_t i = 0; i < set->n; i++) moe_release(set->ctx, set->items[i].s);
  moe_release(set->ctx, set->items);
  moe_added_init(set->ctx, set);
}

moe_status moe_added_add(struct moe_added_set *set, const struct moe_added *item) {
  if (set->n == set->cap) {
    size_t cap = set->cap ? 2 * set->cap : 16;
    struct moe_added *items = moe_realloc(set->ctx, set->items, cap * sizeof *items);
    if (items == NULL) return MOE_MEMORY;
    set->items = items;
    set->cap = cap;
  }
  char *s = moe_alloc(set->ctx, item->n);
  if (s == NULL) return MOE_MEMORY;
  memcpy(s, item->s, item->n);
  set->items[set->n] = *item;
  set->items[set->n++].s = s;
  return MOE_OK;
}

static int by_text(const void *pa, const void *pb) {
  const struct moe_added *a = pa, *b = pb;
  int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
  if (order) return order;
  if (a->n != b->n) return a->n < b->n ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

void moe_added_finish(struct moe_added_set *set) {
  if (set->n) qsort(set->items, set->n, sizeof *set->items, by_text);
  size_t kept = 0;
  for (size_t i = 0; i < set->n; i++) {
    struct moe_added *last = kept ? &set->items[kept - 1] : NULL;
    if (last && last->n == set->items[i].n && memcmp(last->s, set->items[i].s, last->n) == 0)
      moe_release(set->ctx, set->items[i].s);
    else
      set->items[kept++] = set->items[i];
  }
  set->n = kept;
  for (size_t b = 0, i = 0; b <= 256; b++) {
    while (i < set->n && (unsigned char)set->items[i].s[0] < b) i++;
    set->begin[b] = i;
  }
}

/* First item of [lo, hi), which share their first `depth` bytes and are longer, whose next byte is
 * not below c. */
static size_t bound(const struct moe_added_set *set, size_t lo, size_t hi, size_t depth, int c) {
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if ((unsigned char)set->items[mid].s[depth] < c)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

static const struct moe_added *longest(const struct moe_added_set *set, const char *s, size_t n) {
  const struct moe_added *best = NULL;
  size_t lo = set->begin[(unsigned char)s[0]], hi = set->begin[(unsigned char)s[0] + 1];
  for (size_t depth = 1; lo < hi; depth++) {
    if (set->items[lo].n == depth) best = &set->items[lo++];
    if (depth == n) break;
    int c = (unsigned char)s[depth];
    size_t above = bound(set, lo, hi, depth, c + 1);
    lo = bound(set, lo, above, depth, c);
    hi = above;
  }
  return best;
}

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t end) {
  size_t n;
  return (start == 0 || !moe_utf8_word(moe_utf8_before(text, start, &n))) &&
         (end == bytes || !moe_utf8_word(moe_utf8_get(text + end, &n)));
}

/* Takes in the white space around, but nothing before `from`. */
static void strip(const struct moe_added *item, const char *text, size_t bytes, size_t from,
                  struct moe_added_part *part) {
  size_t n;
  while (item->lstrip && part->start > from &&
         moe_utf8_space(moe_utf8_before(text, part->start, &n)))
    part->start -= n;
  while (item->rstrip && part->end < bytes && moe_utf8_space(moe_utf8_get(text + part->end, &n)))
    part->end += n;
}

struct moe_added_walk moe_added_start(const struct moe_added_set *set, const char *text,
                                      size_t bytes) {
  return (struct moe_added_walk){set, text, bytes, 0, 0, {0, 0, -1}};
}

/* The next match, with the white space it takes; false when there is none. */
static bool next_match(struct moe_added_walk *w, struct moe_added_part *out) {
  const struct moe_added_set *set = w->set;
  while (set->n > 0 && w->scan < w->bytes) {
    unsigned char c = (unsigned char)w->text[w->scan];
    const struct moe_added *item = set->begin[c] == set->begin[c + 1]
                                       ? NULL
                                       : longest(set, w->text + w->scan, w->bytes - w->scan);
    if (item == NULL) {
      w->scan++;
      continue;
    }
    *out = (struct moe_added_part){w->scan, w->scan + item->n, item->id};
    w->scan = out->end;
    if (item->single_word && !stands_alone(w->text, w->bytes, out->start, out->end)) continue;
    strip(item, w->text, w->bytes, w->from, out);
    return true;
  }
  return false;
}

bool moe_added_next(struct moe_added_walk *w, struct moe_added_part *out) {
  if (w->next.id >= 0) {
    *out = w->next;
    w->next.id = -1;
  } else if (!next_match(w, out)) {
    *out = (struct moe_added_part){w->from, w->bytes, -1};
    w->scan = w->bytes;
  } else if (out->start > w->from) {
    w->next = *out;
    *out = (struct moe_added_part){w->from, w->next.start, -1};
  }
  w->from = out->end;
  return out->id >= 0 || out->start < out->end;
}
