/* adamw. */
#include "ops/ops.h"

struct setting {
  int64_t n;
  double lr, beta1, beta2, eps, decay;
  bool scaled;
};
static const struct setting settings[] = {
    {0, 1e-3, 0.9, 0.999, 1e-8, 0.1, true},      {1, 1e-3, 0.9, 0.95, 1e-8, 0.1, true},
    {8193, 3e-4, 0.9, 0.999, 1e-8, 0.1, true},   {1000, 0.1, 0, 0.5, 1e-3, 0, false},
    {20011, 1e-2, 0.9, 0.999, 1e-15, 0.3, false},
};

static void check(struct ops *o, const void *arg) {
  const struct setting *c = arg;
  int64_t n = c->n;
  float *w = ops_floats(o, n), *m = ops_floats(o, n), *v = ops_floats(o, n), *g = ops_floats(o, n);
  float scale = c->scaled ? 0.37f : 1;
  ops_random_f(o, w, n, 1);
  for (int64_t i = 0; i < n; i++) m[i] = v[i] = 0;
  double *W = ops_copy_f(o, w, n), *M = ops_copy_f(o, m, n), *S = ops_copy_f(o, v, n);
  double *w_mag = ops_doubles(o, n), *m_mag = ops_doubles(o, n);
  for (int64_t i = 0; i < n; i++) w_mag[i] = fabs(W[i]);
  for (int step = 1; step <= 5; step++) {
    ops_random_f(o, g, n, 1e-2);
    if (step == 3)
      for (int64_t i = 0; i < n; i += 2) g[i] = 0;
    for (int64_t i = 0; i < n; i++) { /* torch.optim.AdamW, written out */
      double grad = (double)g[i] * scale;
      W[i] *= 1 - c->lr * c->decay;
      M[i] = c->beta1 * M[i] + (1 - c->beta1) * grad;
      m_mag[i] = c->beta1 * m_mag[i] + (1 - c->beta1) * fabs(grad);
      S[i] = c->beta2 * S[i] + (1 - c->beta2) * grad * grad;
      double denom = sqrt(S[i]) / sqrt(1 - pow(c->beta2, step)) + c->eps;
      W[i] -= c->lr / (1 - pow(c->beta1, step)) * M[i] / denom;
      w_mag[i] += c->lr / (1 - pow(c->beta1, step)) * m_mag[i] / denom;
    }
    struct moe_adamw_args a = {.w = w, .m = m, .v = v, .g = g, .n = n, .lr = c->lr,
                               .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->eps,
                               .weight_decay = c->decay, .step = step,
                               .grad_scale = c->scaled ? &scale : NULL};
    o->k->adamw(o->s, &a);
    /* A few roundings a step, on each of m, v and w. */
    ops_close_f(o, "m", m, n, M, m_mag, 6 * step * OPS_EPS);
    ops_close_f(o, "v", v, n, S, NULL, 6 * step * OPS_EPS);
    ops_close_f(o, "w", w, n, W, w_mag, 10 * step * OPS_EPS);
  }
}

/* An element's bits do not depend on where its slice begins or ends. */
static void slices(struct ops *o, const void *arg) {
  (void)arg;
  enum { N = 1000 };
  float *x[2][4], scale = 0.5f;
  for (int j = 0; j < 4; j++) {
    for (int i = 0; i < 2; i++) x[i][j] = ops_floats(o, N);
    ops_random_f(o, x[0][j], N, 1);
    if (j == 2)
      for (int i = 0; i < N; i++) x[0][j][i] = fabsf(x[0][j][i]);
    memcpy(x[1][j], x[0][j], N * sizeof(float));
  }
  struct moe_adamw_args a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                             .weight_decay = 0.1, .step = 7, .grad_scale = &scale};
  for (int i = 0; i < 2; i++)
    for (int64_t at = 0; at < N; at += a.n) {
      a.n = moe_min64(i ? 37 : N, N - at);
      a.w = x[i][0] + at, a.m = x[i][1] + at, a.v = x[i][2] + at, a.g = x[i][3] + at;
      o->k->adamw(o->s, &a);
    }
  for (int j = 0; j < 4; j++)
    if (memcmp(x[0][j], x[1][j], N * sizeof(float)) != 0) ops_fail(o, "slices change the bits");
}

static void test_adamw(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(settings); i++) ops_run("adamw", check, &settings[i]);
  ops_run("adamw slices", slices, NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_adamw)};
OPS_MAIN(tests)
