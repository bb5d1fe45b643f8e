/* Layouts: degrees, strides and groups of both views, and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "mesh/layout.h"

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

static moe_layout_config degrees(int tp, int cp, int pp, int etp, int ep) {
  return (moe_layout_config){
      .size = sizeof(moe_layout_config), .tp = tp, .cp = cp, .pp = pp, .etp = etp, .ep = ep};
}

static struct moe_layout resolve(const moe_layout_config *config, int world) {
  struct moe_layout layout;
  struct moe_text errors;
  moe_text_init(ctx, &errors);
  bool ok = moe_layout_resolve(config, world, &layout, &errors);
  if (!ok) print_error("%s\n", errors.s);
  assert_true(ok);
  assert_int_equal(errors.len, 0);
  moe_text_destroy(&errors);
  return layout;
}

/* The refusal must hold `want` and nothing may be accepted. */
static void refuse(const moe_layout_config *config, int world, const char *want) {
  struct moe_layout layout;
  struct moe_text errors;
  moe_text_init(ctx, &errors);
  assert_false(moe_layout_resolve(config, world, &layout, &errors));
  assert_non_null(errors.s);
  if (!strstr(errors.s, want)) fail_msg("expected:\n%s\ngot:\n%s", want, errors.s);
  moe_text_destroy(&errors);
}

/* Writes the groups of an axis like "[0,2][1,3]", by the smallest member, members along the axis.
 */
static const char *groups(const struct moe_layout *layout, enum moe_view view, enum moe_axis axis) {
  static char text[512];
  int size = layout->size[view][axis], stride = layout->stride[view][axis];
  size_t n = 0;
  text[0] = 0;
  for (int rank = 0; rank < layout->world; rank++) {
    if (rank / stride % size) continue;
    for (int i = 0; i < size; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "[", rank + i * stride);
    n += (size_t)snprintf(text + n, sizeof text - n, "]");
  }
  return text;
}

#define A MOE_VIEW_ATTN
#define M MOE_VIEW_MOE

static void test_groups_of_sixteen(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 1, 4);
  struct moe_layout l = resolve(&config, 16);
  assert_int_equal(l.size[A][MOE_AXIS_DP], 2);
  assert_int_equal(l.size[M][MOE_AXIS_DP], 2);
  assert_string_equal(groups(&l, A, MOE_AXIS_TP), "[0,1][2,3][4,5][6,7][8,9][10,11][12,13][14,15]");
  assert_string_equal(groups(&l, A, MOE_AXIS_CP), "[0,2][1,3][4,6][5,7][8,10][9,11][12,14][13,15]");
  const char *dp = "[0,4][1,5][2,6][3,7][8,12][9,13][10,14][11,15]";
  assert_string_equal(groups(&l, A, MOE_AXIS_DP), dp);
  assert_string_equal(groups(&l, M, MOE_AXIS_DP), dp);
  const char *pp = "[0,8][1,9][2,10][3,11][4,12][5,13][6,14][7,15]";
  assert_string_equal(groups(&l, A, MOE_AXIS_PP), pp);
  assert_string_equal(groups(&l, M, MOE_AXIS_PP), pp);
  assert_string_equal(groups(&l, M, MOE_AXIS_EP), "[0,1,2,3][4,5,6,7][8,9,10,11][12,13,14,15]");
  assert_int_equal(l.size[M][MOE_AXIS_TP], 1);
}

static void test_groups_with_etp(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 2, 2);
  struct moe_layout l = resolve(&config, 16);
  assert_string_equal(groups(&l, M, MOE_AXIS_TP), "[0,1][2,3][4,5][6,7][8,9][10,11][12,13][14,15]");
  assert_string_equal(groups(&l, M, MOE_AXIS_EP), "[0,2][1,3][4,6][5,7][8,10][9,11][12,14][13,15]");
  config.ep = 4;
  l = resolve(&config, 16);
  assert_string_equal(groups(&l, M, MOE_AXIS_EP), "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]");
  assert_int_equal(l.size[M][MOE_AXIS_DP], 1);
  config = degrees(2, 2, 1, 4, 2);
  l = resolve(&config, 8);
  assert_string_equal(groups(&l, M, MOE_AXIS_TP), "[0,1,2,3][4,5,6,7]");
  assert_string_equal(groups(&l, M, MOE_AXIS_EP), "[0,4][1,5][2,6][3,7]");
}

static void test_defaults(void **state) {
  (void)state;
  moe_layout_config config = degrees(0, 0, 0, 0, 0);
  struct moe_layout l = resolve(&config, 6);
  assert_int_equal(l.size[A][MOE_AXIS_DP], 6);
  config.tp = 2; /* etp follows tp */
  l = resolve(&config, 6);
  assert_int_equal(l.size[M][MOE_AXIS_TP], 2);
  assert_int_equal(l.size[M][MOE_AXIS_DP], 3);
}

static void test_ep_left_of_tp(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 1, 1, 2, 2);
  config.order = "ep-tp-cp-dp-pp";
  struct moe_layout l = resolve(&config, 8);
  assert_string_equal(groups(&l, M, MOE_AXIS_EP), "[0,1][2,3][4,5][6,7]");
  assert_string_equal(groups(&l, M, MOE_AXIS_TP), "[0,2][1,3][4,6][5,7]");
  assert_string_equal(groups(&l, A, MOE_AXIS_TP), "[0,1][2,3][4,5][6,7]");
}

static void test_axes_of_size_one_may_be_absent(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 1, 2, 2, 1);
  config.order = "tp-dp-pp";
  struct moe_layout l = resolve(&config, 8);
  assert_int_equal(l.stride[A][MOE_AXIS_PP], 4);
}

static void test_fewest_ranks(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 3, 5, 1, 4);
  assert_int_equal(resolve(&config, 0).world, 60); /* lcm(6, 4) * 5 */
  config = degrees(2, 1, 2, 1, 4);
  config.dp = 4;
  struct moe_layout l = resolve(&config, 0);
  assert_int_equal(l.world, 16);
  assert_int_equal(l.size[M][MOE_AXIS_DP], 2);
  config.dp = 0, config.edp = 3;
  assert_int_equal(resolve(&config, 0).world, 24);
}

/* Every legal order: both views number the ranks one to one. */
static void test_all_orders_are_bijections(void **state) {
  (void)state;
  static const char *const axes[] = {"tp", "cp", "ep", "dp", "pp"};
  int tried = 0, accepted = 0;
  for (int code = 0; code < 3125; code++) {
    int pick[5], seen = 0;
    char order[32] = "";
    for (int i = 0, c = code; i < 5; i++, c /= 5) pick[i] = c % 5, seen |= 1 << pick[i];
    if (seen != 31) continue;
    for (int i = 0; i < 5; i++) strcat(strcat(order, i ? "-" : ""), axes[pick[i]]);
    moe_layout_config config = degrees(2, 1, 2, 1, 2);
    config.order = order;
    struct moe_layout l;
    struct moe_text errors;
    moe_text_init(ctx, &errors);
    tried++;
    if (moe_layout_resolve(&config, 8, &l, &errors)) {
      accepted++;
      for (int view = 0; view < MOE_VIEWS; view++) {
        int product = 1;
        for (int i = 0; i < MOE_AXES; i++) {
          assert_int_equal(l.stride[view][l.order[i]], product);
          product *= l.size[view][l.order[i]];
        }
        assert_int_equal(product, 8);
      }
      assert_int_equal(l.stride[A][MOE_AXIS_PP], l.stride[M][MOE_AXIS_PP]);
    } else {
      assert_non_null(strstr(errors.s, "left of pp"));
    }
    moe_text_destroy(&errors);
  }
  assert_int_equal(tried, 120);
  assert_in_range(accepted, 48, 119); /* pp first or last is always legal */
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
  assert_int_equal(resolve(&config, 16).stride[M][MOE_AXIS_PP], 4); /* dp = edp: legal */
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
  config.order = "tp--cp-ep-dp-pp";
  refuse(&config, 16, "unknown axis \"\"");
  config.order = "";
  refuse(&config, 16, "unknown axis \"\"");
  config.order = "tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep-dp-pp-tp-cp-ep";
  refuse(&config, 16, "68 characters are too many");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_groups_of_sixteen),
      cmocka_unit_test(test_groups_with_etp),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_ep_left_of_tp),
      cmocka_unit_test(test_axes_of_size_one_may_be_absent),
      cmocka_unit_test(test_fewest_ranks),
      cmocka_unit_test(test_all_orders_are_bijections),
      cmocka_unit_test(test_refuses_worlds),
      cmocka_unit_test(test_refuses_orders),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
