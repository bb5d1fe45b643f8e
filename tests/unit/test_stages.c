/* Blocks on virtual stages: even, uneven and by a list; what a config may ask for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "moelua/moelua.h"
#include "pipe/stages.h"

static moe_ctx *ctx;

static int setup(void **state) {
  (void)state;
  return moe_ctx_create(NULL, &ctx) == MOE_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return 0;
}

/* Stages are disjoint, in order, and have all blocks; even ones differ by one at most. */
static void test_even(void **state) {
  (void)state;
  moe_layout_config layout = {.size = sizeof layout};
  for (int32_t stages = 1; stages <= 12; stages++)
    for (int32_t blocks = 1; blocks <= 40; blocks++) {
      int32_t next = 0;
      for (int32_t v = 0; v < stages; v++) {
        struct moe_stage s = moe_stage_of(&layout, blocks, stages, v);
        assert_int_equal(s.first, next);
        assert_in_range(s.count, blocks / stages, (blocks + stages - 1) / stages);
        next += s.count;
      }
      assert_int_equal(next, blocks);
    }
}

static void test_list(void **state) {
  (void)state;
  static const int32_t list[] = {3, 0, 4, 1}, first[] = {0, 3, 3, 7};
  moe_layout_config layout = {.size = sizeof layout, .n_blocks = 4, .blocks = list};
  for (int32_t v = 0; v < 4; v++) {
    struct moe_stage s = moe_stage_of(&layout, 8, 4, v);
    assert_int_equal(s.first, first[v]);
    assert_int_equal(s.count, list[v]);
  }
}

static moe_block_config block[8];

static moe_train_config config_of(int32_t pp, int32_t chunks) {
  moe_train_config c;
  moe_train_config_init(&c);
  for (int i = 0; i < 8; i++) {
    moe_block_config_init(&block[i]);
    block[i].heads = block[i].kv_heads = 2, block[i].head_dim = 4, block[i].ffn = 8;
    block[i].experts = 2, block[i].topk = 2;
  }
  c.model.vocab = 16, c.model.hidden = 8, c.model.max_positions = c.seq = 8;
  c.model.n_blocks = 8, c.model.blocks = block;
  c.layout.pp = pp, c.layout.chunks = chunks;
  return c;
}

static void refuse(const moe_train_config *c, const char *want) {
  assert_int_equal(moe_train_config_check(ctx, c, c->layout.pp), MOE_INVALID);
  assert_string_equal(moe_ctx_error(ctx), want);
}

static void test_config(void **state) {
  (void)state;
  static const int32_t good[] = {3, 0, 4, 1}, low[] = {3, 0, 2, 1}, high[] = {0, 9, 0, 0};
  moe_train_config c = config_of(2, 2);
  c.layout.blocks = good, c.layout.n_blocks = 4;
  assert_int_equal(moe_train_config_check(ctx, &c, 2), MOE_OK);
  c.layout.blocks = low;
  refuse(&c,
         "layout.blocks: they add up to 6, the model has 8 blocks; e.g. 5 instead of 3 for "
         "stage 0");
  c.layout.blocks = high;
  refuse(&c, "layout.blocks: 9 for stage 1 is outside 0 .. 8");
  c.layout.n_blocks = 3;
  refuse(&c, "layout.blocks: 3 numbers, but pp * chunks = 4 stages");
  c = config_of(3, 1);
  refuse(&c,
         "layout.pp: 8 blocks / (pp 3 * chunks 1 = 3) is not whole; pp * chunks: 1 2 4 8, or "
         "list layout.blocks");
  c = config_of(2, 1), c.layout.group = 2;
  refuse(&c, "layout.group: 2, but there is one chunk; it needs chunks above 1");
  c = config_of(2, 2), c.layout.group = -1;
  refuse(&c, "layout.group: -1 is outside 0 .. 1048576");
  c.layout.group = 3;
  assert_int_equal(moe_train_config_check(ctx, &c, 2), MOE_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_even),
      cmocka_unit_test(test_list),
      cmocka_unit_test(test_config),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
