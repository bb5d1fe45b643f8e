/* From the router's choice to an order of rows: a stable counting sort of the (token, k) pairs by
 * expert in fixed blocks of pairs; with a capacity, each expert then keeps its best or first. */
#include "kernels/cpu/ops.h"

enum { BLOCK = 4096, BLOCKS = 64, GRAIN = 1 << 13, DIGIT = 11, BUCKETS = 1 << DIGIT };

struct job {
  const struct moe_route_args *a;
  int64_t pairs, block;
  int32_t *place; /* (blocks, E): counts, then the next place of the block's pairs of the expert */
  int32_t *start; /* (E + 1): the experts' ranges before dropping */
};

/* The expert of a pair, counted from the first; false: not routed. */
static inline bool routed(const struct moe_route_args *a, int64_t i, int64_t *e) {
  *e = a->index[i] - a->first;
  return a->index[i] >= 0 && (uint64_t)*e < (uint64_t)a->experts;
}

static void count_block(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct job *j = arg;
  for (int64_t b = first; b < last; b++) {
    int32_t *count = j->place + b * j->a->experts;
    memset(count, 0, (size_t)j->a->experts * sizeof *count);
    int64_t end = moe_min64((b + 1) * j->block, j->pairs);
    for (int64_t i = b * j->block, e; i < end; i++)
      if (routed(j->a, i, &e)) count[e]++;
  }
}

/* Counts become places; start becomes the experts' ranges. */
static void places(const struct job *j, int64_t blocks) {
  int32_t at = 0;
  for (int64_t e = 0; e < j->a->experts; e++) {
    j->start[e] = at;
    for (int64_t b = 0; b < blocks; b++) {
      int32_t *p = &j->place[b * j->a->experts + e], n = *p;
      *p = at;
      at += n;
    }
  }
  j->start[j->a->experts] = at;
}

/* Dropless: the sorted place of a pair is its row. */
static void place_rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct job *j = arg;
  const struct moe_route_args *a = j->a;
  for (int64_t b = first; b < last; b++) {
    int32_t *place = j->place + b * a->experts;
    int64_t end = moe_min64((b + 1) * j->block, j->pairs);
    int32_t t = (int32_t)(b * j->block / a->topk), k = (int32_t)(b * j->block % a->topk);
    for (int64_t i = b * j->block, e; i < end; i++) {
      if (routed(a, i, &e)) {
        int32_t r = place[e]++;
        a->row[i] = r;
        a->token[r] = t;
        a->slot[r] = k;
      } else {
        a->row[i] = -1;
      }
      if (++k == a->topk) k = 0, t++;
    }
  }
}

/* Capacity: `row` first holds the sorted list of pairs. */
static void place_pairs(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct job *j = arg;
  for (int64_t b = first; b < last; b++) {
    int32_t *place = j->place + b * j->a->experts;
    int64_t end = moe_min64((b + 1) * j->block, j->pairs);
    for (int64_t i = b * j->block, e; i < end; i++)
      if (routed(j->a, i, &e)) j->a->row[place[e]++] = (int32_t)i;
  }
}

/* Keys order like floats; a NaN is lowest. */
static inline uint32_t key_of(float x) {
  if (x != x) return 0;
  x += 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The keep-th largest key of n pairs, found digit by digit; *equal: how many of that key stay. */
static uint32_t threshold(const float *prob, const int32_t *pair, int64_t n, int64_t keep,
                          int64_t *equal) {
  uint32_t prefix = 0, mask = 0;
  for (int shift = 32 - DIGIT; shift > -DIGIT; shift -= DIGIT) {
    int low = shift < 0 ? 0 : shift;
    uint32_t digits = shift < 0 ? (1u << (DIGIT + shift)) - 1 : BUCKETS - 1;
    int32_t bucket[BUCKETS] = {0};
    for (int64_t i = 0; i < n; i++) {
      uint32_t key = key_of(prob[pair[i]]);
      if ((key & mask) == prefix) bucket[key >> low & digits]++;
    }
    uint32_t d = digits;
    for (; bucket[d] < keep; d--) keep -= bucket[d];
    prefix |= d << low;
    mask |= digits << low;
  }
  *equal = keep;
  return prefix;
}

static void keep_expert(const struct job *j, int64_t e) {
  const struct moe_route_args *a = j->a;
  const int32_t *pair = a->row + j->start[e];
  int64_t n = j->start[e + 1] - j->start[e], r = a->offset[e], end = a->offset[e + 1];
  int64_t keep = moe_min64(n, a->capacity), equal = 0;
  bool best = keep < n && a->drop == MOE_DROP_PROBS;
  uint32_t least = best ? threshold(a->prob, pair, n, keep, &equal) : 0;
  for (int64_t i = 0; i < (best ? n : keep); i++) {
    uint32_t key = best ? key_of(a->prob[pair[i]]) : UINT32_MAX;
    if (key < least || (key == least && equal-- <= 0)) continue;
    a->token[r] = (int32_t)(pair[i] / a->topk);
    a->slot[r] = (int32_t)(pair[i] % a->topk);
    r++;
  }
  for (; r < end; r++) a->token[r] = a->slot[r] = -1;
}

static void keep_experts(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  for (int64_t e = first; e < last; e++) keep_expert(arg, e);
}

static void clear_rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct job *j = arg;
  for (int64_t i = first; i < last; i++) j->a->row[i] = -1;
}

static void invert_rows(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_route_args *a = ((const struct job *)arg)->a;
  for (int64_t r = first; r < last; r++)
    if (a->token[r] >= 0) a->row[a->token[r] * a->topk + a->slot[r]] = (int32_t)r;
}

/* Offsets after dropping; returns how many pairs stay. */
static int64_t capacity_offsets(const struct job *j) {
  const struct moe_route_args *a = j->a;
  int64_t at = 0, kept = 0;
  for (int64_t e = 0; e < a->experts; e++) {
    int64_t keep = moe_min64(j->start[e + 1] - j->start[e], a->capacity);
    a->offset[e] = (int32_t)at;
    at += a->pad ? a->capacity : keep;
    kept += keep;
  }
  a->offset[a->experts] = (int32_t)at;
  return kept;
}

static int32_t count_rows(const int32_t *row, int64_t pairs) {
  int32_t n = 0;
  for (int64_t i = 0; i < pairs; i++) n += row[i] >= 0;
  return n;
}

void MOE_FN(route)(struct moe_stream *s, const struct moe_route_args *a) {
  struct job j = {.a = a, .pairs = a->tokens * a->topk};
  j.block = moe_max64(BLOCK, moe_div_up(j.pairs, BLOCKS));
  int64_t blocks = moe_div_up(j.pairs, j.block), E = a->experts;
  j.start = moe_cpu_workspace(s, 0);
  j.place = j.start + E + 1;
  moe_cpu_for(s, blocks, 1, count_block, &j);
  places(&j, blocks);
  if (a->capacity <= 0) {
    memcpy(a->offset, j.start, (size_t)(E + 1) * sizeof *j.start);
    *a->dropped = 0;
    moe_cpu_for(s, blocks, 1, place_rows, &j);
  } else {
    *a->dropped = (int32_t)(j.start[E] - capacity_offsets(&j));
    moe_cpu_for(s, blocks, 1, place_pairs, &j);
    moe_cpu_for(s, E, 1, keep_experts, &j);
    moe_cpu_for(s, j.pairs, GRAIN, clear_rows, &j);
    moe_cpu_for(s, a->offset[E], GRAIN, invert_rows, &j);
  }
  for (int64_t r = a->offset[E]; r < a->rows_max; r++) a->token[r] = a->slot[r] = -1;
  if (a->kept) *a->kept = count_rows(a->row, j.pairs);
}

void MOE_FN(choices)(struct moe_stream *s, const struct moe_choices_args *a) {
  (void)s;
  int32_t dropped = 0;
  for (int64_t i = 0; i < a->pairs; i++) {
    dropped += a->index[i] >= 0 && a->row[i] < 0;
    a->out[i] = a->row[i] < 0 ? -1 : a->index[i];
  }
  *a->dropped = dropped;
}
