/* Blending: the order against a plain loop in exact arithmetic, and jumps to any cursor. */
#include "data/blend.h"
#include "token_files.h"

enum { MOST = 40 };

struct weights {
  int32_t n;
  int64_t whole[MOST]; /* the exact weights, */
  double scale;        /* given to the blend multiplied by this */
};

static const struct weights cases[] = {
    {1, {5}, 1},
    {2, {1, 1}, 1},
    {2, {7, 3}, 0.1},
    {3, {1, 2, 7}, 0.1},
    {3, {5, 3, 2}, 1e-300},
    {3, {1, 1, 1}, 1.0 / 3},
    {4, {400, 300, 299, 1}, 1e-3},
    {5, {1, 10, 100, 1000, 10000}, 1e299},
    {2, {999999, 1}, 1},
    {7, {13, 1, 13, 1, 8, 8, 3}, 0.3141592653589793},
    {MOST,
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  90},
     0.01},
};

static void make_blend(struct world *w, const struct weights *c, struct moe_blend *out) {
  double weights[MOST];
  for (int32_t i = 0; i < c->n; i++) weights[i] = (double)c->whole[i] * c->scale;
  OK(w->ctx, moe_blend_init(w->ctx, weights, c->n, out));
}

/* weight*(n+1) - drawn, times the sum of the weights; the first of equals. */
static int32_t naive_draw(const struct weights *c, int64_t n, int64_t *drawn) {
  int64_t sum = 0, most = INT64_MIN;
  int32_t best = -1;
  for (int32_t i = 0; i < c->n; i++) sum += c->whole[i];
  for (int32_t i = 0; i < c->n; i++) {
    int64_t lag = c->whole[i] * (n + 1) - sum * drawn[i];
    if (lag > most) most = lag, best = i;
  }
  drawn[best]++;
  return best;
}

enum { LONG = 12000 };

static void test_is_the_greedy_order(void **state) {
  struct world *w = *state;
  static int32_t source[LONG];
  static int64_t index[LONG];
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    struct moe_blend blend;
    int64_t drawn[MOST] = {0}, got_index;
    int32_t got;
    make_blend(w, &cases[k], &blend);
    for (int64_t n = 0; n < LONG; n++) {
      source[n] = naive_draw(&cases[k], n, drawn);
      index[n] = drawn[source[n]] - 1;
      moe_blend_next(&blend, &got, &got_index);
      assert_int_equal(got, source[n]);
      assert_int_equal(got_index, index[n]);
    }
    struct moe_rng_key key = moe_rng_key(k, "cursors");
    for (uint64_t jump = 0; jump < 200; jump++) {
      int64_t n = (int64_t)(moe_rng_u64(key, jump) % (LONG - 3));
      moe_blend_seek(&blend, n);
      for (int64_t i = n; i < n + 3; i++) {
        moe_blend_next(&blend, &got, &got_index);
        assert_int_equal(got, source[i]);
        assert_int_equal(got_index, index[i]);
      }
    }
    moe_blend_destroy(&blend);
  }
}

static void test_shares_are_the_weights(void **state) {
  struct world *w = *state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    struct moe_blend blend;
    int64_t sum = 0, shares = 0;
    make_blend(w, &cases[k], &blend);
    for (int32_t i = 0; i < cases[k].n; i++) sum += cases[k].whole[i], shares += blend.share[i];
    assert_int_equal(shares, blend.period);
    for (int32_t i = 0; i < cases[k].n; i++)
      assert_int_equal(blend.share[i] * sum, cases[k].whole[i] * blend.period);
    moe_blend_destroy(&blend);
  }
}

/* Far cursors, beyond 32 bits: a whole number of periods gives every source its share of them. */
static void test_far_cursors(void **state) {
  struct world *w = *state;
  const struct weights *c = &cases[3]; /* period 10 */
  struct moe_blend blend;
  make_blend(w, c, &blend);
  int64_t drawn[3] = {0}, base = (int64_t)1 << 50, index;
  int32_t source;
  moe_blend_seek(&blend, base * 10);
  for (int64_t n = 0; n < 25; n++) {
    int32_t want = naive_draw(c, n, drawn);
    moe_blend_next(&blend, &source, &index);
    assert_int_equal(source, want);
    assert_int_equal(index, base * c->whole[want] + drawn[want] - 1);
  }
  moe_blend_destroy(&blend);
}

/* Ratios without a short period: rounded, by less than a share each, and never to 0. */
static void test_rounded_weights(void **state) {
  struct world *w = *state;
  const double weights[4] = {3.14159265358979, 2.71828182845905, 1.4142135623731, 1e-12};
  double sum = 0, exact[4];
  struct moe_blend blend, again;
  OK(w->ctx, moe_blend_init(w->ctx, weights, 4, &blend));
  assert_int_equal(blend.period, MOE_BLEND_PERIOD);
  for (int i = 0; i < 4; i++) sum += weights[i];
  for (int i = 0; i < 4; i++) exact[i] = weights[i] / sum;
  for (int i = 0; i < 4; i++) assert_true(fabs((double)blend.share[i] - exact[i] * 0x1p20) <= 1);
  assert_int_equal(blend.share[3], 1);
  int64_t drawn[4] = {0}, index;
  int32_t source;
  for (int64_t n = 0; n < 2 * MOE_BLEND_PERIOD; n++) {
    moe_blend_next(&blend, &source, &index);
    assert_int_equal(index, drawn[source]);
    drawn[source]++;
    double want = exact[source] * (double)(n + 1);
    assert_true(fabs((double)drawn[source] - want) < 4); /* never far from the weight */
  }
  for (int i = 0; i < 4; i++) assert_int_equal(drawn[i], 2 * blend.share[i]);
  OK(w->ctx, moe_blend_init(w->ctx, weights, 4, &again));
  moe_blend_seek(&again, 3 * MOE_BLEND_PERIOD + 777777);
  moe_blend_seek(&blend, 777777);
  for (int i = 0; i < 1000; i++) {
    int64_t other;
    int32_t from;
    moe_blend_next(&blend, &source, &index);
    moe_blend_next(&again, &from, &other);
    assert_int_equal(from, source);
    assert_int_equal(other, index + 3 * blend.share[source]);
  }
  moe_blend_destroy(&blend);
  moe_blend_destroy(&again);
}

static void test_many_sources(void **state) {
  struct world *w = *state;
  enum { N = 1000 };
  static double weights[N];
  static int64_t drawn[N];
  struct moe_rng_key key = moe_rng_key(5, "weights");
  struct moe_blend blend;
  double sum = 0;
  for (int i = 0; i < N; i++) sum += weights[i] = moe_rng_uniform(key, (uint64_t)i) + 1e-9;
  OK(w->ctx, moe_blend_init(w->ctx, weights, N, &blend));
  for (int64_t n = 0; n < 20000; n++) {
    int32_t source;
    int64_t index;
    moe_blend_next(&blend, &source, &index);
    assert_int_equal(index, drawn[source]++);
  }
  for (int i = 0; i < N; i++) assert_true(fabs((double)drawn[i] - 20000 * weights[i] / sum) < 3);
  moe_blend_destroy(&blend);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WORLD_TEST(test_is_the_greedy_order), WORLD_TEST(test_shares_are_the_weights),
      WORLD_TEST(test_far_cursors),         WORLD_TEST(test_rounded_weights),
      WORLD_TEST(test_many_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
