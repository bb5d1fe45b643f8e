/* swiglu and swiglu_bwd. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t rows, ffn;
  bool prob, in_place, keep_h;
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 8, true, false, true},    {MOE_F32, 1, 1, false, false, false},
    {MOE_F32, 9, 31, true, false, true},   {MOE_BF16, 9, 31, true, false, true},
    {MOE_F32, 130, 64, false, true, true}, {MOE_BF16, 130, 64, true, true, false},
    {MOE_BF16, 3, 1408, true, false, true}, {MOE_F32, 2, 5003, true, true, true},
};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

struct loss {
  int64_t rows, ffn;
  double *gu, *prob, *dh;
};
static double loss_of(void *arg) { /* sum(dh * h) */
  const struct loss *l = arg;
  double sum = 0;
  for (int64_t r = 0; r < l->rows; r++)
    for (int64_t i = 0; i < l->ffn; i++) {
      double g = l->gu[r * 2 * l->ffn + i], u = l->gu[r * 2 * l->ffn + l->ffn + i];
      sum += l->dh[r * l->ffn + i] * g * sigmoid(g) * u * l->prob[r];
    }
  return sum;
}

static void backward(struct ops *o, const struct shape *sh, struct moe_mat gu, const float *prob,
                     struct loss l, const double *h) {
  int64_t n = sh->ffn;
  struct moe_mat dh = ops_mat(o, sh->dtype, sh->rows, n, 2);
  struct moe_mat dgu = ops_mat(o, sh->dtype, sh->rows, 2 * n, 1);
  struct moe_mat again = ops_mat(o, sh->dtype, sh->rows, n, 3);
  float *dprob = ops_floats(o, sh->rows);
  ops_random(o, dh, 1);
  l.dh = ops_copy(o, dh);
  double *want = ops_doubles(o, sh->rows * 2 * n), *mag = ops_doubles(o, sh->rows * 2 * n);
  double *dp = ops_doubles(o, sh->rows), *dp_mag = ops_doubles(o, sh->rows);
  for (int64_t r = 0; r < sh->rows; r++)
    for (int64_t i = 0; i < n; i++) {
      double g = l.gu[r * 2 * n + i], u = l.gu[r * 2 * n + n + i], d = l.dh[r * n + i];
      double s = sigmoid(g), p = l.prob[r];
      want[r * 2 * n + i] = d * p * u * s * (1 + g * (1 - s));
      mag[r * 2 * n + i] = fabs(d * p * u) * s * (1 + fabs(g));
      want[r * 2 * n + n + i] = d * p * g * s;
      mag[r * 2 * n + n + i] = fabs(d * p * g * s);
      dp[r] += d * g * s * u;
      dp_mag[r] += fabs(d * g * s * u);
    }
  if (sh->rows * n < 2000) {
    ops_differences(o, "dgu", loss_of, &l, l.gu, sh->rows * 2 * n, want);
    ops_differences(o, "dprob", loss_of, &l, l.prob, sh->rows, dp);
  }
  struct moe_swiglu_bwd_args a = {.dh = dh, .gu = gu, .prob = prob, .dgu = dgu};
  if (sh->in_place) a.dgu = gu;
  if (sh->keep_h) a.h = again;
  if (sh->prob) a.dprob = dprob;
  o->k->swiglu_bwd(o->s, &a);
  ops_close(o, "dgu", a.dgu, want, mag, 16 * OPS_EPS); /* the sigmoid's few units and products */
  if (sh->keep_h) ops_close(o, "h again", again, h, NULL, 0); /* the forward bits */
  if (sh->prob)
    ops_close_f(o, "dprob", dprob, sh->rows, dp, dp_mag, (16 + (double)n / 16) * OPS_EPS);
}

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t n = sh->ffn;
  struct moe_mat gu = ops_mat(o, sh->dtype, sh->rows, 2 * n, 3);
  struct moe_mat h = ops_mat(o, sh->dtype, sh->rows, n, 1);
  float *prob = ops_floats(o, sh->rows);
  ops_random(o, gu, 3);
  for (int64_t r = 0; r < sh->rows; r++) prob[r] = r == 2 ? 0 : (float)ops_uniform(o);
  struct loss l = {sh->rows, n, ops_copy(o, gu), ops_copy_f(o, prob, sh->rows), NULL};
  if (!sh->prob)
    for (int64_t r = 0; r < sh->rows; r++) l.prob[r] = 1;
  double *want = ops_doubles(o, sh->rows * n);
  for (int64_t r = 0; r < sh->rows; r++)
    for (int64_t i = 0; i < n; i++) {
      double g = l.gu[r * 2 * n + i], u = l.gu[r * 2 * n + n + i];
      want[r * n + i] = g * sigmoid(g) * u * l.prob[r];
    }
  struct moe_swiglu_args a = {.gu = gu, .h = h, .prob = sh->prob ? prob : NULL};
  o->k->swiglu(o->s, &a);
  ops_close(o, "h", h, want, NULL, 16 * OPS_EPS);
  backward(o, sh, gu, a.prob, l, ops_copy(o, h));
}

/* Gates far outside exp's range give the limits, and no NaN. */
static void extremes(struct ops *o, const void *arg) {
  (void)arg;
  static const float gates[] = {-1e30f, -1000, -90, -88, 88, 90, 1000, 1e30f};
  enum { N = MOE_COUNTOF(gates) };
  struct moe_mat gu = ops_mat(o, MOE_F32, 1, 2 * N, 0), h = ops_mat(o, MOE_F32, 1, N, 0);
  double want[N];
  for (int i = 0; i < N; i++) {
    ops_set(gu, 0, i, gates[i]);
    ops_set(gu, 0, N + i, 1);
    want[i] = gates[i] < 0 ? 0 : gates[i];
  }
  o->k->swiglu(o->s, &(struct moe_swiglu_args){.gu = gu, .h = h});
  for (int i = 0; i < N; i++) {
    double got = ops_get(h, 0, i);
    /* 1e30 * the smallest sigmoid, 1 / 3.4e38, is the largest error below zero. */
    if (!(fabs(got - want[i]) <= fabs(gates[i]) * 1e-37))
      ops_fail(o, "silu(%g) = %g", gates[i], got);
  }
}

static void test_swiglu(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("swiglu", check, &shapes[i]);
  ops_run("swiglu extremes", extremes, NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_swiglu)};
OPS_MAIN(tests)
