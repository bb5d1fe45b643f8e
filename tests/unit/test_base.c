/* Context, arena, pool, random numbers, text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/alloc.h"
#include "base/arena.h"
#include "base/ctx.h"
#include "base/rng.h"
#include "base/text.h"

static moe_ctx *make(int32_t threads) {
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = threads;
  moe_ctx *ctx;
  assert_int_equal(moe_ctx_create(&options, &ctx), MOE_OK);
  return ctx;
}

static void test_alloc_counts(void **state) {
  (void)state;
  moe_ctx *ctx = make(1);
  uint64_t count = moe_ctx_alloc_count(ctx), bytes = moe_ctx_alloc_bytes(ctx);
  void *p = moe_alloc(ctx, 100);
  p = moe_realloc(ctx, p, 200);
  void *q = moe_map(ctx, 1 << 20);
  assert_int_equal(moe_ctx_alloc_count(ctx), count + 3);
  assert_int_equal(moe_ctx_alloc_bytes(ctx), bytes + 200 + (1 << 20));
  moe_unmap(ctx, q, 1 << 20);
  moe_release(ctx, p);
  assert_int_equal(moe_ctx_alloc_bytes(ctx), bytes);
  assert_null(moe_alloc(ctx, SIZE_MAX - 4));
  assert_non_null(strstr(moe_ctx_error(ctx), "no memory"));
  assert_null(moe_alloc_array(ctx, SIZE_MAX / 2, 4));
  moe_ctx_destroy(ctx);
}

static void test_arena(void **state) {
  (void)state;
  moe_ctx *ctx = make(1);
  struct moe_arena arena;
  assert_int_equal(moe_arena_create(ctx, "test", 1024, &arena), MOE_OK);
  char *a = moe_arena_get(&arena, 1);
  size_t mark = moe_arena_mark(&arena);
  char *b = moe_arena_get(&arena, 65);
  assert_int_equal(b - a, 64);
  assert_int_equal((uintptr_t)b % 64, 0);
  moe_arena_reset(&arena, mark);
  assert_ptr_equal(moe_arena_get(&arena, 960), b);
  assert_null(moe_arena_get(&arena, 1));
  assert_null(moe_arena_get(&arena, SIZE_MAX));
  assert_int_equal(arena.peak, 1024);
  moe_arena_destroy(&arena);
  moe_ctx_destroy(ctx);
}

#if defined(__SANITIZE_ADDRESS__)
/* A touch beside a mapping, in the gap behind an allocation or above a mark is a fault. */
static void test_arena_is_guarded(void **state) {
  (void)state;
  moe_ctx *ctx = make(1);
  struct moe_arena arena;
  assert_int_equal(moe_arena_create(ctx, "test", 1024, &arena), MOE_OK);
  char *a = moe_arena_get(&arena, 5);
  size_t mark = moe_arena_mark(&arena);
  char *b = moe_arena_get(&arena, 64);
  assert_false(__asan_address_is_poisoned(a + 4));
  assert_true(__asan_address_is_poisoned(a + 5));
  assert_true(__asan_address_is_poisoned(a - 1));
  assert_false(__asan_address_is_poisoned(b + 63));
  moe_arena_reset(&arena, mark);
  assert_true(__asan_address_is_poisoned(b));
  assert_true(__asan_address_is_poisoned(arena.base + 1024));
  moe_arena_destroy(&arena);
  moe_ctx_destroy(ctx);
}
#endif

static void add(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  ((_Atomic int64_t *)arg)[task]++;
}

static void test_pool_runs_every_task_once(void **state) {
  (void)state;
  for (int32_t threads = 1; threads <= 5; threads++) {
    moe_ctx *ctx = make(threads);
    static _Atomic int64_t seen[300];
    memset((void *)seen, 0, sizeof seen);
    for (int job = 0; job < 2000; job++) moe_pool_run(ctx->pool, add, (void *)seen, job % 300);
    for (int i = 0; i < 300; i++) {
      int64_t want = 0;
      for (int job = 0; job < 2000; job++) want += i < job % 300;
      assert_int_equal(seen[i], want);
    }
    moe_ctx_destroy(ctx);
  }
}

/* Known answer of Philox 4x32-10 for counter 0, key 0 (published with Random123). */
static void test_philox_known_answer(void **state) {
  (void)state;
  uint32_t w[4];
  moe_rng_words((struct moe_rng_key){{0, 0}}, 0, w);
  assert_int_equal(w[0], 0x6627e8d5u);
  assert_int_equal(w[1], 0xe169c58du);
  assert_int_equal(w[2], 0xbc57ac4cu);
  assert_int_equal(w[3], 0x9b00dbd8u);
}

static void test_rng_normal_moments(void **state) {
  (void)state;
  struct moe_rng_key key = moe_rng_key(1, "w");
  double sum = 0, sq = 0;
  const int n = 100000;
  for (int i = 0; i < n; i++) {
    double x = moe_rng_normal(key, (uint64_t)i);
    sum += x, sq += x * x;
  }
  assert_true(fabs(sum / n) < 0.02);
  assert_true(fabs(sq / n - 1) < 0.02);
}

static void test_rng_permute_is_a_bijection(void **state) {
  (void)state;
  struct moe_rng_key key = moe_rng_key(3, "shuffle");
  for (uint64_t n = 1; n <= 257; n += 16) {
    char seen[300] = {0};
    for (uint64_t i = 0; i < n; i++) {
      uint64_t j = moe_rng_permute(key, i, n);
      assert_true(j < n && !seen[j]);
      seen[j] = 1;
    }
  }
}

static void test_nearest(void **state) {
  (void)state;
  const char *const words[] = {"capacity_factor", "kind", "drop"};
  assert_string_equal(moe_text_nearest("capcity_factor", words, 3), "capacity_factor");
  assert_string_equal(moe_text_nearest("knid", words, 3), "kind");
  assert_null(moe_text_nearest("zebra", words, 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_alloc_counts),
      cmocka_unit_test(test_arena),
#if defined(__SANITIZE_ADDRESS__)
      cmocka_unit_test(test_arena_is_guarded),
#endif
      cmocka_unit_test(test_pool_runs_every_task_once),
      cmocka_unit_test(test_philox_known_answer),
      cmocka_unit_test(test_rng_normal_moments),
      cmocka_unit_test(test_rng_permute_is_a_bijection),
      cmocka_unit_test(test_nearest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
