/* gate and gate_bwd. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t rows, cols;
  bool base, in_place;
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 8, true, false},  {MOE_F32, 1, 1, false, false}, {MOE_F32, 7, 37, true, true},
    {MOE_BF16, 7, 37, true, false}, {MOE_BF16, 90, 520, true, true},
    {MOE_F32, 90, 520, false, true},
};

struct loss {
  int64_t rows, cols;
  double *s, *logit, *dy;
};
static double loss_of(void *arg) {
  const struct loss *l = arg;
  double sum = 0;
  for (int64_t r = 0; r < l->rows; r++) {
    double row = 0;
    for (int64_t i = r * l->cols; i < (r + 1) * l->cols; i++) row += l->dy[i] * l->s[i];
    sum += row / (1 + exp(-l->logit[r]));
  }
  return sum;
}

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t R = sh->rows, n = sh->cols;
  struct moe_mat s = ops_mat(o, sh->dtype, R, n, 1), y = ops_mat(o, sh->dtype, R, n, 2);
  struct moe_mat base = ops_mat(o, sh->dtype, R, n, 3), dy = ops_mat(o, sh->dtype, R, n, 0);
  struct moe_mat ds = ops_mat(o, sh->dtype, R, n, 1);
  float *logit = ops_floats(o, R), *dlogit = ops_floats(o, R);
  ops_random(o, s, 1);
  ops_random(o, base, 1);
  ops_random(o, dy, 1);
  ops_random_f(o, logit, R, 4);
  struct loss l = {R, n, ops_copy(o, s), ops_copy_f(o, logit, R), ops_copy(o, dy)};
  double *b = ops_copy(o, base), *want = ops_doubles(o, R * n), *mag = ops_doubles(o, R * n);
  double *want_ds = ops_doubles(o, R * n), *dl = ops_doubles(o, R), *dl_mag = ops_doubles(o, R);
  for (int64_t i = 0; i < R * n; i++) {
    double sig = 1 / (1 + exp(-l.logit[i / n])), add = sh->base ? b[i] : 0;
    want[i] = sig * l.s[i] + add;
    mag[i] = fabs(sig * l.s[i]) + fabs(add);
    want_ds[i] = sig * l.dy[i];
    dl[i / n] += sig * (1 - sig) * l.dy[i] * l.s[i];
    dl_mag[i / n] += sig * fabs(l.dy[i] * l.s[i]);
  }
  ops_differences(o, "ds", loss_of, &l, l.s, R * n, want_ds);
  ops_differences(o, "dlogit", loss_of, &l, l.logit, R, dl);
  struct moe_gate_args a = {.logit = logit, .s = s, .y = y};
  if (sh->base) a.base = base;
  if (sh->base && sh->in_place) a.y = base;
  o->k->gate(o->s, &a);
  ops_close(o, "y", a.y, want, mag, 8 * OPS_EPS);
  struct moe_gate_bwd_args g = {.dy = dy, .s = s, .logit = logit, .ds = ds, .dlogit = dlogit};
  if (sh->in_place) g.ds = s;
  o->k->gate_bwd(o->s, &g);
  ops_close(o, "ds", g.ds, want_ds, NULL, 8 * OPS_EPS);
  ops_close_f(o, "dlogit", dlogit, R, dl, dl_mag, (8 + (double)n / 8) * OPS_EPS);
}

static void test_gate(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("gate", check, &shapes[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_gate)};
OPS_MAIN(tests)
