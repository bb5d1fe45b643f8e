#include "data/pretokenize.h"

#include <string.h>

#include "base/alloc.h"
#include "data/utf8.h"

void moe_cutter_init(moe_ctx *ctx, struct moe_cutter *cutter) {
  *cutter = (struct moe_cutter){.ctx = ctx};
  for (int i = 0; i < 2; i++) moe_text_init(ctx, &cutter->buffers[i]);
}

void moe_cutter_destroy(struct moe_cutter *cutter) {
  for (size_t i = 0; i < cutter->n; i++) moe_regex_destroy(cutter->steps[i].regex);
  for (int i = 0; i < 2; i++) {
    moe_text_destroy(&cutter->buffers[i]);
    moe_release(cutter->ctx, cutter->pieces[i].v);
  }
  moe_cutter_init(cutter->ctx, cutter);
}

static moe_status push(moe_ctx *ctx, struct moe_pieces *out, size_t start, size_t end) {
  if (start >= end) return MOE_OK;
  if (out->n == out->cap) {
    size_t cap = out->cap ? 2 * out->cap : 256;
    struct moe_piece *v = moe_realloc(ctx, out->v, cap * sizeof *v);
    if (v == NULL) return MOE_MEMORY;
    out->v = v;
    out->cap = cap;
  }
  out->v[out->n++] = (struct moe_piece){start, end};
  return MOE_OK;
}

/* Where one piece is being split: parts that match and parts that do not take turns or repeat. */
struct splitting {
  moe_ctx *ctx;
  struct moe_pieces *out;
  enum moe_cut_behavior behavior;
  size_t before; /* pieces in `out` when this one began */
  bool last_match;
  size_t pending; /* MOE_CUT_WITH_NEXT: start of a match that waits for the next part */
  bool waits;
};

/* Adds the part [start, end), with what waits before it. */
static moe_status part_with_next(struct splitting *s, size_t start, size_t end, bool match) {
  if (match) { /* of a run of matches only the last joins what follows */
    if (s->waits) MOE_TRY(push(s->ctx, s->out, s->pending, start));
    s->pending = start;
    s->waits = true;
    return MOE_OK;
  }
  size_t from = s->waits ? s->pending : start;
  s->waits = false;
  return push(s->ctx, s->out, from, end);
}

static moe_status part(struct splitting *s, size_t start, size_t end, bool match) {
  if (start == end) return MOE_OK;
  bool first = s->out->n == s->before, join = false;
  switch (s->behavior) {
    case MOE_CUT_REMOVED:
      if (match) return MOE_OK;
      break;
    case MOE_CUT_CONTIGUOUS:
      join = !first && match == s->last_match;
      break;
    case MOE_CUT_WITH_PREVIOUS:
      join = !first && match && !s->last_match;
      break;
    case MOE_CUT_WITH_NEXT:
      return part_with_next(s, start, end, match);
    case MOE_CUT_ISOLATED:
      break;
  }
  s->last_match = match;
  if (join) {
    s->out->v[s->out->n - 1].end = end;
    return MOE_OK;
  }
  return push(s->ctx, s->out, start, end);
}

static moe_status split(moe_ctx *ctx, const struct moe_cut_step *step, const char *text,
                        struct moe_piece piece, struct moe_pieces *out) {
  struct splitting s = {.ctx = ctx, .out = out, .behavior = step->behavior, .before = out->n};
  const char *base = text + piece.start;
  size_t n = piece.end - piece.start, at = 0, start, end;
  while (at < n) {
    bool found;
    MOE_TRY(moe_regex_next(step->regex, base, n, at, &found, &start, &end));
    if (!found || end <= start) start = end = n;
    MOE_TRY(part(&s, piece.start + at, piece.start + start, step->invert));
    MOE_TRY(part(&s, piece.start + start, piece.start + end, !step->invert));
    at = end;
  }
  return s.waits ? push(ctx, out, s.pending, piece.end) : MOE_OK;
}

static bool starts_with(const char *s, size_t n, const char *with) {
  size_t k = strlen(with);
  return n >= k && memcmp(s, with, k) == 0;
}

static moe_status cut_runs(moe_ctx *ctx, const struct moe_cut_step *step, const char *text,
                           struct moe_piece piece, struct moe_pieces *out) {
  size_t k = strlen(step->with), start = piece.start, run_end = piece.start;
  for (;;) {
    const char *hit = moe_utf8_find(text + run_end, piece.end - run_end, step->with, k);
    if (hit == NULL) break;
    size_t at = (size_t)(hit - text);
    if (at != run_end) {
      MOE_TRY(push(ctx, out, start, at));
      start = at;
    }
    run_end = at + k;
  }
  return push(ctx, out, start, piece.end);
}

static moe_status rewrite(moe_ctx *ctx, const struct moe_cut_step *step, const char *text,
                          struct moe_piece piece, bool first, struct moe_text *buffer,
                          struct moe_pieces *out) {
  size_t start = buffer->len, k = strlen(step->with);
  const char *s = text + piece.start, *end = text + piece.end, *space;
  bool there = starts_with(s, piece.end - piece.start, step->with) || (step->spaces && *s == ' ');
  if (!there && (step->prefix == MOE_PREFIX_ALWAYS || (step->prefix == MOE_PREFIX_FIRST && first)))
    moe_text_append(buffer, step->with, k);
  while (step->spaces && (space = memchr(s, ' ', (size_t)(end - s))) != NULL) {
    moe_text_append(buffer, s, (size_t)(space - s));
    moe_text_append(buffer, step->with, k);
    s = space + 1;
  }
  moe_text_append(buffer, s, (size_t)(end - s));
  return buffer->failed ? MOE_MEMORY : push(ctx, out, start, buffer->len);
}

moe_status moe_cutter_run(struct moe_cutter *cutter, const char *text, size_t bytes, bool first,
                          struct moe_cut *out) {
  moe_ctx *ctx = cutter->ctx;
  struct moe_pieces *now = &cutter->pieces[0], *next = &cutter->pieces[1];
  now->n = 0;
  MOE_TRY(push(ctx, now, 0, bytes));
  for (size_t i = 0; i < cutter->n; i++) {
    const struct moe_cut_step *step = &cutter->steps[i];
    struct moe_text *buffer = &cutter->buffers[text == cutter->buffers[0].s];
    next->n = 0;
    buffer->len = 0;
    for (size_t p = 0; p < now->n; p++) {
      struct moe_piece piece = now->v[p];
      if (step->kind == MOE_CUT_SPLIT)
        MOE_TRY(split(ctx, step, text, piece, next));
      else if (step->kind == MOE_CUT_RUNS)
        MOE_TRY(cut_runs(ctx, step, text, piece, next));
      else
        MOE_TRY(rewrite(ctx, step, text, piece, first && piece.start == 0, buffer, next));
    }
    first = first && now->n > 0 && now->v[0].start == 0;
    if (step->kind == MOE_CUT_REWRITE) text = buffer->s;
    struct moe_pieces *swap = now;
    now = next;
    next = swap;
  }
  *out = (struct moe_cut){text, now->v, now->n};
  return MOE_OK;
}
