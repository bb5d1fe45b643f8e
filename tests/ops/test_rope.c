/* rope: against the rotation in double. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t rows, heads, d, gap;
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 2, 8, 1},    {MOE_F32, 1, 1, 2, 0},    {MOE_F32, 37, 3, 10, 3},
    {MOE_F32, 20, 2, 64, 0},  {MOE_F32, 18, 4, 128, 5}, {MOE_BF16, 33, 2, 40, 1},
    {MOE_BF16, 5, 3, 256, 0},
};
enum { POSITIONS = 5000 };

/* What one rotation of row r gives, and the magnitude of the terms. */
static void rotate(const struct shape *s, const int32_t *position, double *x, double *mag,
                   const double *c, const double *sn, double sign) {
  int64_t half = s->d / 2;
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t i = 0; i < half; i++) {
        int64_t at = (r * s->heads + h) * s->d + i, p = position[r] * half + i;
        double a = x[at], b = x[at + half], sine = sign * sn[p];
        x[at] = a * c[p] - b * sine;
        x[at + half] = b * c[p] + a * sine;
        mag[at] = fabs(a * c[p]) + fabs(b * sine);
        mag[at + half] = fabs(b * c[p]) + fabs(a * sine);
      }
}

static void rope(struct ops *o, const void *arg) {
  const struct shape *s = arg;
  int64_t half = s->d / 2, table = POSITIONS * half;
  float *c = ops_floats(o, table), *sn = ops_floats(o, table);
  for (int64_t p = 0; p < POSITIONS; p++)
    for (int64_t i = 0; i < half; i++) {
      double angle = (double)p * pow(10000, -(double)i / (double)half);
      c[p * half + i] = (float)cos(angle);
      sn[p * half + i] = (float)sin(angle);
    }
  int32_t *position = ops_ints(o, s->rows);
  for (int64_t r = 0; r < s->rows; r++) position[r] = (int32_t)ops_below(o, POSITIONS);
  struct moe_mat wide = ops_mat(o, s->dtype, s->rows, s->heads * s->d + 4, s->gap);
  struct moe_mat x = moe_mat_cols(wide, 2, s->heads * s->d);
  ops_random(o, x, 2);
  double *cd = ops_copy_f(o, c, table), *sd = ops_copy_f(o, sn, table);
  double *mag = ops_doubles(o, s->rows * s->heads * s->d);
  struct moe_rope_args a = {x, s->heads, s->d, c, sn, position, false};
  for (int inverse = 0; inverse < 2; inverse++) {
    double *want = ops_copy(o, x);
    rotate(s, position, want, mag, cd, sd, inverse ? -1 : 1);
    a.inverse = inverse;
    o->k->rope(o->s, &a);
    /* Two products and a sum, with or without FMA. */
    ops_close(o, inverse ? "inverse" : "forward", x, want, mag, 2 * OPS_EPS);
  }
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t i = 0; i < 4; i++)
      if (!isnan(ops_get(wide, r, i < 2 ? i : s->heads * s->d + i)))
        ops_fail(o, "row %ld: a column beside x was written", (long)r);
}

/* <y, R x> = <R^-1 y, x>: the inverse is the transpose, i.e. the gradient. */
static void transpose(struct ops *o, const void *arg) {
  (void)arg;
  enum { T = 9, HEADS = 2, D = 14, N = T * HEADS * D };
  float *c = ops_floats(o, T * D / 2), *sn = ops_floats(o, T * D / 2);
  int32_t *position = ops_ints(o, T);
  ops_random_f(o, c, T * D / 2, 1); /* any table: transposition does not need a rotation */
  ops_random_f(o, sn, T * D / 2, 1);
  for (int i = 0; i < T; i++) position[i] = (i * 5) % T;
  struct moe_mat x = ops_mat(o, MOE_F32, T, HEADS * D, 0), y = ops_mat(o, MOE_F32, T, HEADS * D, 0);
  ops_random(o, x, 1);
  ops_random(o, y, 1);
  double *x0 = ops_copy(o, x), *y0 = ops_copy(o, y), left = 0, right = 0, mag = 0;
  o->k->rope(o->s, &(struct moe_rope_args){x, HEADS, D, c, sn, position, false});
  o->k->rope(o->s, &(struct moe_rope_args){y, HEADS, D, c, sn, position, true});
  double *x1 = ops_copy(o, x), *y1 = ops_copy(o, y);
  for (int64_t i = 0; i < N; i++) {
    left += y0[i] * x1[i];
    right += y1[i] * x0[i];
    mag += fabs(y0[i] * x1[i]) + fabs(y1[i] * x0[i]);
  }
  if (!(fabs(left - right) <= 2 * OPS_EPS * mag))
    ops_fail(o, "<y, R x> is %.9g, <R' y, x> is %.9g", left, right);
}

static void test_rope(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("rope", rope, &shapes[i]);
}
static void test_transpose(void **state) {
  (void)state;
  ops_run("rope, transposed", transpose, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rope),
    cmocka_unit_test(test_transpose),
};
OPS_MAIN(tests)
