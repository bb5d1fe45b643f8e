/* What the tests of layouts and groups share: making a layout, or the error that refuses it. */
#ifndef MOE_TESTS_LAYOUTS_H
#define MOE_TESTS_LAYOUTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "mesh/groups.h"

static moe_ctx *ctx;

static int layouts_setup(void **state) {
  (void)state;
  return moe_ctx_create(NULL, &ctx) == MOE_OK ? 0 : -1;
}

static int layouts_teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return 0;
}

static inline moe_layout_config degrees(int tp, int cp, int pp, int etp, int ep) {
  return (moe_layout_config){
      .size = sizeof(moe_layout_config), .tp = tp, .cp = cp, .pp = pp, .etp = etp, .ep = ep};
}

static inline struct moe_layout resolve(const moe_layout_config *config, int world) {
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
static inline void refuse(const moe_layout_config *config, int world, const char *want) {
  struct moe_layout layout;
  struct moe_text errors;
  moe_text_init(ctx, &errors);
  assert_false(moe_layout_resolve(config, world, &layout, &errors));
  assert_non_null(errors.s);
  if (!strstr(errors.s, want)) fail_msg("expected:\n%s\ngot:\n%s", want, errors.s);
  moe_text_destroy(&errors);
}

/* All orders of some of the axes, 325 of them: text, and which axes stand in it. */
enum { ORDERS = 325 };
struct order {
  char text[16];
  int axes, at[MOE_AXES];
};

static inline void add_orders(struct order *all, int *n, struct order *one) {
  static const char *const name[MOE_AXES] = {"tp", "cp", "ep", "dp", "pp"};
  for (int axis = 0; axis < MOE_AXES; axis++) {
    bool used = false;
    for (int i = 0; i < one->axes; i++) used |= one->at[i] == axis;
    if (used) continue;
    struct order longer = *one;
    longer.at[longer.axes++] = axis;
    if (one->axes) strcat(longer.text, "-");
    strcat(longer.text, name[axis]);
    assert_true(*n < ORDERS);
    all[(*n)++] = longer;
    add_orders(all, n, &longer);
  }
}

static inline void make_orders(struct order all[ORDERS]) {
  struct order none = {.axes = 0};
  int n = 0;
  add_orders(all, &n, &none);
  assert_int_equal(n, ORDERS);
}

#endif
