/* Layouts: degrees that follow from others, and every refusal. The groups: test_groups.c. */
#include "unit/layouts.h"

static void test_defaults(void **state) {
  (void)state;
  moe_layout_config config = degrees(0, 0, 0, 0, 0);
  struct moe_layout l = resolve(&config, 6);
  assert_int_equal(l.size[MOE_VIEW_ATTN][MOE_AXIS_DP], 6);
  config.tp = 2; /* etp follows tp */
  l = resolve(&config, 6);
  assert_int_equal(l.size[MOE_VIEW_MOE][MOE_AXIS_TP], 2);
  assert_int_equal(l.size[MOE_VIEW_MOE][MOE_AXIS_DP], 3);
}

static void test_axes_of_size_one_may_be_absent(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 1, 2, 2, 1);
  config.order = "tp-dp-pp";
  struct moe_layout l = resolve(&config, 8);
  assert_int_equal(l.stride[MOE_VIEW_ATTN][MOE_AXIS_PP], 4);
}

static void test_fewest_ranks(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 3, 5, 1, 4);
  assert_int_equal(resolve(&config, 0).world, 60); /* lcm(6, 4) * 5 */
  config = degrees(2, 1, 2, 1, 4);
  config.dp = 4;
  struct moe_layout l = resolve(&config, 0);
  assert_int_equal(l.world, 16);
  assert_int_equal(l.size[MOE_VIEW_MOE][MOE_AXIS_DP], 2);
  config.dp = 0, config.edp = 3;
  assert_int_equal(resolve(&config, 0).world, 24);
}

static void test_refuses_worlds(void **state) {
  (void)state;
  moe_layout_config config = degrees(4, 1, 2, 1, 2);
  refuse(&config, 12,
         "layout: 12 ranks are not a multiple of tp 4 * cp 1 * pp 2 = 8; ranks: 8 or 16, or tp: "
         "1 2 3 6");
  config = degrees(1, 1, 1, 1, 8);
  refuse(&config, 12, "etp 1 * ep 8 * pp 1 = 8; ranks: 8 or 16, or ep: 1 2 3 4 6 12");
  refuse(&config, -1, "-1 ranks");
  config = degrees(2, 1, 1, 1, 2);
  config.dp = 3;
  refuse(&config, 8,
         "layout.dp: 3, but 8 ranks / (tp 2 * cp 1 * pp 1) = 4; leave dp out or use 6 ranks");
  config.dp = 0, config.edp = 8;
  refuse(&config, 8, "layout.edp: 8, but 8 ranks / (etp 1 * ep 2 * pp 1) = 4");
  config = degrees(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20);
  refuse(&config, 0, "more than 2147483647 ranks");
  refuse(&config, 8, "not a multiple");
  config = degrees(-2, 1, 1, 1, 1);
  refuse(&config, 8, "layout.tp: -2 is outside 1 .. ");
}

static void test_refuses_orders(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 1, 4);
  config.order = "tp-cp-ep-pp-dp";
  assert_int_equal(resolve(&config, 16).stride[MOE_VIEW_MOE][MOE_AXIS_PP], 4); /* dp = edp: legal */
  config.ep = 8;
  refuse(&config, 16,
         "\"tp-cp-ep-pp-dp\" has 4 ranks left of pp in the attention view and 8 in the MoE view "
         "(dp 2, edp 1)");
  config.order = "tp-cp-dp-pp";
  refuse(&config, 16,
         "layout.order: \"tp-cp-dp-pp\" lacks ep, but ep is 8; e.g. \"tp-cp-ep-dp-pp\"");
  config.order = "tp-cp-ep-pp";
  refuse(&config, 16, "lacks dp, but dp is 2");
  config.order = "tp-cp-ep-dp-tp-pp";
  refuse(&config, 16, "names tp twice");
  config.order = "etp-cp-ep-dp-pp";
  refuse(&config, 16, "unknown axis \"etp\" in \"etp-cp-ep-dp-pp\"; etp takes the place of tp");
  config.order = "tpx-cp-ep-dp-pp"; /* whole words only */
  refuse(&config, 16, "unknown axis \"tpx\"");
  static const char *const traps[] = {"tp-cp-ep-dp-ppp", "tpcp-ep-dp-pp",   "tp-cp-ep-dp-edp-pp",
                                      "cpp-tp-ep-dp-pp", "tp-cp-ep-dp-pp-", "-tp-cp-ep-dp-pp",
                                      "TP-cp-ep-dp-pp",  "tp-cp-ep-dp- pp", "t-p-cp-ep-dp-pp"};
  for (size_t i = 0; i < MOE_COUNTOF(traps); i++) {
    config.order = traps[i];
    refuse(&config, 16, "layout.order: unknown axis");
  }
  config.order = "tp--cp-ep-dp-pp";
  refuse(&config, 16, "unknown axis \"\"");
  config.order = "";
  refuse(&config, 16, "unknown axis \"\"");
  config.order = "tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep";
  refuse(&config, 16, "68 characters are too many");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),       cmocka_unit_test(test_axes_of_size_one_may_be_absent),
      cmocka_unit_test(test_fewest_ranks),   cmocka_unit_test(test_refuses_worlds),
      cmocka_unit_test(test_refuses_orders),
  };
  return cmocka_run_group_tests(tests, layouts_setup, layouts_teardown);
}
