/* All groups of every legal layout of up to 64 ranks against tests/vectors/groups/groups.txt, which
 * has what megatron-core makes of them; and every other layout is refused. */
#include <stdio.h>
#include <stdlib.h>

#include "unit/layouts.h"

enum { WORLD = 64, ROWS = 4000, SETS = 64, PAIRS = 64, WORDS = (ORDERS + 63) / 64 };

/* One view of the layouts with these degrees. */
struct row {
  int world, a, b, dp, pp; /* a, b: tp, cp or etp, ep; dp: dp or edp */
  uint64_t hash;
  int set[PAIRS]; /* attn: by the moe rows of the same world and pp, the orders that are legal */
  int sets, seen;
};

static struct {
  char order[ORDERS][16];
  uint64_t set[SETS][WORDS];
  struct row row[MOE_VIEWS][ROWS];
  int orders, sets, rows[MOE_VIEWS];
  long long layouts;
} golden;

/* ---- the file ---- */

static void read_set(const char *hex) {
  uint64_t *set = golden.set[golden.sets++];
  size_t n = strcspn(hex, "\n");
  for (size_t i = 0; i < n; i++) {
    char digit[2] = {hex[n - 1 - i], 0};
    set[i / 16] |= (uint64_t)strtoul(digit, NULL, 16) << i % 16 * 4;
  }
}

static void read_row(enum moe_view view, const char *line) {
  struct row *row = &golden.row[view][golden.rows[view]++];
  int n = 0, more = 0;
  unsigned long long hash;
  assert_int_equal(6, sscanf(line, "%d %d %d %d %d %llx%n", &row->world, &row->a, &row->b, &row->dp,
                             &row->pp, &hash, &n));
  row->hash = hash;
  for (line += n; sscanf(line, "%d%n", &row->set[row->sets], &more) == 1; line += more)
    assert_true(++row->sets < PAIRS);
}

static int load(void **state) {
  FILE *file = fopen("tests/vectors/groups/groups.txt", "r");
  char line[1024];
  int orders = 0, sets = 0, rows = 0;
  if (file == NULL || layouts_setup(state) != 0) return -1;
  while (fgets(line, sizeof line, file)) {
    assert_non_null(strchr(line, '\n'));
    if (!strncmp(line, "sizes ", 6))
      assert_int_equal(4,
                       sscanf(line + 6, "%d %d %d %lld", &orders, &sets, &rows, &golden.layouts));
    if (!strncmp(line, "order ", 6))
      assert_int_equal(1, sscanf(line + 6, "%15s", golden.order[golden.orders++]));
    if (!strncmp(line, "set ", 4)) read_set(line + 4);
    if (!strncmp(line, "attn ", 5)) read_row(MOE_VIEW_ATTN, line + 5);
    if (!strncmp(line, "moe ", 4)) read_row(MOE_VIEW_MOE, line + 4);
  }
  bool whole = orders == golden.orders && sets == golden.sets &&
               rows == golden.rows[MOE_VIEW_ATTN] + golden.rows[MOE_VIEW_MOE];
  return fclose(file) == 0 && whole ? 0 : -1;
}

/* The file's row of a view, which nobody asked for before. */
static struct row *find(enum moe_view view, int world, int a, int b, int pp) {
  for (int i = 0; i < golden.rows[view]; i++) {
    struct row *row = &golden.row[view][i];
    if (row->world != world || row->a != a || row->b != b || row->pp != pp) continue;
    assert_int_equal(row->seen++, 0);
    return row;
  }
  fail_msg("the file has no %s %d %d, pp %d of %d ranks",
           view == MOE_VIEW_ATTN ? "tp cp" : "etp ep", a, b, pp, world);
  return NULL;
}

/* ---- hashes, as make_groups.py has them ---- */

static uint64_t fnv(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3u; }
static const uint64_t kFnv = 0xcbf29ce484222325u;

static uint64_t digest(const struct moe_layout *layout, enum moe_group_kind kind) {
  uint64_t hash = kFnv;
  int32_t ranks[WORLD];
  bool seen[WORLD] = {false};
  for (int32_t rank = 0; rank < layout->world; rank++) {
    if (seen[rank]) continue;
    int32_t n = moe_group_members(layout, kind, rank, ranks);
    assert_int_equal(ranks[0], rank);
    for (int32_t i = 0; i < n; i++) {
      hash = fnv(hash, (uint64_t)ranks[i]);
      seen[ranks[i]] = true;
    }
    hash = fnv(hash, 255);
  }
  return hash;
}

static uint64_t add_order(uint64_t hash, const struct moe_layout *layout, enum moe_view view,
                          int at) {
  static const enum moe_group_kind kinds[MOE_VIEWS][8] = {
      {MOE_GROUP_TP, MOE_GROUP_CP, MOE_GROUP_DP, MOE_GROUP_PP, MOE_GROUP_TP_CP, MOE_GROUP_DP_CP,
       MOE_GROUP_TP_CP_DP},
      {MOE_GROUP_ETP, MOE_GROUP_EP, MOE_GROUP_EDP, MOE_GROUP_ETP_EP, MOE_GROUP_ETP_EP_PP}};
  hash = fnv(hash, (uint64_t)at);
  for (int i = 0; i < (view == MOE_VIEW_ATTN ? 7 : 5); i++)
    hash = fnv(hash, digest(layout, kinds[view][i]));
  return hash;
}

/* ---- every layout of (world, pp) ---- */

struct side {
  struct row *row;
  uint64_t hash;
  bool done;               /* in this order */
  struct moe_layout first; /* of this order: what the hash has */
};

/* All degrees a, b that resolve accepts; the file must have the same. */
static int list(enum moe_view view, int world, int pp, struct side *out) {
  int n = 0;
  for (int a = 1; a <= world; a++)
    for (int b = 1; a * b <= world; b++) {
      struct moe_layout layout;
      struct moe_text errors;
      moe_layout_config config =
          view == MOE_VIEW_ATTN ? degrees(a, b, pp, 1, 1) : degrees(1, 1, pp, a, b);
      moe_text_init(ctx, &errors);
      if (moe_layout_resolve(&config, world, &layout, &errors)) {
        assert_true(n < PAIRS);
        out[n] = (struct side){.row = find(view, world, a, b, pp), .hash = kFnv};
        assert_int_equal(layout.size[view][MOE_AXIS_DP], out[n++].row->dp);
      }
      moe_text_destroy(&errors);
    }
  return n;
}

static void add(struct side *side, const struct moe_layout *layout, enum moe_view view, int at) {
  if (!side->done) {
    side->done = true;
    side->first = *layout;
    side->hash = add_order(side->hash, layout, view, at);
  }
  /* Groups are a function of these. */
  assert_memory_equal(layout->order, side->first.order, sizeof layout->order);
  assert_memory_equal(layout->size[view], side->first.size[view], sizeof layout->size[view]);
  assert_memory_equal(layout->stride[view], side->first.stride[view], sizeof layout->stride[view]);
}

/* Ranks left of pp, or 0 where the order lacks an axis above 1. */
static int left_of_pp(const struct order *order, const int size[MOE_AXES]) {
  int left = 1, present = 0;
  bool pp = false;
  for (int i = 0; i < order->axes; i++) {
    present |= 1 << order->at[i];
    if (order->at[i] == MOE_AXIS_PP) pp = true;
    if (!pp) left *= size[order->at[i]];
  }
  for (int axis = 0; axis < MOE_AXES; axis++)
    if (!(present & 1 << axis) && size[axis] > 1) return 0;
  return left;
}

static bool legal(const struct order *order, const struct row *a, const struct row *m) {
  int attn = left_of_pp(order, (const int[]){a->a, a->b, 1, a->dp, a->pp});
  int moe = left_of_pp(order, (const int[]){m->a, 1, m->b, m->dp, m->pp});
  return attn && moe && (a->pp == 1 || attn == moe);
}

/* Upstream refuses, beside what is illegal, layouts with pp inside the order and other dp than edp,
 * though the stages may be the same ranks in both views. */
static void check_upstream(const struct order *order, const struct row *a, const struct row *m) {
  assert_true(a->pp > 1);
  assert_int_not_equal(order->at[order->axes - 1], MOE_AXIS_PP);
  assert_int_not_equal(a->dp, m->dp);
}

static void check(const struct order *order, int at, struct side *a, struct side *m, int set,
                  long long *layouts) {
  struct moe_layout layout;
  struct moe_text errors;
  moe_layout_config config = degrees(a->row->a, a->row->b, a->row->pp, m->row->a, m->row->b);
  bool theirs = golden.set[set][at / 64] >> at % 64 & 1, want = legal(order, a->row, m->row);
  config.order = order->text;
  moe_text_init(ctx, &errors);
  if (moe_layout_resolve(&config, a->row->world, &layout, &errors) != want)
    fail_msg("%d ranks, tp %d cp %d pp %d etp %d ep %d, order %s: must be %s", a->row->world,
             config.tp, config.cp, config.pp, config.etp, config.ep, order->text,
             want ? "legal" : "refused");
  if (!want && !strstr(errors.s, "\" lacks ") && !strstr(errors.s, " ranks left of pp in the "))
    fail_msg("%s", errors.s);
  moe_text_destroy(&errors);
  assert_false(theirs && !want);
  if (want && !theirs) check_upstream(order, a->row, m->row);
  if (!theirs) return;
  add(a, &layout, MOE_VIEW_ATTN, at);
  add(m, &layout, MOE_VIEW_MOE, at);
  ++*layouts;
}

static void compare(const struct side *side, int n, const char *view) {
  for (int i = 0; i < n; i++)
    if (side[i].hash != side[i].row->hash)
      fail_msg("%d ranks, %s %d %d, pp %d: other groups than megatron-core's, in some order",
               side[i].row->world, view, side[i].row->a, side[i].row->b, side[i].row->pp);
}

static void check_stages(int world, int pp, const struct order *orders, const int *place,
                         long long *layouts) {
  static struct side attn[PAIRS], moe[PAIRS];
  int n = list(MOE_VIEW_ATTN, world, pp, attn), k = list(MOE_VIEW_MOE, world, pp, moe);
  for (int at = 0; at < ORDERS; at++) {
    for (int i = 0; i < n; i++) attn[i].done = false;
    for (int j = 0; j < k; j++) moe[j].done = false;
    for (int i = 0; i < n; i++) {
      assert_int_equal(attn[i].row->sets, k);
      for (int j = 0; j < k; j++)
        check(&orders[place[at]], at, &attn[i], &moe[j], attn[i].row->set[j], layouts);
    }
  }
  compare(attn, n, "tp cp");
  compare(moe, k, "etp ep");
}

/* place[i]: which of our orders is the file's order i. */
static void match_orders(const struct order *orders, int place[ORDERS]) {
  assert_int_equal(golden.orders, ORDERS);
  for (int i = 0; i < ORDERS; i++) {
    place[i] = -1;
    for (int j = 0; j < ORDERS; j++)
      if (!strcmp(golden.order[i], orders[j].text)) place[i] = j;
    assert_int_not_equal(place[i], -1);
    for (int j = 0; j < i; j++) assert_int_not_equal(place[i], place[j]);
  }
}

static void test_every_layout(void **state) {
  (void)state;
  static struct order orders[ORDERS];
  int place[ORDERS];
  long long layouts = 0;
  make_orders(orders);
  match_orders(orders, place);
  for (int world = 1; world <= WORLD; world++)
    for (int pp = 1; pp <= world; pp++) check_stages(world, pp, orders, place, &layouts);
  for (int view = 0; view < MOE_VIEWS; view++)
    for (int i = 0; i < golden.rows[view]; i++) assert_int_equal(golden.row[view][i].seen, 1);
  assert_int_equal(layouts, golden.layouts);
}

/* ---- degrees that do not fit the ranks ---- */

static void check_product(const char *errors, int world, const char *text, int product) {
  char want[128];
  snprintf(want, sizeof want, "layout: %d ranks are not a multiple of %s = %d; ranks: ", world,
           text, product);
  if ((strstr(errors, want) != NULL) != (world % product != 0))
    fail_msg("\"%s\" in\n%s", want, errors);
}

static void test_degrees_that_do_not_fit(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 4, 6, 8};
  enum { N = MOE_COUNTOF(sizes), ALL = N * N * N * N * N };
  int refused = 0;
  for (int code = 0; code < ALL; code++) {
    int d[5];
    for (int i = 0, c = code; i < 5; i++, c /= N) d[i] = sizes[c % N];
    int attn = d[0] * d[1] * d[2], moe = d[3] * d[4] * d[2];
    moe_layout_config config = degrees(d[0], d[1], d[2], d[3], d[4]);
    char left[48], right[48];
    snprintf(left, sizeof left, "tp %d * cp %d * pp %d", d[0], d[1], d[2]);
    snprintf(right, sizeof right, "etp %d * ep %d * pp %d", d[3], d[4], d[2]);
    for (int world = 1; world <= WORLD; world++) {
      struct moe_layout layout;
      struct moe_text errors;
      moe_text_init(ctx, &errors);
      bool ok = moe_layout_resolve(&config, world, &layout, &errors);
      assert_int_equal(ok, world % attn == 0 && world % moe == 0);
      if (!ok) check_product(errors.s, world, left, attn);
      if (!ok) check_product(errors.s, world, right, moe);
      refused += !ok;
      moe_text_destroy(&errors);
    }
  }
  assert_in_range(refused, ALL * WORLD / 2, ALL * WORLD - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout),
                                     cmocka_unit_test(test_degrees_that_do_not_fit)};
  return cmocka_run_group_tests(tests, load, layouts_teardown);
}
