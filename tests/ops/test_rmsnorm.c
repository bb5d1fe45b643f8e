/* rmsnorm and rmsnorm_bwd. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t rows, inner, n;
  bool residual, in_place; /* backward in place: dx is dy; with a residual also dres */
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 1, 16, false, false},   {MOE_F32, 1, 1, 1, true, false},
    {MOE_F32, 7, 1, 33, true, true},     {MOE_BF16, 7, 1, 65, true, false},
    {MOE_BF16, 301, 1, 40, false, true}, {MOE_F32, 5, 6, 19, false, false},
    {MOE_BF16, 70, 3, 64, false, false}, {MOE_F32, 3, 1, 8192, true, false},
    {MOE_F32, 300, 2, 128, true, true},  {MOE_BF16, 2, 1, 20011, true, false},
};
static const float eps = 1e-5f;

static double rstd_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return 1 / sqrt(sum / (double)n + eps);
}

/* sum(dy * norm(x) * w) + sum(dres * x), the function whose gradient backward is. */
struct loss {
  int64_t parts, n;
  double *x, *w, *dy, *dres;
};
static double loss_of(void *arg) {
  const struct loss *l = arg;
  double sum = 0;
  for (int64_t p = 0; p < l->parts; p++) {
    const double *x = l->x + p * l->n;
    double rstd = rstd_of(x, l->n);
    for (int64_t i = 0; i < l->n; i++) {
      sum += l->dy[p * l->n + i] * x[i] * rstd * l->w[i];
      if (l->dres) sum += l->dres[p * l->n + i] * x[i];
    }
  }
  return sum;
}

static void backward(struct ops *o, const struct shape *sh, struct moe_mat x, const float *w,
                     const float *rstd) {
  int64_t n = sh->n, cols = n * sh->inner, parts = sh->rows * sh->inner;
  struct moe_mat dy = ops_mat(o, sh->dtype, sh->rows, cols, 2);
  struct moe_mat dres = ops_mat(o, sh->dtype, sh->rows, cols, 1);
  struct moe_mat dx = ops_mat(o, sh->dtype, sh->rows, cols, 3);
  ops_random(o, dy, 1);
  ops_random(o, dres, 1);
  struct loss l = {parts, n, ops_copy(o, x), ops_copy_f(o, w, n), ops_copy(o, dy), NULL};
  if (sh->residual) l.dres = ops_copy(o, dres);
  double *want = ops_doubles(o, parts * n), *mag = ops_doubles(o, parts * n);
  double *dw = ops_doubles(o, n), *dw_mag = ops_doubles(o, n);
  for (int64_t p = 0; p < parts; p++) {
    double r = rstd_of(l.x + p * n, n), dot = 0, dot_mag = 0;
    for (int64_t i = 0; i < n; i++) {
      double term = l.dy[p * n + i] * l.w[i] * l.x[p * n + i] * r;
      dot += term / (double)n;
      dot_mag += fabs(term) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
      int64_t at = p * n + i;
      double hat = l.x[at] * r, extra = l.dres ? l.dres[at] : 0;
      want[at] = r * (l.dy[at] * l.w[i] - hat * dot) + extra;
      mag[at] = r * (fabs(l.dy[at] * l.w[i]) + fabs(hat) * dot_mag) + fabs(extra);
      dw[i] += l.dy[at] * hat;
      dw_mag[i] += fabs(l.dy[at] * hat);
    }
  }
  if (parts * n < 2000) {
    ops_differences(o, "dx", loss_of, &l, l.x, parts * n, want);
    ops_differences(o, "dw", loss_of, &l, l.w, n, dw);
  }
  float *got_dw = ops_floats(o, n);
  struct moe_rmsnorm_bwd_args a = {.dy = dy, .x = x, .w = w, .rstd = rstd, .inner = sh->inner,
                                   .dx = dx, .dw = got_dw};
  if (sh->in_place) a.dx = dy;
  if (sh->residual) a.dres = dres;
  if (sh->residual && sh->in_place) a.dx = dres;
  o->k->rmsnorm_bwd(o->s, &a);
  /* The two sums of a row run in at least 16 lanes; the weight's in rows, of random sign. */
  ops_close(o, "dx", a.dx, want, mag, (16 + (double)n / 32) * OPS_EPS);
  ops_close_f(o, "dw", got_dw, n, dw, dw_mag,
              (16 + (double)n / 32 + sqrt((double)parts)) * OPS_EPS);
  if (sh->in_place) return;
  a.dw_accumulate = true;
  o->k->rmsnorm_bwd(o->s, &a);
  for (int64_t i = 0; i < n; i++) dw[i] *= 2;
  ops_close_f(o, "dw twice", got_dw, n, dw, dw_mag,
              (32 + (double)n / 16 + 2 * sqrt((double)parts)) * OPS_EPS);
}

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t n = sh->n, cols = n * sh->inner, parts = sh->rows * sh->inner;
  struct moe_mat x = ops_mat(o, sh->dtype, sh->rows, cols, 1);
  struct moe_mat res = ops_mat(o, sh->dtype, sh->rows, cols, 2);
  struct moe_mat sum = ops_mat(o, sh->dtype, sh->rows, cols, 3);
  struct moe_mat y = ops_mat(o, sh->dtype, sh->rows, cols, 0);
  float *w = ops_floats(o, n), *rstd = ops_floats(o, parts);
  ops_random(o, x, 2);
  ops_random(o, res, 2);
  ops_random_f(o, w, n, 1);
  struct moe_rmsnorm_args a = {.x = x, .y = y, .w = w, .inner = sh->inner, .eps = eps,
                               .rstd = rstd};
  double *in = ops_copy(o, x);
  if (sh->residual) {
    a.res = res;
    a.sum = sum;
    double *other = ops_copy(o, res);
    for (int64_t i = 0; i < parts * n; i++) in[i] += other[i];
  }
  o->k->rmsnorm(o->s, &a);
  if (sh->residual) {
    ops_close(o, "sum", sum, in, NULL, OPS_EPS);
    in = ops_copy(o, sum); /* what is normed is the sum as it is kept */
  }
  double *want = ops_doubles(o, parts * n), *want_rstd = ops_doubles(o, parts);
  for (int64_t p = 0; p < parts; p++) {
    want_rstd[p] = rstd_of(in + p * n, n);
    for (int64_t i = 0; i < n; i++) want[p * n + i] = in[p * n + i] * want_rstd[p] * w[i];
  }
  /* A sum of squares in at least 16 lanes, halved by the root. */
  double tol = (8 + (double)n / 32) * OPS_EPS;
  ops_close_f(o, "rstd", rstd, parts, want_rstd, NULL, tol);
  ops_close(o, "y", y, want, NULL, tol);
  backward(o, sh, sh->residual ? sum : x, w, rstd);
}

/* Rows in two parts, with their sums added in between, against whole rows. */
static void split(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t n = sh->n, first = n / 3, R = sh->rows;
  struct moe_mat x = ops_mat(o, sh->dtype, R, n, 1), y = ops_mat(o, sh->dtype, R, n, 2);
  struct moe_mat dy = ops_mat(o, sh->dtype, R, n, 0), dx = ops_mat(o, sh->dtype, R, n, 3);
  struct moe_mat y2 = ops_mat(o, sh->dtype, R, n, 0), dx2 = ops_mat(o, sh->dtype, R, n, 0);
  float *w = ops_floats(o, n), *rstd = ops_floats(o, R), *rstd2 = ops_floats(o, R);
  float *dw = ops_floats(o, n), *dw2 = ops_floats(o, n), *sum[2], *dot[2];
  ops_random(o, x, 2);
  ops_random(o, dy, 1);
  ops_random_f(o, w, n, 1);
  o->k->rmsnorm(o->s, &(struct moe_rmsnorm_args){
                          .x = x, .y = y, .w = w, .inner = 1, .eps = eps, .rstd = rstd});
  o->k->rmsnorm_bwd(o->s, &(struct moe_rmsnorm_bwd_args){.dy = dy, .x = x, .w = w, .rstd = rstd,
                                                         .inner = 1, .dx = dx, .dw = dw});
  for (int i = 0; i < 2; i++) {
    int64_t at = i ? first : 0, cols = i ? n - first : first;
    sum[i] = ops_floats(o, R), dot[i] = ops_floats(o, R);
    struct moe_rmsnorm_sum_args a = {
        .x = moe_mat_cols(x, at, cols), .w = w + at, .out = sum[i]};
    o->k->rmsnorm_sum(o->s, &a);
    a.dy = moe_mat_cols(dy, at, cols);
    a.out = dot[i];
    o->k->rmsnorm_sum(o->s, &a);
  }
  for (int64_t r = 0; r < R; r++) sum[0][r] += sum[1][r], dot[0][r] += dot[1][r];
  for (int i = 0; i < 2; i++) {
    int64_t at = i ? first : 0, cols = i ? n - first : first;
    o->k->rmsnorm(o->s, &(struct moe_rmsnorm_args){
                            .x = moe_mat_cols(x, at, cols), .y = moe_mat_cols(y2, at, cols),
                            .w = w + at, .inner = 1, .eps = eps, .rstd = rstd2,
                            .row_sum = sum[0], .total = n});
    o->k->rmsnorm_bwd(o->s, &(struct moe_rmsnorm_bwd_args){
                                .dy = moe_mat_cols(dy, at, cols), .x = moe_mat_cols(x, at, cols),
                                .w = w + at, .rstd = rstd2, .inner = 1,
                                .dx = moe_mat_cols(dx2, at, cols), .dw = dw2 + at,
                                .row_sum = dot[0], .total = n});
  }
  double tol = (16 + (double)n / 16) * OPS_EPS;
  double *mag = ops_doubles(o, R * n), *dw_mag = ops_doubles(o, n);
  for (int64_t r = 0; r < R; r++)
    for (int64_t c = 0; c < n; c++) { /* terms of dx: dy * w * rstd, and x times a mean */
      mag[r * n + c] = 8 * rstd[r] * (fabs(ops_get(x, r, c)) + 1) * 4;
      dw_mag[c] += fabs(ops_get(dy, r, c) * ops_get(x, r, c)) * rstd[r];
    }
  if (sh->dtype == MOE_BF16) tol += OPS_EPS_BF16; /* both are rounded */
  ops_close_f(o, "rstd", rstd2, R, ops_copy_f(o, rstd, R), NULL, tol);
  ops_close(o, "y", y2, ops_copy(o, y), NULL, tol);
  ops_close(o, "dx", dx2, ops_copy(o, dx), mag, tol);
  ops_close_f(o, "dw", dw2, n, ops_copy_f(o, dw, n), dw_mag, tol);
}

/* A row of zeros has rstd = 1 / sqrt(eps) and stays zero. */
static void zeros(struct ops *o, const void *arg) {
  (void)arg;
  struct moe_mat x = ops_mat(o, MOE_F32, 2, 40, 0), y = ops_mat(o, MOE_F32, 2, 40, 0);
  float *w = ops_floats(o, 40), *rstd = ops_floats(o, 2);
  memset(x.p, 0, 2 * 40 * 4);
  ops_random_f(o, w, 40, 1);
  struct moe_rmsnorm_args a = {.x = x, .y = y, .w = w, .inner = 1, .eps = eps, .rstd = rstd};
  o->k->rmsnorm(o->s, &a);
  double want[80] = {0}, root[2] = {1 / sqrt(eps), 1 / sqrt(eps)};
  ops_close(o, "y", y, want, NULL, 0);
  ops_close_f(o, "rstd", rstd, 2, root, NULL, 4 * OPS_EPS);
}

static void test_rmsnorm(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("rmsnorm", check, &shapes[i]);
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++)
    if (shapes[i].inner == 1 && shapes[i].n > 1) ops_run("rmsnorm split", split, &shapes[i]);
  ops_run("rmsnorm of zeros", zeros, NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rmsnorm)};
OPS_MAIN(tests)
