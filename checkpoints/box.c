#include "checkpoints/box.h"

#include <stdio.h>

#include "checkpoints/digest.h"

int64_t moe_box_elements(const struct moe_box *box) {
  int64_t n = 1;
  for (int32_t d = 0; d < box->dims; d++) n *= box->count[d];
  return n;
}

bool moe_box_intersect(const struct moe_box *a, const struct moe_box *b, struct moe_box *out) {
  *out = (struct moe_box){.dims = a->dims};
  for (int32_t d = 0; d < a->dims; d++) {
    int64_t begin = moe_max64(a->start[d], b->start[d]);
    int64_t end = moe_min64(a->start[d] + a->count[d], b->start[d] + b->count[d]);
    if (begin >= end) return false;
    out->start[d] = begin;
    out->count[d] = end - begin;
  }
  return true;
}

bool moe_box_equal(const struct moe_box *a, const struct moe_box *b) {
  if (a->dims != b->dims) return false;
  for (int32_t d = 0; d < a->dims; d++)
    if (a->start[d] != b->start[d] || a->count[d] != b->count[d]) return false;
  return true;
}

void moe_box_text(const struct moe_box *box, char *text, size_t bytes) {
  size_t used = 0;
  for (int32_t d = 0; d < box->dims && used < bytes; d++) {
    int n = snprintf(text + used, bytes - used, "%s%lld:%lld", d ? ", " : "(",
                     (long long)box->start[d], (long long)(box->start[d] + box->count[d]));
    used += n > 0 ? (size_t)n : 0;
  }
  if (used < bytes) snprintf(text + used, bytes - used, ")");
}

void moe_box_walk_init(struct moe_box_walk *walk, const struct moe_box *box, int64_t limit) {
  *walk = (struct moe_box_walk){.box = *box, .piece = *box};
  int64_t inner = 1;
  int32_t d = box->dims - 1;
  while (d > 0 && inner * box->count[d] <= limit) inner *= box->count[d--];
  walk->dim = d;
  walk->step = inner > 0 ? moe_max64(limit / inner, 1) : 1;
}

/* Sets the piece's extent in the cut dim, beginning at `begin` (relative to the box). */
static void cut(struct moe_box_walk *walk, int64_t begin) {
  int32_t d = walk->dim;
  int64_t first = walk->box.start[d] + begin, end = first + walk->step;
  if (d == walk->box.dims - 1) end = end / MOE_DIGEST_SEGMENT * MOE_DIGEST_SEGMENT;
  end = moe_min64(end, walk->box.start[d] + walk->box.count[d]);
  walk->piece.start[d] = first;
  walk->piece.count[d] = end - first;
}

bool moe_box_walk_next(struct moe_box_walk *walk) {
  if (!walk->begun) {
    walk->begun = true;
    if (moe_box_elements(&walk->box) == 0) return false;
    for (int32_t d = 0; d < walk->dim; d++) walk->piece.count[d] = 1;
    cut(walk, 0);
    return true;
  }
  walk->offset += moe_box_elements(&walk->piece);
  int32_t d = walk->dim;
  int64_t done = walk->piece.start[d] + walk->piece.count[d] - walk->box.start[d];
  if (done < walk->box.count[d]) {
    cut(walk, done);
    return true;
  }
  while (--d >= 0) {
    if (++walk->piece.start[d] < walk->box.start[d] + walk->box.count[d]) {
      cut(walk, 0);
      return true;
    }
    walk->piece.start[d] = walk->box.start[d];
  }
  return false;
}

void moe_box_runs_init(struct moe_box_runs *runs, const struct moe_box *a, const struct moe_box *b,
                       const struct moe_box *region) {
  *runs = (struct moe_box_runs){.a = *a, .b = *b, .region = *region, .length = 1};
  int32_t d = region->dims - 1;
  for (; d > 0; d--) {
    runs->length *= region->count[d];
    if (region->count[d] != a->count[d] || region->count[d] != b->count[d]) break;
  }
  if (d == 0) runs->length *= region->count[0];
  runs->dim = d;
  runs->left = runs->length ? moe_box_elements(region) / runs->length : 0;
}

/* Offset in box's memory of the element at `index` of the region. */
static int64_t offset_in(const struct moe_box *box, const struct moe_box_runs *runs) {
  int64_t offset = 0;
  for (int32_t d = 0; d < box->dims; d++)
    offset = offset * box->count[d] + runs->region.start[d] + runs->index[d] - box->start[d];
  return offset;
}

bool moe_box_runs_next(struct moe_box_runs *runs) {
  if (runs->left == 0) return false;
  runs->left--;
  runs->offset_a = offset_in(&runs->a, runs);
  runs->offset_b = offset_in(&runs->b, runs);
  for (int32_t d = runs->dim - 1; d >= 0; d--) {
    if (++runs->index[d] < runs->region.count[d]) break;
    runs->index[d] = 0;
  }
  return true;
}

bool moe_box_of_run(const struct moe_box *box, int64_t *first, int64_t last, struct moe_box *out) {
  int64_t left = last - *first, rest = *first, inner = moe_box_elements(box);
  if (left <= 0) return false;
  *out = *box;
  for (int32_t d = 0; d < box->dims; d++) {
    inner /= box->count[d];
    int64_t index = rest / inner;
    rest %= inner;
    out->start[d] = box->start[d] + index;
    out->count[d] = 1;
    if (rest > 0 || inner > left) continue;
    /* Whole indices of this dim begin here and fit. */
    out->count[d] = moe_min64(left / inner, box->count[d] - index);
    break;
  }
  *first += moe_box_elements(out);
  return true;
}
