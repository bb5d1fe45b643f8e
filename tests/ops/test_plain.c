/* convert, add, scale, sumsq, sum. */
#include "ops/ops.h"

struct shape {
  moe_dtype a, b, dst;
  int64_t rows, cols, gap;
};
static const struct shape shapes[] = {
    {MOE_F32, MOE_F32, MOE_F32, 0, 7, 1},   {MOE_F32, MOE_F32, MOE_F32, 1, 1, 0},
    {MOE_F32, MOE_F32, MOE_BF16, 3, 33, 5}, {MOE_BF16, MOE_F32, MOE_F32, 65, 47, 3},
    {MOE_BF16, MOE_BF16, MOE_BF16, 5, 4099, 1}, {MOE_F32, MOE_BF16, MOE_F32, 400, 130, 2},
};

static void element_wise(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  struct moe_mat a = ops_mat(o, sh->a, sh->rows, sh->cols, sh->gap);
  struct moe_mat b = ops_mat(o, sh->b, sh->rows, sh->cols, sh->gap + 1);
  struct moe_mat c = ops_mat(o, sh->dst, sh->rows, sh->cols, sh->gap + 2);
  struct moe_mat d = ops_mat(o, sh->dst, sh->rows, sh->cols, sh->gap);
  ops_random(o, a, 1);
  ops_random(o, b, 3);
  double *want = ops_copy(o, a), *second = ops_copy(o, b);
  o->k->convert(o->s, c, a);
  ops_close(o, "convert", c, want, NULL, 0);
  for (int64_t i = 0; i < sh->rows * sh->cols; i++) want[i] += second[i];
  o->k->add(o->s, d, a, b);
  ops_close(o, "add", d, want, NULL, OPS_EPS);
  if (sh->a == sh->dst) { /* in place */
    o->k->add(o->s, a, a, b);
    ops_close(o, "add in place", a, want, NULL, OPS_EPS);
  }
}

/* Rounding to bf16: ties to even, infinities, NaN, the smallest normal numbers (denormals may
 * become 0). */
static void rounding(struct ops *o, const void *arg) {
  (void)arg;
  static const uint32_t in[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f800000, 0xff800000,
                                0x7f800001, 0x7fffffff, 0xffffffff, 0x7f7fffff, 0x00000000,
                                0x80000000, 0x00808000, 0x00818000};
  static const uint16_t out[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x7fc0, 0x7fff,
                                 0xffff, 0x7f80, 0x0000, 0x8000, 0x0080, 0x0082};
  enum { N = MOE_COUNTOF(in) };
  struct moe_mat a = ops_mat(o, MOE_F32, 1, 3 * N, 0), b = ops_mat(o, MOE_BF16, 1, 3 * N, 0);
  for (int i = 0; i < 3 * N; i++) memcpy((float *)a.p + i, &in[i % N], 4);
  o->k->convert(o->s, b, a);
  for (int i = 0; i < 3 * N; i++)
    if (((uint16_t *)b.p)[i] != out[i % N])
      ops_fail(o, "%08x rounds to %04x, must be %04x", in[i % N], ((uint16_t *)b.p)[i], out[i % N]);
}

static void sums(struct ops *o, const void *arg) {
  int64_t n = *(const int64_t *)arg;
  float *x = ops_floats(o, n);
  ops_random_f(o, x, n, 1);
  long double sum = 0, squares = 0, mag = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += x[i];
    squares += (long double)x[i] * x[i];
    mag += fabsl((long double)x[i]);
  }
  double got = NAN, got2 = NAN;
  o->k->sum(o->s, x, n, &got, false);
  o->k->sumsq(o->s, x, n, &got2, false);
  /* Sums in double: far below one part in 2^40 for these sizes. */
  if (!(fabsl(got - sum) <= 0x1p-40L * mag)) ops_fail(o, "sum is %.17g", got);
  if (!(fabsl(got2 - squares) <= 0x1p-40L * squares)) ops_fail(o, "sumsq is %.17g", got2);
  ops_mark(o, &got, sizeof got);
  ops_mark(o, &got2, sizeof got2);
  double twice = got;
  o->k->sum(o->s, x, n, &twice, true);
  if (!(fabsl(twice - 2 * sum) <= 0x1p-39L * mag)) ops_fail(o, "accumulated sum is %.17g", twice);
  o->k->scale(o->s, x, n, -0.5f);
  double *want = ops_copy_f(o, x, n);
  o->rng = 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < n; i++) want[i] = -0.5 * (float)ops_normal(o);
  ops_close_f(o, "scale", x, n, want, NULL, 0);
}

static void test_element_wise(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++)
    ops_run("element-wise", element_wise, &shapes[i]);
  ops_run("rounding", rounding, NULL);
}
static void test_sums(void **state) {
  (void)state;
  static const int64_t sizes[] = {0, 1, 17, 16384, 16385, 300001};
  for (size_t i = 0; i < MOE_COUNTOF(sizes); i++) ops_run("sums", sums, &sizes[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_element_wise),
    cmocka_unit_test(test_sums),
};
OPS_MAIN(tests)
