/* weight_bytes, weight_prepare, matmul, matmul_bwd, matmul_wgrad, bias_grad, peak. */
#include "kernels/cpu/cpu.h"
#include "ops/ops.h"

/* Row counts of the groups end with -1. */
struct shape {
  moe_dtype product, x, y;
  int64_t in, out;
  int64_t rows[8];
  bool bias, add;
};
#define F MOE_F32
#define B MOE_BF16
static const struct shape shapes[] = {
    {F, F, F, 1, 1, {1, -1}, true, false},
    {F, F, F, 3, 17, {3, -1}, false, false},
    {F, F, F, 17, 3, {0, -1}, true, false},
    {F, F, F, 100, 100, {17, -1}, true, true},
    {F, B, B, 70, 33, {29, -1}, true, false},
    {F, F, F, 300, 48, {600, -1}, false, false},       /* several blocks of rows and of depth */
    {F, F, B, 530, 40, {31, -1}, true, true},          /* bf16 sums over blocks of depth */
    {F, B, F, 40, 1100, {3, -1}, false, true},         /* several blocks of columns */
    {F, F, F, 65, 34, {1, 0, 8, 1, 30, 0, -1}, true, false},
    {F, F, F, 64, 96, {0, 0, 200, 0, -1}, false, true},
    {B, F, F, 1, 1, {1, -1}, true, false},
    {B, B, B, 3, 17, {3, -1}, false, false},
    {B, F, F, 17, 3, {0, -1}, true, false},
    {B, B, B, 100, 100, {17, -1}, true, true},
    {B, F, B, 70, 33, {29, -1}, true, false},
    {B, B, F, 600, 48, {600, -1}, false, false},
    {B, B, B, 1101, 40, {31, -1}, true, true},
    {B, B, B, 40, 1101, {3, -1}, false, true},
    {B, B, B, 65, 35, {1, 0, 8, 1, 30, 0, -1}, true, false},
    {B, B, B, 64, 96, {0, 0, 200, 0, -1}, false, true},
};

/* A product's parts: everything a test of one direction needs. */
struct product {
  const struct shape *sh;
  struct moe_weight w;
  int64_t groups, rows;
  int32_t *offset;
  struct moe_mat x, y;
  float *bias;
};

static struct product make(struct ops *o, const struct shape *sh, bool backward) {
  struct product p = {.sh = sh};
  while (sh->rows[p.groups] >= 0) p.groups++;
  p.offset = ops_ints(o, p.groups + 1);
  p.offset[0] = 0;
  for (int64_t g = 0; g < p.groups; g++) p.offset[g + 1] = p.offset[g] + (int32_t)sh->rows[g];
  p.rows = p.offset[p.groups];
  float *master = ops_floats(o, p.groups * sh->out * sh->in);
  ops_random_f(o, master, p.groups * sh->out * sh->in, 1);
  p.w = (struct moe_weight){.groups = p.groups, .out = sh->out, .in = sh->in,
                            .dtype = sh->product, .master = master,
                            .rows_hint = p.rows / p.groups};
  p.x = ops_mat(o, sh->x, p.rows, backward ? sh->out : sh->in, 5);
  p.y = ops_mat(o, sh->y, p.rows, backward ? sh->in : sh->out, 3);
  ops_random(o, p.x, 1);
  if (sh->add) ops_random(o, p.y, 1);
  if (sh->bias && !backward) {
    p.bias = ops_floats(o, p.groups * sh->out);
    ops_random_f(o, p.bias, p.groups * sh->out, 1);
  }
  return p;
}

/* Where this processor prepares nothing, the panels still have to work: in room for the largest. */
static void prepare(struct ops *o, struct product *p) {
  int64_t n = (int64_t)o->k->weight_bytes(&p->w) / 4, in = p->w.in, out = p->w.out;
  if (n == 0 || !o->s->dot_bf16) n = p->groups * (in * (out + 31) + out * (in + 31));
  p->w.prepared = ops_floats(o, n);
  o->k->weight_prepare(o->s, &p->w);
}

static double rounded(double v, moe_dtype dtype) {
  uint16_t h;
  struct moe_mat m = moe_mat_of(&h, MOE_BF16, 1, 1);
  if (dtype == MOE_F32) return v;
  ops_set(m, 0, 0, v);
  return ops_get(m, 0, 0);
}

/* want and mag (rows, cols of y) in double, of operands rounded to the product's dtype. */
static void reference(struct ops *o, const struct product *p, bool backward, double *want,
                      double *mag) {
  const struct shape *sh = p->sh;
  int64_t n = backward ? sh->in : sh->out, k = backward ? sh->out : sh->in;
  int64_t line = backward ? 1 : sh->in, depth = backward ? sh->in : 1;
  double *x = ops_copy(o, p->x), *w = ops_copy_f(o, p->w.master, p->groups * sh->in * sh->out);
  for (int64_t i = 0; i < p->rows * k; i++) x[i] = rounded(x[i], sh->product);
  for (int64_t i = 0; i < p->groups * sh->in * sh->out; i++) w[i] = rounded(w[i], sh->product);
  for (int64_t g = 0; g < p->groups; g++)
    for (int64_t r = p->offset[g]; r < p->offset[g + 1]; r++)
      for (int64_t c = 0; c < n; c++) {
        double start = (sh->add ? ops_get(p->y, r, c) : 0), b = p->bias ? p->bias[g * n + c] : 0;
        double sum = start + b, size = fabs(start) + fabs(b);
        const double *wg = w + g * sh->in * sh->out + c * line;
        for (int64_t i = 0; i < k; i++) {
          double t = x[r * k + i] * wg[i * depth];
          sum += t;
          size += fabs(t);
        }
        want[r * n + c] = sum;
        mag[r * n + c] = size;
      }
}

/* Rounding: one per step of a chain of at most 512 products, one per block, bias and start. */
static double bound(int64_t depth) {
  return OPS_EPS * (double)(moe_min64(depth, 512) + depth / 256 + 4);
}

static void call(struct ops *o, const struct product *p, bool backward, struct moe_mat y) {
  struct moe_matmul_args a = {.x = p->x, .w = &p->w, .rows = {p->offset, p->offset}, .y = y,
                              .bias = p->bias, .accumulate = p->sh->add};
  if (p->groups == 1) a.rows = (struct moe_groups_rows){NULL, NULL};
  (backward ? o->k->matmul_bwd : o->k->matmul)(o->s, &a);
}

static void check(struct ops *o, const struct shape *sh, bool back) {
  struct product p = make(o, sh, back);
  int64_t n = p.y.cols, k = p.x.cols;
  double *want = ops_doubles(o, p.rows * n), *mag = ops_doubles(o, p.rows * n);
  reference(o, &p, back, want, mag);
  struct moe_mat plain = ops_mat(o, sh->y, p.rows, n, 1), single = ops_mat(o, sh->y, p.rows, n, 2);
  if (sh->add)
    for (int64_t r = 0; r < p.rows; r++)
      for (int64_t c = 0; c < n; c++) {
        ops_set(plain, r, c, ops_get(p.y, r, c));
        ops_set(single, r, c, ops_get(p.y, r, c));
      }
  call(o, &p, back, plain); /* nothing prepared */
  ops_close(o, back ? "dx" : "y", plain, want, mag, bound(k));
  prepare(o, &p);
  call(o, &p, back, p.y);
  ops_close(o, back ? "prepared dx" : "prepared y", p.y, want, mag, bound(k));
  for (int64_t g = 0; g < p.groups; g++) /* every row alone */
    for (int64_t r = p.offset[g]; r < p.offset[g + 1]; r++) {
      struct product q = p;
      q.groups = 1;
      q.w.groups = 1;
      q.w.master += g * sh->in * sh->out;
      q.w.prepared = NULL;
      if (q.bias) q.bias += g * n;
      q.x = moe_mat_rows(p.x, r, 1);
      call(o, &q, back, moe_mat_rows(single, r, 1));
    }
  for (int64_t r = 0; r < p.rows; r++)
    for (int64_t c = 0; c < n; c++) {
      double a = ops_get(plain, r, c), b = ops_get(p.y, r, c), d = ops_get(single, r, c);
      if (a != b || a != d)
        ops_fail(o, "[%ld][%ld]: %.9g, prepared %.9g, row alone %.9g", (long)r, (long)c, a, b, d);
    }
}

/* Runs fn with the bf16 dot instruction and without. */
static void both_ways(struct ops *o, const struct shape *sh,
                      void (*fn)(struct ops *o, const struct shape *sh)) {
  bool had = o->s->dot_bf16;
  for (int dot = 0; dot < 2; dot++) {
    o->s->dot_bf16 = dot;
    fn(o, sh);
  }
  o->s->dot_bf16 = had;
}
static void forward(struct ops *o, const struct shape *sh) { check(o, sh, false); }
static void backward(struct ops *o, const struct shape *sh) { check(o, sh, true); }
static void forward_case(struct ops *o, const void *arg) { both_ways(o, arg, forward); }
static void backward_case(struct ops *o, const void *arg) { both_ways(o, arg, backward); }

/* in, out, rows of the shape; x and y are the dtypes of x and dy. */
static void wgrad(struct ops *o, const struct shape *sh) {
  struct product p = make(o, sh, false);
  struct moe_mat dy = ops_mat(o, sh->y, p.rows, sh->out, 7);
  ops_random(o, dy, 1);
  int64_t size = p.groups * sh->out * sh->in;
  float *dw = ops_floats(o, size), *apart = ops_floats(o, size);
  if (sh->add) ops_random_f(o, dw, size, 1);
  if (sh->add) memcpy(apart, dw, (size_t)size * 4);
  double *want = ops_doubles(o, size), *mag = ops_doubles(o, size);
  double *x = ops_copy(o, p.x), *d = ops_copy(o, dy);
  int64_t longest = 0;
  for (int64_t g = 0; g < p.groups; g++) {
    longest = moe_max64(longest, p.offset[g + 1] - p.offset[g]);
    for (int64_t i = 0; i < sh->out * sh->in; i++) {
      int64_t at = g * sh->out * sh->in + i, row = i / sh->in, col = i % sh->in;
      want[at] = sh->add ? dw[at] : 0;
      for (int64_t r = p.offset[g]; r < p.offset[g + 1]; r++) {
        double t = d[r * sh->out + row] * x[r * sh->in + col];
        want[at] += t;
        mag[at] += fabs(t);
      }
      mag[at] += sh->add ? fabs(dw[at]) : 0;
    }
  }
  struct moe_wgrad_args a = {.dy = dy, .x = p.x, .groups = p.groups,
                             .rows = {p.offset, p.offset}, .dw = dw, .accumulate = sh->add};
  o->k->matmul_wgrad(o->s, &a);
  ops_close_f(o, "dw", dw, size, want, mag, bound(longest));
  a.groups = 1;
  a.rows = (struct moe_groups_rows){NULL, NULL};
  for (int64_t g = 0; g < p.groups; g++) {
    a.dy = moe_mat_rows(dy, p.offset[g], sh->rows[g]);
    a.x = moe_mat_rows(p.x, p.offset[g], sh->rows[g]);
    a.dw = apart + g * sh->out * sh->in;
    o->k->matmul_wgrad(o->s, &a);
  }
  if (memcmp(dw, apart, (size_t)size * 4) != 0) ops_fail(o, "a group alone has other bits");
}

static void wgrad_case(struct ops *o, const void *arg) { both_ways(o, arg, wgrad); }

/* NaN in one row of x reaches this row only, though rows share panels. */
static void nan_stays(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  struct product p = make(o, sh, false);
  ops_set(p.x, 9, 7, NAN);
  call(o, &p, false, p.y);
  for (int64_t r = 0; r < p.rows; r++)
    for (int64_t c = 0; c < p.y.cols; c++)
      if (isnan(ops_get(p.y, r, c)) != (r == 9)) ops_fail(o, "NaN at [%ld][%ld]", (long)r, (long)c);
}

struct sum {
  moe_dtype dtype;
  int64_t rows, cols;
  bool add;
};
static void bias_case(struct ops *o, const void *arg) {
  const struct sum *t = arg;
  struct moe_mat dy = ops_mat(o, t->dtype, t->rows, t->cols, 3);
  ops_random(o, dy, 1);
  float *db = ops_floats(o, t->cols);
  if (t->add) ops_random_f(o, db, t->cols, 1);
  double *want = ops_doubles(o, t->cols), *mag = ops_doubles(o, t->cols);
  for (int64_t c = 0; c < t->cols; c++) {
    want[c] = t->add ? db[c] : 0;
    mag[c] = fabs(want[c]);
    for (int64_t r = 0; r < t->rows; r++) {
      want[c] += ops_get(dy, r, c);
      mag[c] += fabs(ops_get(dy, r, c));
    }
  }
  struct moe_bias_grad_args a = {.dy = dy, .db = db, .accumulate = t->add};
  o->k->bias_grad(o->s, &a);
  ops_close_f(o, "db", db, t->cols, want, mag, OPS_EPS * (64 + (double)t->rows / 64 + 1));
}

static void peak_case(struct ops *o, const void *arg) {
  (void)arg;
  double rate = o->k->peak(o->s, MOE_F32, 0.01);
  if (!(rate > 1e8 && rate < 1e14)) ops_fail(o, "peak is %g FLOP/s", rate);
}

static void all(const char *what, ops_case_fn fn) {
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) {
    const struct shape *sh = &shapes[i];
    char label[160];
    snprintf(label, sizeof label, "%s %zu: %s, x %s, y %s, in %d, out %d%s", what, i,
             sh->product == B ? "bf16" : "f32", sh->x == B ? "bf16" : "f32",
             sh->y == B ? "bf16" : "f32", (int)sh->in, (int)sh->out, sh->add ? ", adding" : "");
    ops_run(label, fn, sh);
  }
}
static void test_forward(void **state) {
  (void)state;
  all("forward", forward_case);
}
static void test_backward(void **state) {
  (void)state;
  all("backward", backward_case);
}
static void test_wgrad(void **state) {
  (void)state;
  all("wgrad", wgrad_case);
}
static void test_nan(void **state) {
  (void)state;
  static const struct shape t[] = {{F, F, F, 33, 40, {20, -1}, false, false},
                                   {B, B, B, 33, 40, {20, -1}, false, false}};
  for (size_t i = 0; i < MOE_COUNTOF(t); i++) ops_run("one NaN", nan_stays, &t[i]);
}
static void test_bias(void **state) {
  (void)state;
  static const struct sum t[] = {{F, 0, 5, false}, {F, 0, 5, true}, {F, 1, 1, false},
                                 {B, 131, 77, true}, {F, 1000, 201, false}};
  for (size_t i = 0; i < MOE_COUNTOF(t); i++) ops_run("bias_grad", bias_case, &t[i]);
}
static void test_peak(void **state) {
  (void)state;
  ops_run("peak", peak_case, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_forward), cmocka_unit_test(test_backward), cmocka_unit_test(test_wgrad),
    cmocka_unit_test(test_nan),     cmocka_unit_test(test_bias),     cmocka_unit_test(test_peak),
};
OPS_MAIN(tests)
