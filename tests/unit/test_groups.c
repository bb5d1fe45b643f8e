/* Groups: the cases of the fold by hand, and what holds for every layout and order. */
#include <stdio.h>

#include "comm/comm.h"
#include "unit/layouts.h"

enum { MAX_WORLD = 64 };

/* All groups of a kind, "[0,2][1,3]", by their first member, members in the group's order. */
static const char *text_of(const struct moe_layout *layout, enum moe_group_kind kind) {
  static char text[512];
  int32_t ranks[MAX_WORLD];
  size_t n = 0;
  text[0] = 0;
  for (int32_t rank = 0; rank < layout->world; rank++) {
    int32_t members = moe_group_members(layout, kind, rank, ranks);
    if (ranks[0] != rank) continue;
    for (int32_t i = 0; i < members; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "[", ranks[i]);
    n += (size_t)snprintf(text + n, sizeof text - n, "]");
  }
  return text;
}

struct row {
  enum moe_group_kind kind;
  const char *groups;
};

static void expect(const struct moe_layout *layout, const struct row *rows, size_t n) {
  for (size_t i = 0; i < n; i++) assert_string_equal(text_of(layout, rows[i].kind), rows[i].groups);
}

#define PAIRS "[0,1][2,3][4,5][6,7][8,9][10,11][12,13][14,15]"
#define TWO_APART "[0,2][1,3][4,6][5,7][8,10][9,11][12,14][13,15]"
#define FOUR_APART "[0,4][1,5][2,6][3,7][8,12][9,13][10,14][11,15]"
#define EIGHT_APART "[0,8][1,9][2,10][3,11][4,12][5,13][6,14][7,15]"
#define ALONE "[0][1][2][3][4][5][6][7][8][9][10][11][12][13][14][15]"

static void test_sixteen_ranks(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 1, 4);
  struct moe_layout layout = resolve(&config, 16);
  static const struct row rows[] = {
      {MOE_GROUP_TP, PAIRS},
      {MOE_GROUP_CP, TWO_APART},
      {MOE_GROUP_DP, FOUR_APART},
      {MOE_GROUP_EDP, FOUR_APART},
      {MOE_GROUP_PP, EIGHT_APART},
      {MOE_GROUP_EP, "[0,1,2,3][4,5,6,7][8,9,10,11][12,13,14,15]"},
      {MOE_GROUP_ETP, ALONE},
      {MOE_GROUP_TP_CP, "[0,1,2,3][4,5,6,7][8,9,10,11][12,13,14,15]"},
      {MOE_GROUP_DP_CP, "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]"},
      {MOE_GROUP_TP_CP_DP, "[0,1,2,3,4,5,6,7][8,9,10,11,12,13,14,15]"},
      {MOE_GROUP_ETP_EP, "[0,1,2,3][4,5,6,7][8,9,10,11][12,13,14,15]"},
      {MOE_GROUP_ETP_EP_PP, "[0,1,2,3,8,9,10,11][4,5,6,7,12,13,14,15]"},
      {MOE_GROUP_WORLD, "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]"},
  };
  assert_int_equal(MOE_COUNTOF(rows), MOE_GROUPS);
  expect(&layout, rows, MOE_COUNTOF(rows));
}

static void test_experts_with_tensor_parallelism(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 2, 2);
  struct moe_layout layout = resolve(&config, 16);
  static const struct row two[] = {
      {MOE_GROUP_ETP, PAIRS}, {MOE_GROUP_EP, TWO_APART}, {MOE_GROUP_EDP, FOUR_APART}};
  expect(&layout, two, MOE_COUNTOF(two));
  config.ep = 4;
  layout = resolve(&config, 16);
  static const struct row four[] = {{MOE_GROUP_ETP, PAIRS},
                                    {MOE_GROUP_EP, "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]"},
                                    {MOE_GROUP_EDP, ALONE},
                                    {MOE_GROUP_ETP_EP, "[0,1,2,3,4,5,6,7][8,9,10,11,12,13,14,15]"}};
  expect(&layout, four, MOE_COUNTOF(four));
}

static void test_etp_above_tp(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 1, 4, 2);
  struct moe_layout layout = resolve(&config, 8);
  static const struct row rows[] = {
      {MOE_GROUP_TP, "[0,1][2,3][4,5][6,7]"}, {MOE_GROUP_CP, "[0,2][1,3][4,6][5,7]"},
      {MOE_GROUP_DP, "[0,4][1,5][2,6][3,7]"}, {MOE_GROUP_ETP, "[0,1,2,3][4,5,6,7]"},
      {MOE_GROUP_EP, "[0,4][1,5][2,6][3,7]"}, {MOE_GROUP_EDP, "[0][1][2][3][4][5][6][7]"}};
  expect(&layout, rows, MOE_COUNTOF(rows));
}

static void test_pp_inside(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 1, 4);
  config.order = "tp-cp-ep-pp-dp";
  struct moe_layout layout = resolve(&config, 16);
  static const struct row rows[] = {
      {MOE_GROUP_TP, PAIRS},
      {MOE_GROUP_CP, TWO_APART},
      {MOE_GROUP_PP, FOUR_APART},
      {MOE_GROUP_DP, EIGHT_APART},
      {MOE_GROUP_EDP, EIGHT_APART},
      {MOE_GROUP_EP, "[0,1,2,3][4,5,6,7][8,9,10,11][12,13,14,15]"},
      {MOE_GROUP_ETP_EP_PP, "[0,1,2,3,4,5,6,7][8,9,10,11,12,13,14,15]"}};
  expect(&layout, rows, MOE_COUNTOF(rows));
  config.order = "pp-tp-cp-ep-dp"; /* stages are neighbours; dp 2 and edp 2 */
  layout = resolve(&config, 16);
  assert_string_equal(text_of(&layout, MOE_GROUP_PP), PAIRS);
  assert_string_equal(text_of(&layout, MOE_GROUP_TP), TWO_APART);
  assert_string_equal(text_of(&layout, MOE_GROUP_EP), "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]");
  config.ep = 8, config.order = "tp-cp-ep-pp-dp";
  refuse(&config, 16, "(dp 2, edp 1), so their stages differ; put pp last");
}

/* ep in front of etp: an etp-ep group counts ep first. */
static void test_ep_left_of_tp(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 1, 1, 2, 2);
  config.order = "ep-tp-cp-dp-pp";
  struct moe_layout layout = resolve(&config, 8);
  static const struct row rows[] = {
      {MOE_GROUP_EP, "[0,1][2,3][4,5][6,7]"},  {MOE_GROUP_ETP, "[0,2][1,3][4,6][5,7]"},
      {MOE_GROUP_TP, "[0,1][2,3][4,5][6,7]"},  {MOE_GROUP_DP, "[0,2,4,6][1,3,5,7]"},
      {MOE_GROUP_EDP, "[0,4][1,5][2,6][3,7]"}, {MOE_GROUP_ETP_EP, "[0,1,2,3][4,5,6,7]"}};
  expect(&layout, rows, MOE_COUNTOF(rows));
  config = degrees(1, 1, 2, 4, 2);
  config.order = "ep-tp-pp-dp-cp"; /* 8 ranks left of pp are etp * ep, but not tp */
  refuse(&config, 16, "so their stages differ");
  config.order = "ep-tp-dp-cp-pp";
  layout = resolve(&config, 16);
  assert_string_equal(text_of(&layout, MOE_GROUP_ETP),
                      "[0,2,4,6][1,3,5,7][8,10,12,14][9,11,13,15]");
  assert_string_equal(text_of(&layout, MOE_GROUP_EP), PAIRS);
}

/* Members come in the order of the axes in the order string, however the group is called. */
static void test_members_follow_the_order(void **state) {
  (void)state;
  moe_layout_config config = degrees(1, 2, 1, 1, 1);
  struct moe_layout layout = resolve(&config, 4);
  assert_string_equal(text_of(&layout, MOE_GROUP_DP_CP), "[0,1,2,3]"); /* cp 0 1, then dp */
  config = degrees(1, 2, 1, 2, 1);
  config.order = "tp-dp-ep-cp-pp";
  layout = resolve(&config, 8);
  int32_t ranks[8], dp[8], cp[8];
  assert_int_equal(moe_group_members(&layout, MOE_GROUP_DP_CP, 5, ranks), 8);
  assert_int_equal(moe_group_members(&layout, MOE_GROUP_DP, 5, dp), 4);
  assert_int_equal(moe_group_members(&layout, MOE_GROUP_CP, 5, cp), 2);
  for (int i = 0; i < 4; i++) assert_int_equal(ranks[i], i);  /* dp runs first: it is left of cp */
  for (int i = 0; i < 4; i++) assert_int_equal(dp[i], 4 + i); /* cp of rank 5 is 1 */
  assert_int_equal(cp[0], 1);
  assert_int_equal(cp[1], 5);
}

/* ---- for every layout ---- */

static int32_t rank_of(const struct moe_layout *layout, enum moe_view view,
                       const struct moe_place *at) {
  bool attn = view == MOE_VIEW_ATTN;
  const struct moe_coord *axis[MOE_AXES] = {attn ? &at->tp : &at->etp, attn ? &at->cp : NULL,
                                            attn ? NULL : &at->ep, attn ? &at->dp : &at->edp,
                                            &at->pp};
  int32_t rank = 0;
  for (int i = 0; i < MOE_AXES; i++) {
    if (axis[i] == NULL) continue;
    assert_in_range(axis[i]->rank, 0, axis[i]->size - 1);
    assert_int_equal(axis[i]->size, layout->size[view][i]);
    rank += axis[i]->rank * layout->stride[view][i];
  }
  return rank;
}

/* Coordinates and rank belong to each other one to one in both views. */
static void check_places(const struct moe_layout *layout) {
  for (int32_t rank = 0; rank < layout->world; rank++) {
    struct moe_place at = moe_place_of(layout, rank);
    for (int view = 0; view < MOE_VIEWS; view++)
      assert_int_equal(rank_of(layout, (enum moe_view)view, &at), rank);
  }
}

/* Axes of the group in which two ranks differ, as bits. */
static uint32_t differ(const struct moe_layout *layout, enum moe_view view, int32_t a, int32_t b) {
  uint32_t axes = 0;
  for (int i = 0; i < MOE_AXES; i++) {
    int32_t stride = layout->stride[view][i], size = layout->size[view][i];
    if (a / stride % size != b / stride % size) axes |= 1u << i;
  }
  return axes;
}

static const uint32_t spans[MOE_GROUPS] = {
#define AXES(name, text, view, axes) axes,
    MOE_GROUP_MAP(AXES)
#undef AXES
};

/* Groups of a kind part the world; whoever asks gets the same members, itself at its share. */
static void check_kind(const struct moe_layout *layout, enum moe_group_kind kind) {
  enum moe_view view = moe_group_view(kind);
  int32_t ranks[MAX_WORLD], again[MAX_WORLD], size = 1;
  int seen[MAX_WORLD] = {0};
  for (int i = 0; i < MOE_AXES; i++)
    if (spans[kind] & 1u << i) size *= layout->size[view][i];
  for (int32_t rank = 0; rank < layout->world; rank++) {
    int32_t n = moe_group_members(layout, kind, rank, ranks);
    struct moe_coord share = moe_layout_share(layout, kind, rank);
    assert_int_equal(n, size);
    assert_int_equal(share.size, size);
    assert_int_equal(ranks[share.rank], rank);
    if (ranks[0] != rank) continue;
    for (int32_t i = 0; i < n; i++) {
      seen[ranks[i]]++;
      assert_int_equal(differ(layout, view, rank, ranks[i]) & ~spans[kind], 0);
      assert_int_equal(moe_group_members(layout, kind, ranks[i], again), n);
      assert_memory_equal(again, ranks, (size_t)n * sizeof *ranks);
    }
  }
  for (int32_t rank = 0; rank < layout->world; rank++) assert_int_equal(seen[rank], 1);
}

/* Member m has, along the order, the digits of m in the sizes of the group's axes. */
static void check_member_order(const struct moe_layout *layout, enum moe_group_kind kind) {
  enum moe_view view = moe_group_view(kind);
  int32_t ranks[MAX_WORLD];
  int32_t n = moe_group_members(layout, kind, 0, ranks);
  for (int32_t m = 0; m < n; m++) {
    int32_t rest = m, want = 0;
    for (int i = 0; i < MOE_AXES; i++) {
      int32_t axis = layout->order[i];
      if (!(spans[kind] & 1u << axis)) continue;
      want += rest % layout->size[view][axis] * layout->stride[view][axis];
      rest /= layout->size[view][axis];
    }
    assert_int_equal(ranks[m], want);
  }
}

static int check_orders(moe_layout_config config, int world, const struct order *orders) {
  int legal = 0;
  for (int i = 0; i < ORDERS; i++) {
    struct moe_layout layout;
    struct moe_text errors;
    config.order = orders[i].text;
    moe_text_init(ctx, &errors);
    if (moe_layout_resolve(&config, world, &layout, &errors)) {
      legal++;
      check_places(&layout);
      for (int kind = 0; kind < MOE_GROUPS; kind++) {
        check_kind(&layout, (enum moe_group_kind)kind);
        check_member_order(&layout, (enum moe_group_kind)kind);
      }
      assert_true(config.pp == 1 || layout.stride[MOE_VIEW_ATTN][MOE_AXIS_PP] ==
                                        layout.stride[MOE_VIEW_MOE][MOE_AXIS_PP]);
    } else {
      assert_non_null(strstr(errors.s, "layout.order: \""));
    }
    moe_text_destroy(&errors);
  }
  return legal;
}

static void test_every_order(void **state) {
  (void)state;
  static struct order orders[ORDERS];
  static const int cases[][6] = {{8, 2, 1, 2, 1, 2},  {8, 2, 1, 1, 2, 2},  {16, 2, 2, 2, 1, 4},
                                 {16, 2, 2, 2, 2, 2}, {16, 2, 2, 2, 2, 4}, {8, 2, 2, 1, 4, 2},
                                 {24, 2, 1, 2, 3, 2}, {36, 3, 2, 2, 2, 3}, {60, 5, 3, 2, 3, 5}};
  make_orders(orders);
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    const int *c = cases[i];
    int legal = check_orders(degrees(c[1], c[2], c[3], c[4], c[5]), c[0], orders);
    /* Every order of all five axes with pp last or first is legal. */
    assert_in_range(legal, c[3] == 1 ? 120 : 48, ORDERS);
  }
}

/* The communicators have those members. */
static void test_communicators(void **state) {
  (void)state;
  moe_layout_config config = degrees(2, 2, 2, 4, 1);
  config.order = "ep-tp-cp-dp-pp";
  struct moe_layout layout = resolve(&config, 16);
  for (int32_t rank = 0; rank < 16; rank++) {
    struct moe_world *world;
    struct moe_groups groups;
    assert_int_equal(moe_world_recording(ctx, rank, 16, &world), MOE_OK);
    assert_int_equal(moe_groups_create(world, &layout, &groups), MOE_OK);
    for (int kind = 0; kind < MOE_GROUPS; kind++) {
      struct moe_coord share = moe_layout_share(&layout, (enum moe_group_kind)kind, rank);
      const struct moe_comm *comm = groups.of[kind].comm;
      int32_t ranks[MAX_WORLD];
      int32_t n = moe_group_members(&layout, (enum moe_group_kind)kind, rank, ranks);
      assert_int_equal(comm->size, n);
      assert_int_equal(comm->rank, share.rank);
      assert_memory_equal(comm->ranks, ranks, (size_t)n * sizeof *ranks);
    }
    moe_world_destroy(world);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sixteen_ranks), cmocka_unit_test(test_experts_with_tensor_parallelism),
      cmocka_unit_test(test_etp_above_tp),  cmocka_unit_test(test_pp_inside),
      cmocka_unit_test(test_ep_left_of_tp), cmocka_unit_test(test_members_follow_the_order),
      cmocka_unit_test(test_every_order),   cmocka_unit_test(test_communicators),
  };
  return cmocka_run_group_tests(tests, layouts_setup, layouts_teardown);
}
