/* What of the dispatcher is arithmetic on the configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "layers/dispatch.h"

static struct moe_dispatch make(int64_t topk, int32_t ep, int32_t etp, double factor, int32_t pad) {
  const moe_dispatch_config config = {.size = sizeof config, .capacity_factor = factor, .pad = pad};
  struct moe_place place = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {etp, 0}, {ep, 0}, {1, 0}};
  return moe_dispatch_make(&config, 64, topk, place);
}

/* Rows a rank sends one way: K ((EP-1)/EP + ETP-1) a token by all-to-all, EP*ETP-1 by gathering. */
static void test_pick(void **state) {
  (void)state;
  const struct {
    int64_t topk;
    int32_t ep, etp;
    double factor;
    int32_t pad;
    moe_dispatch_kind want;
  } cases[] = {
      {1, 2, 1, 0, 0, MOE_DISPATCH_ALLTOALL},   /* 0.5 and 1 */
      {2, 2, 1, 0, 0, MOE_DISPATCH_ALLTOALL},   /* 1 and 1 */
      {3, 2, 1, 0, 0, MOE_DISPATCH_ALLGATHER},  /* 1.5 and 1 */
      {8, 8, 1, 0, 0, MOE_DISPATCH_ALLTOALL},   /* 7 and 7 */
      {8, 4, 1, 0, 0, MOE_DISPATCH_ALLGATHER},  /* 6 and 3 */
      {8, 4, 1, 0.5, 0, MOE_DISPATCH_ALLTOALL}, /* 3 and 3: at most half of the pairs travel */
      {8, 4, 1, 2, 0, MOE_DISPATCH_ALLGATHER},  /* 6 and 3: no more than there are */
      {2, 2, 1, 2, 1, MOE_DISPATCH_ALLGATHER},  /* 2 and 1: padding travels too */
      {2, 1, 4, 0, 0, MOE_DISPATCH_ALLGATHER},  /* 6 and 3 */
      {1, 4, 2, 0, 0, MOE_DISPATCH_ALLTOALL},   /* 1.75 and 7 */
      {8, 64, 1, 0, 0, MOE_DISPATCH_ALLTOALL},  /* 7.9 and 63 */
  };
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    struct moe_dispatch d =
        make(cases[i].topk, cases[i].ep, cases[i].etp, cases[i].factor, cases[i].pad);
    if (d.kind != cases[i].want) fail_msg("case %zu: kind %d", i, (int)d.kind);
  }
}

static void test_capacity(void **state) {
  (void)state;
  struct moe_dispatch d = make(2, 1, 1, 1.25, 0);
  assert_int_equal(moe_dispatch_capacity(&d, 512), 20); /* 512 * 2 / 64 * 1.25 */
  assert_int_equal(moe_dispatch_capacity(&d, 513), 21);
  assert_int_equal(moe_dispatch_capacity(&d, 1), 1);
  assert_int_equal(moe_dispatch_capacity(&d, 0), 0);
  d.capacity_factor = 64; /* above E / K: no expert can get more than all tokens */
  assert_int_equal(moe_dispatch_capacity(&d, 512), 512);
  assert_int_equal(moe_dispatch_rows(&d, 512), 1024);
  d.pad = true;
  assert_int_equal(moe_dispatch_rows(&d, 512), 64 * 512);
  d.capacity_factor = 0, d.pad = false;
  assert_int_equal(moe_dispatch_capacity(&d, 512), 0);
}

/* The benchmark runs and refuses what cannot be. */
static void test_bench(void **state) {
  (void)state;
  moe_ctx *ctx;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  assert_int_equal(moe_ctx_create(&options, &ctx), MOE_OK);
  moe_dispatch_bench b = {.size = sizeof b, .tokens = 10, .hidden = 8, .experts = 4, .topk = 4};
  assert_int_equal(moe_bench_dispatch(ctx, &b), MOE_OK);
  assert_true(b.permute_seconds > 0 && b.copy_seconds > 0 && b.dispatch_seconds == 0);
  b.topk = 5;
  assert_int_equal(moe_bench_dispatch(ctx, &b), MOE_INVALID);
  b.topk = 4, b.dtype = MOE_I32;
  assert_int_equal(moe_bench_dispatch(ctx, &b), MOE_INVALID);
  moe_ctx_destroy(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pick), cmocka_unit_test(test_capacity),
                                     cmocka_unit_test(test_bench)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
