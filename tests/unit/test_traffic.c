/* Predicted traffic: what it refuses, and the arithmetic of folding done by hand. That predictions
 * are what ranks count: tests/ranks/traffic.c. */
#include "layouts.h"
#include "moelua/moelua.h"

enum { H = 64, E = 8, K = 2, SEQ = 128, OPS = MOE_COMM_OPS };

static moe_block_config block;

static moe_train_config tiny(int etp, int ep) {
  moe_train_config c;
  moe_train_config_init(&c);
  moe_block_config_init(&block);
  block.heads = 4, block.kv_heads = 2, block.head_dim = 16;
  block.ffn_kind = MOE_FFN_MOE, block.ffn = 32, block.experts = E, block.topk = K;
  block.renormalise = 1;
  c.model.vocab = 64, c.model.hidden = H, c.model.max_positions = SEQ;
  c.model.n_blocks = 1, c.model.blocks = &block;
  c.layout.tp = 2, c.layout.cp = 2, c.layout.etp = etp, c.layout.ep = ep;
  c.dispatch.kind = MOE_DISPATCH_ALLTOALL;
  c.seq = SEQ, c.micro_batch = 1, c.global_batch = 2;
  return c;
}

static int32_t entries(void) { return moe_traffic_groups() * moe_traffic_ops(); }

static void test_names(void **state) {
  (void)state;
  assert_int_equal(moe_traffic_groups(), MOE_GROUPS + 1);
  assert_string_equal(moe_traffic_group_name(MOE_GROUP_ETP_EP), "etp-ep");
  assert_string_equal(moe_traffic_group_name(MOE_GROUPS), "job");
  assert_string_equal(moe_traffic_op_name(MOE_COMM_ALL_TO_ALL), "all-to-all");
  assert_null(moe_traffic_group_name(-1));
  assert_null(moe_traffic_group_name(MOE_GROUPS + 1));
  assert_null(moe_traffic_op_name(-1));
  assert_null(moe_traffic_op_name(moe_traffic_ops()));
}

static void test_one_rank_sends_nothing(void **state) {
  (void)state;
  int64_t calls[256], bytes[256];
  assert_true(entries() <= 256);
  memset(calls, 1, sizeof calls);
  memset(bytes, 1, sizeof bytes);
  assert_int_equal(moe_ctx_traffic(ctx, calls, NULL, entries()), MOE_OK);
  assert_int_equal(moe_ctx_traffic(ctx, NULL, bytes, entries()), MOE_OK);
  for (int32_t i = 0; i < entries(); i++) assert_true(calls[i] == 0 && bytes[i] == 0);
  moe_train_config c = tiny(1, 1);
  c.layout.tp = c.layout.cp = 1;
  memset(bytes, 1, sizeof bytes);
  assert_int_equal(moe_plan_traffic(ctx, &c, 1, 0, MOE_TRAFFIC_STEP, bytes, entries()), MOE_OK);
  for (int32_t i = 0; i < entries(); i++) assert_int_equal(bytes[i], 0);
}

static void refused(moe_status status, const char *want) {
  assert_int_equal(status, MOE_INVALID);
  if (!strstr(moe_ctx_error(ctx), want)) fail_msg("expected %s, got %s", want, moe_ctx_error(ctx));
}

static void test_refusals(void **state) {
  (void)state;
  int64_t bytes[256];
  moe_train_config c = tiny(1, 4);
  refused(moe_ctx_traffic(ctx, bytes, bytes, entries() - 1), "entries");
  refused(moe_plan_traffic(ctx, &c, 8, 0, 0, bytes, entries() + 1), "entries");
  refused(moe_plan_traffic(ctx, &c, 8, 8, 0, bytes, entries()), "rank 8");
  refused(moe_plan_traffic(ctx, &c, 8, -1, 0, bytes, entries()), "rank -1");
  refused(moe_plan_traffic(ctx, &c, 8, 0, 2, bytes, entries()), "part 2");
  c.layout.ep = 3;
  refused(moe_plan_traffic(ctx, &c, 8, 0, 0, bytes, entries()), "ep");
}

/* Bytes of the MoE layer's all-to-all, all-gather and reduce-scatter of rows, by layout; of the
 * worlds all ranks are alike. */
static void check_moe(int etp, int ep, int64_t all_to_all, int64_t gather, int64_t scatter) {
  int64_t bytes[256];
  moe_train_config c = tiny(etp, ep);
  for (int32_t rank = 0; rank < 8; rank++) {
    assert_int_equal(moe_plan_traffic(ctx, &c, 8, rank, MOE_TRAFFIC_MOE, bytes, entries()), MOE_OK);
    assert_int_equal(bytes[MOE_GROUP_EP * OPS + MOE_COMM_ALL_TO_ALL], all_to_all);
    assert_int_equal(bytes[MOE_GROUP_ETP * OPS + MOE_COMM_ALL_GATHER], gather);
    assert_int_equal(bytes[MOE_GROUP_ETP * OPS + MOE_COMM_REDUCE_SCATTER], scatter);
    assert_int_equal(bytes[MOE_GROUP_EDP * OPS + MOE_COMM_ALL_REDUCE], 0);
  }
}

/* T tokens have T*K rows of H numbers and, on the way to the experts or back, a probability. Of
 * them (ep-1)/ep leave four times: there and back, forward and backward; with etp slices of an
 * expert, (etp-1) times all rows more each time. */
static void test_folding_by_hand(void **state) {
  (void)state;
  const int64_t rows = SEQ / 4 * K, crossing = 4 * rows * H * 4 + 2 * rows * 4;
  check_moe(2, 2, crossing / 2, crossing / 2, crossing / 2); /* each op goes two of the ways */
  check_moe(1, 2, crossing / 2, 0, 0);
  check_moe(1, 4, crossing * 3 / 4, 0, 0);
  check_moe(1, 8, crossing * 7 / 8, 0, 0);
  check_moe(4, 1, 0, crossing / 2 * 3, crossing / 2 * 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_one_rank_sends_nothing),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_folding_by_hand),
  };
  return cmocka_run_group_tests(tests, layouts_setup, layouts_teardown);
}
