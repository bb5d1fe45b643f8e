/* route, against a sort by definition. */
#include "ops/ops.h"

enum choice { SPREAD, ONE_EXPERT, EMPTY_EXPERTS, TIES, NANS, OUTSIDE };
struct setting {
  int64_t tokens, experts, topk, capacity;
  moe_drop_policy drop;
  bool pad;
  enum choice choice;
  int64_t first; /* expert of this rank */
};
static const struct setting settings[] = {
    {0, 4, 2, 0, MOE_DROP_PROBS, false, SPREAD, 0},
    {0, 4, 2, 3, MOE_DROP_PROBS, true, SPREAD, 0},
    {1, 4, 4, 0, MOE_DROP_PROBS, false, SPREAD, 0},
    {1, 1, 1, 1, MOE_DROP_POSITION, true, SPREAD, 0},
    {3000, 8, 2, 0, MOE_DROP_PROBS, false, SPREAD, 0},
    {500, 1024, 8, 0, MOE_DROP_PROBS, false, SPREAD, 0},
    {999, 8, 2, 200, MOE_DROP_PROBS, false, SPREAD, 0},
    {999, 8, 2, 200, MOE_DROP_POSITION, false, SPREAD, 0},
    {999, 8, 2, 200, MOE_DROP_PROBS, true, SPREAD, 0},
    {999, 8, 2, 200, MOE_DROP_POSITION, true, SPREAD, 0},
    {70, 8, 2, 70, MOE_DROP_PROBS, true, SPREAD, 0},
    {70, 8, 2, 500, MOE_DROP_PROBS, false, SPREAD, 0},
    {400, 8, 1, 0, MOE_DROP_PROBS, false, ONE_EXPERT, 0},
    {400, 8, 1, 7, MOE_DROP_PROBS, true, ONE_EXPERT, 0},
    {400, 8, 2, 10, MOE_DROP_PROBS, false, EMPTY_EXPERTS, 0},
    {400, 8, 2, 1, MOE_DROP_PROBS, false, TIES, 0},
    {999, 4, 2, 100, MOE_DROP_PROBS, true, TIES, 0},
    {300, 4, 2, 50, MOE_DROP_PROBS, false, NANS, 0},
    {300, 4, 2, 50, MOE_DROP_POSITION, false, OUTSIDE, 0},
    {300, 4, 2, 0, MOE_DROP_PROBS, false, OUTSIDE, 0},
    {5000, 16, 4, 900, MOE_DROP_PROBS, false, SPREAD, 0},
    {999, 4, 2, 0, MOE_DROP_PROBS, false, SPREAD, 4}, /* half of the pairs are other experts' */
    {999, 2, 2, 90, MOE_DROP_PROBS, true, SPREAD, 6},
    {300, 4, 2, 0, MOE_DROP_PROBS, false, OUTSIDE, 1},
};

static void fill(struct ops *o, const struct setting *c, int32_t *index, float *prob) {
  for (int64_t t = 0; t < c->tokens; t++)
    for (int64_t k = 0; k < c->topk; k++) {
      int64_t i = t * c->topk + k;
      bool again = true;
      while (again) { /* the experts of a token differ */
        index[i] = (int32_t)ops_below(o, c->experts + c->first);
        if (c->choice == ONE_EXPERT) index[i] = 5;
        if (c->choice == EMPTY_EXPERTS) index[i] = 2 * (index[i] / 2);
        again = false;
        for (int64_t j = 0; j < k; j++) again |= index[t * c->topk + j] == index[i];
      }
      prob[i] = (float)ops_normal(o); /* negative ones too: only the order counts */
      if (c->choice == TIES) prob[i] = (float)ops_below(o, 3) * 0.5f * (ops_below(o, 2) ? 1 : -1);
      if (c->choice == NANS && ops_below(o, 3) == 0) prob[i] = NAN;
    }
  if (c->choice == OUTSIDE)
    for (int64_t i = 0; i < c->tokens * c->topk; i += 3)
      index[i] = i % 2 ? -1 : (int32_t)(c->experts + c->first);
}

struct pair {
  int32_t token, slot;
  float prob;
};
static double rank_of(float p) { return isnan(p) ? -INFINITY : p; }
static int by_prob(const void *a, const void *b) {
  const struct pair *x = a, *y = b;
  double p = rank_of(x->prob), q = rank_of(y->prob);
  return p != q ? (p < q) - (p > q) : x->token - y->token;
}
static int by_token(const void *a, const void *b) {
  return ((const struct pair *)a)->token - ((const struct pair *)b)->token;
}

struct result {
  int32_t *row, *token, *slot, *offset;
  int32_t dropped;
};

static void reference(struct ops *o, const struct setting *c, const int32_t *index,
                      const float *prob, int64_t rows_max, struct result *w) {
  int64_t pairs = c->tokens * c->topk, at = 0;
  *w = (struct result){ops_ints(o, pairs), ops_ints(o, rows_max), ops_ints(o, rows_max),
                       ops_ints(o, c->experts + 1), 0};
  for (int64_t i = 0; i < pairs; i++) w->row[i] = -1;
  for (int64_t i = 0; i < rows_max; i++) w->token[i] = w->slot[i] = -1;
  struct pair *list = malloc((size_t)(pairs + 1) * sizeof *list);
  assert_non_null(list);
  for (int32_t e = 0; e < c->experts; e++) {
    int64_t n = 0, keep;
    for (int64_t i = 0; i < pairs; i++)
      if (index[i] == e + c->first)
        list[n++] = (struct pair){(int32_t)(i / c->topk), (int32_t)(i % c->topk), prob[i]};
    keep = c->capacity > 0 ? moe_min64(n, c->capacity) : n;
    w->dropped += (int32_t)(n - keep);
    if (c->drop == MOE_DROP_PROBS) qsort(list, (size_t)n, sizeof *list, by_prob);
    qsort(list, (size_t)keep, sizeof *list, by_token);
    w->offset[e] = (int32_t)at;
    for (int64_t i = 0; i < keep; i++) {
      w->token[at + i] = list[i].token;
      w->slot[at + i] = list[i].slot;
      w->row[list[i].token * c->topk + list[i].slot] = (int32_t)(at + i);
    }
    at += c->pad ? c->capacity : keep;
  }
  w->offset[c->experts] = (int32_t)at;
  free(list);
}

static void check_choices(struct ops *o, int64_t pairs, const int32_t *row, const int32_t *index) {
  int32_t *out = ops_ints(o, pairs), *dropped = ops_ints(o, 1), *want = ops_ints(o, pairs), n = 0;
  for (int64_t i = 0; i < pairs; i++) {
    want[i] = row[i] >= 0 ? index[i] : -1;
    n += index[i] >= 0 && row[i] < 0;
  }
  o->k->choices(o->s, &(struct moe_choices_args){pairs, row, index, out, dropped});
  ops_equal_i(o, "choices", out, pairs, want);
  ops_equal_i(o, "choices dropped", dropped, 1, &n);
}

static void check(struct ops *o, const void *arg) {
  const struct setting *c = arg;
  int64_t pairs = c->tokens * c->topk, E = c->experts, rows_max = pairs;
  if (c->capacity > 0) rows_max = c->pad ? E * c->capacity : moe_min64(pairs, E * c->capacity);
  int32_t *index = ops_ints(o, pairs), *row = ops_ints(o, pairs), *token = ops_ints(o, rows_max);
  int32_t *slot = ops_ints(o, rows_max), *offset = ops_ints(o, E + 1), *dropped = ops_ints(o, 2);
  float *prob = ops_floats(o, pairs);
  fill(o, c, index, prob);
  struct result w;
  reference(o, c, index, prob, rows_max, &w);
  struct moe_route_args a = {.tokens = c->tokens, .experts = E, .topk = c->topk,
                             .capacity = c->capacity, .drop = c->drop, .pad = c->pad,
                             .index = index, .prob = prob, .row = row, .token = token,
                             .slot = slot, .offset = offset, .dropped = dropped,
                             .kept = dropped + 1, .first = c->first,
                             .rows_max = rows_max};
  if (c->drop == MOE_DROP_POSITION || c->capacity == 0) a.prob = NULL; /* not read */
  o->k->route(o->s, &a);
  ops_equal_i(o, "offset", offset, E + 1, w.offset);
  ops_equal_i(o, "row", row, pairs, w.row);
  ops_equal_i(o, "token", token, rows_max, w.token);
  ops_equal_i(o, "slot", slot, rows_max, w.slot);
  ops_equal_i(o, "dropped", dropped, 1, &w.dropped);
  int64_t kept = 0, inside = 0; /* every pair is accounted for */
  for (int64_t i = 0; i < pairs; i++) {
    kept += row[i] >= 0;
    inside += index[i] >= c->first && index[i] >= 0 && index[i] < E + c->first;
  }
  ops_equal_i(o, "kept", dropped + 1, 1, &(int32_t){(int32_t)kept});
  check_choices(o, pairs, row, index);
  if (inside != kept + *dropped)
    ops_fail(o, "routed %ld, kept %ld, dropped %d", (long)inside, (long)kept, *dropped);
}

static void test_route(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(settings); i++) ops_run("route", check, &settings[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_route)};
OPS_MAIN(tests)
