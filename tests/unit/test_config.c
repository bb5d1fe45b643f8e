/* Validation of a training configuration: what is accepted, and one message for every refusal. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "base/text.h"
#include "moelua/config.h"

enum { BLOCKS = 4 };

static moe_ctx *ctx;
static moe_block_config blocks[BLOCKS];
static moe_train_config config;

/* A small valid configuration to spoil. */
static int setup(void **state) {
  (void)state;
  if (moe_ctx_create(NULL, &ctx) != MOE_OK) return -1;
  moe_train_config_init(&config);
  for (int i = 0; i < BLOCKS; i++) {
    moe_block_config *b = &blocks[i];
    moe_block_config_init(b);
    b->heads = 8, b->kv_heads = 4, b->head_dim = 16;
    b->ffn = 64, b->experts = 60, b->topk = 4;
  }
  config.model.vocab = 257, config.model.hidden = 64, config.model.max_positions = 512;
  config.model.n_blocks = BLOCKS, config.model.blocks = blocks;
  config.seq = 256, config.micro_batch = 2, config.global_batch = 8;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return 0;
}

static void accept(int world) {
  moe_status status = moe_train_config_check(ctx, &config, world);
  if (status != MOE_OK) fail_msg("%s", moe_ctx_error(ctx));
}

/* The one error must be exactly `want`. */
static void refuse(int world, const char *want) {
  assert_int_equal(moe_train_config_check(ctx, &config, world), MOE_INVALID);
  assert_string_equal(moe_ctx_error(ctx), want);
}

/* As refuse, for messages of which only a part matters. */
static void refuse_part(int world, const char *part) {
  assert_int_equal(moe_train_config_check(ctx, &config, world), MOE_INVALID);
  if (!strstr(moe_ctx_error(ctx), part)) fail_msg("no \"%s\" in \"%s\"", part, moe_ctx_error(ctx));
}

/* Sets a field of every block. */
#define EACH(field, value) \
  for (int i_ = 0; i_ < BLOCKS; i_++) blocks[i_].field = (value)

static void test_accepts(void **state) {
  (void)state;
  accept(1);
  accept(4);
  accept(0);
  config.layout.ep = 4, config.layout.pp = 2, config.layout.chunks = 2;
  accept(8);
  EACH(score, MOE_SCORE_SIGMOID);
  EACH(groups, 4);
  EACH(topk_groups, 2);
  EACH(renormalise, 1);
  EACH(expert_bias, 1);
  EACH(routed_scale, 2.5);
  accept(8);
  config.dispatch.capacity_factor = 60; /* above E/K: clamped later, legal */
  accept(8);
}

static void test_topk_one(void **state) {
  (void)state;
  EACH(topk, 1);
  accept(1);
  EACH(renormalise, 1);
  refuse(
      1,
      "model.blocks[0-3].renormalise: with topk 1 the one probability is always p / p = 1, so the "
      "router gets no gradient; renormalise off or topk 2");
}

static void test_valid_values_are_named(void **state) {
  (void)state;
  config.layout.ep = 8, config.global_batch = 16;
  refuse(8,
         "model.blocks[0-3].experts: 60 / ep 8 is not whole; ep: 1 2 3 4 5 6 10 12 15 20 30 60, or "
         "experts: 56 or 64");
  config.layout.ep = 1;
  EACH(kv_heads, 3);
  refuse(1,
         "model.blocks[0-3].kv_heads: heads 8 is not a multiple of kv_heads 3; kv_heads: 1 2 4 8");
  EACH(kv_heads, 4);
  config.global_batch = 7;
  refuse(1, "global_batch: 7 is not a multiple of micro_batch 2 * dp 1 = 2; 6 or 8");
  config.global_batch = 3;
  refuse(2, "global_batch: 3 is not a multiple of micro_batch 2 * dp 2 = 4; 4");
}

static void test_ranges_of_blocks(void **state) {
  (void)state;
  EACH(topk, 4);
  blocks[1].head_dim = 15;
  blocks[2].head_dim = 15;
  refuse(1,
         "model.blocks[1-2].head_dim: 15 is odd, but the rotary embedding turns pairs; 14 or 16");
  blocks[1].head_dim = blocks[2].head_dim = 16;
  blocks[3].topk = 61;
  refuse(1, "model.blocks[3].topk: 61 of 60 experts; it may be 1 .. 60");
  blocks[3].topk = 4;
  blocks[0].window = -1;
  refuse(1, "model.blocks[0].window: -1 is negative; 0 sees all tokens before");
  blocks[0].window = 0;
  blocks[0].rope_theta = NAN;
  refuse_part(1, "model.blocks[0].rope_theta: nan must be above 1");
  blocks[0].rope_theta = 1e4;
  blocks[0].shared_gate = 1;
  refuse_part(1, "model.blocks[0].shared_gate: there is no shared expert");
  blocks[0].shared_gate = 0;
  blocks[0].routed_scale = 2;
  refuse_part(1, "model.blocks[0].routed_scale: 2 needs sigmoid");
  blocks[0].routed_scale = 1, blocks[0].expert_bias = 1;
  refuse_part(1, "model.blocks[0].expert_bias: needs sigmoid");
  blocks[0].expert_bias = 0, blocks[0].groups = 7;
  refuse_part(
      1, "model.blocks[0].groups: 60 experts do not divide into 7 groups; groups: 1 2 3 4 5 6");
  blocks[0].groups = 30, blocks[0].topk_groups = 1;
  refuse_part(1, "topk: 4, but topk_groups 1 of 2 experts each hold only 2");
  blocks[0].groups = 0, blocks[0].ffn_kind = MOE_FFN_DENSE;
  refuse_part(1, "model.blocks[0].experts: 60, but ffn_kind is dense");
  blocks[0].experts = 0;
  accept(1);
  blocks[0].size = 3;
  refuse_part(1, "model.blocks[0].size: 3, must be");
}

static void test_split(void **state) {
  (void)state;
  config.layout.tp = 8, config.layout.etp = 1;
  accept(8); /* each of 4 kv heads on two ranks */
  EACH(kv_heads, 2);
  EACH(heads, 6);
  config.layout.tp = 3;
  refuse_part(3, "model.blocks[0-3].kv_heads: 2 / tp 3 is not whole; tp: 1 2, or kv_heads: 3");
  config.layout.tp = 1, config.layout.pp = 3;
  refuse_part(3, "layout.pp: 4 blocks / (pp 3 * chunks 1 = 3) is not whole; pp * chunks: 1 2 4");
  config.layout.pp = 1, config.layout.chunks = 2;
  refuse(1, "layout.chunks: 2 virtual stages need pp above 1");
  config.layout.chunks = 1, config.layout.etp = 3;
  refuse_part(3, "model.blocks[0-3].ffn: 64 / etp 3 is not whole; etp: 1 2 4 8 16 32 64");
  config.layout.etp = 1;
  EACH(ffn_kind, MOE_FFN_DENSE);
  EACH(experts, 0);
  config.layout.tp = 4;
  EACH(ffn, 66);
  refuse_part(4, "model.blocks[0-3].ffn: 66 / tp 4 is not whole");
}

/* Layers keep lists of as many members. */
static void test_most(void **state) {
  (void)state;
  config.layout.tp = 2048;
  refuse_part(0, "layout.tp: 2048 is outside 1 .. 1024");
  config.layout.tp = 1, config.layout.cp = 4096;
  refuse_part(0, "layout.cp: 4096 is outside 1 .. 1024");
}

static void test_seq(void **state) {
  (void)state;
  config.layout.cp = 3, config.layout.tp = 1;
  refuse(3, "seq: 256 is not a multiple of cp 3 * lcm(2, tp 1) = 6; 252 or 258");
  config.layout.cp = 1;
  config.seq = 255;
  accept(1); /* the factor 2 counts only with cp */
  config.layout.tp = 2;
  refuse(2, "seq: 255 is not a multiple of tp 2; 254 or 256");
  config.layout.tp = 1, config.seq = 513;
  refuse(1, "seq: 513 tokens, but model.max_positions is 512");
}

static void test_dispatch(void **state) {
  (void)state;
  const double bad[] = {-1, 1e9, 1e-9, INFINITY, NAN};
  for (size_t i = 0; i < MOE_COUNTOF(bad); i++) {
    config.dispatch.capacity_factor = bad[i];
    refuse_part(1, "dispatch.capacity_factor: ");
  }
  config.dispatch.capacity_factor = 0, config.dispatch.pad = 1;
  refuse_part(1, "dispatch.pad: there is no capacity");
  config.dispatch.pad = 0, config.dispatch.kind = 9;
  refuse(1, "dispatch.kind: 9 is outside 0 .. 2");
  config.dispatch.kind = 0, config.dispatch.capacity_scope = MOE_CAPACITY_SEQUENCE;
  refuse_part(1, "dispatch.capacity_scope: there is no capacity");
  config.dispatch.capacity_factor = 1, config.dispatch.pad = 1;
  refuse_part(1, "dispatch.capacity_scope: a sequence's capacity");
}

static void test_optimizer(void **state) {
  (void)state;
  moe_optimizer_config *o = &config.optimizer;
  o->beta2 = 1;
  refuse_part(1, "optimizer.beta2: 1 is outside");
  o->beta2 = 0.95, o->lr.peak = 0;
  refuse(1, "optimizer.lr.peak: 0 must be above 0 and at most 10");
  o->lr.peak = 1e-3, o->lr.min = 1e-2;
  refuse(1, "optimizer.lr.min: 0.01 is outside 0 .. 0.001");
  o->lr.min = 0, o->lr.kind = MOE_LR_COSINE;
  refuse_part(1, "optimizer.lr.total: 0 is outside 1 .. ");
  o->lr.total = 10, o->lr.warmup = 11;
  refuse(1, "optimizer.lr.warmup: 11 steps, but there are only 10");
  o->lr.warmup = 4, o->lr.kind = MOE_LR_WSD, o->lr.decay = 7;
  refuse(1, "optimizer.lr.decay: 7 steps; it may be 1 .. 6 (10 steps, 4 of them warm-up)");
  o->lr.decay = 6;
  accept(1);
  config.dtype = MOE_F16;
  refuse_part(1, "dtype: ");
}

static void test_all_errors_at_once(void **state) {
  (void)state;
  config.model.vocab = 0;
  blocks[2].heads = 9;
  config.layout.ep = 7;
  config.layout.order = "tp-dp";
  config.seq = 0;
  config.global_batch = 14;
  config.dispatch.capacity_factor = -1;
  config.optimizer.clip = -1;
  assert_int_equal(moe_train_config_check(ctx, &config, 7), MOE_INVALID);
  const char *text = moe_ctx_error(ctx);
  const char *const want[] = {"model.vocab: ",   "model.blocks[2].kv_heads: ",
                              "layout.order: ",  "model.blocks[0-3].experts: ",
                              "seq: ",           "dispatch.capacity_factor: ",
                              "optimizer.clip: "};
  size_t lines = 1;
  for (const char *p = text; *p; p++) lines += *p == '\n';
  assert_int_equal(lines, MOE_COUNTOF(want));
  for (size_t i = 0; i < MOE_COUNTOF(want); i++)
    if (!strstr(text, want[i])) fail_msg("no \"%s\" in\n%s", want[i], text);
}

static void test_many_errors_end_at_a_line(void **state) {
  (void)state;
  enum { MANY = 2000 };
  moe_block_config *many = calloc(MANY, sizeof *many);
  assert_non_null(many);
  for (int i = 0; i < MANY; i++) many[i] = blocks[0], many[i].topk = 1000 + i;
  config.model.blocks = many, config.model.n_blocks = MANY;
  assert_int_equal(moe_train_config_check(ctx, &config, 1), MOE_INVALID);
  const char *last = strrchr(moe_ctx_error(ctx), '\n');
  assert_non_null(last);
  assert_string_equal(last, "\n(more errors are left out)");
  free(many);
}

static void test_sizes(void **state) {
  (void)state;
  config.layout.size = 0;
  refuse_part(1, "_init first");
  config.layout.size = sizeof config.layout;
  config.model.blocks = NULL;
  refuse(1, "model.blocks: NULL, but n_blocks is 4");
}

static void test_divisors(void **state) {
  (void)state;
  struct moe_text text;
  moe_text_init(ctx, &text);
  moe_text_divisors(&text, 14336, 3);
  assert_string_equal(text.s, "1 2 4 7 8 14 16 28 32 56 64 112 ..");
  text.len = 0;
  moe_text_divisors(&text, 14336, 1000);
  assert_string_equal(text.s, ".. 128 224 256 448 512 896 1024 1792 2048 3584 7168 14336");
  text.len = 0;
  moe_text_divisors(&text, 14336, 14337);
  assert_string_equal(text.s, ".. 128 224 256 448 512 896 1024 1792 2048 3584 7168 14336");
  text.len = 0;
  moe_text_divisors(&text, 1, 5);
  assert_string_equal(text.s, "1");
  text.len = 0;
  moe_text_divisors(&text, 735134400, 1); /* most divisors below 2^31 */
  assert_non_null(strstr(text.s, "1 2 3 4"));
  moe_text_destroy(&text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_accepts),
      TEST(test_topk_one),
      TEST(test_valid_values_are_named),
      TEST(test_ranges_of_blocks),
      TEST(test_split),
      TEST(test_most),
      TEST(test_seq),
      TEST(test_dispatch),
      TEST(test_optimizer),
      TEST(test_all_errors_at_once),
      TEST(test_many_errors_end_at_a_line),
      TEST(test_sizes),
      TEST(test_divisors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
