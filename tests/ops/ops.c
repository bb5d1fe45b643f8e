#include "ops/ops.h"

#include <xxhash.h>

enum { GUARD = 128, MAX_ENVS = 12 };

struct ops_alloc {
  struct ops_alloc *next;
  char *block, *p;
  size_t block_bytes, rows, row_bytes, used_bytes; /* row pitch, and its part that may be written */
};
struct ops_trail {
  uint64_t *hash;
  size_t n, at;
};

static struct ops envs[MAX_ENVS];
static int n_envs;

int ops_setup(void **state) {
  (void)state;
  static const char *const isas[] = {"generic", "avx2", "avx512", "avx512bf16"};
  for (size_t i = 0; i < MOE_COUNTOF(isas); i++)
    for (int32_t threads = 1; threads <= 3; threads++) {
      struct ops *o = &envs[n_envs];
      moe_ctx_options options;
      moe_ctx_options_init(&options);
      options.threads = threads;
      if (moe_ctx_create(&options, &o->ctx) != MOE_OK) return -1;
      if (moe_kernels_cpu(o->ctx, isas[i], &o->k) != MOE_OK) {
        moe_ctx_destroy(o->ctx);
        break;
      }
      if (o->k->stream_create(o->ctx, &o->s) != MOE_OK) return -1;
      o->isa = isas[i];
      o->threads = threads;
      n_envs++;
    }
  return 0;
}

int ops_teardown(void **state) {
  (void)state;
  for (int i = 0; i < n_envs; i++) {
    envs[i].k->stream_destroy(envs[i].s);
    moe_ctx_destroy(envs[i].ctx);
  }
  n_envs = 0;
  return 0;
}

void ops_fail(struct ops *o, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  fail_msg("%s [%s, %d threads]: %s", o->label, o->isa, o->threads, text);
}

static void check_range(struct ops *o, const char *from, const char *to) {
  for (const char *c = from; c < to; c++)
    if ((unsigned char)*c != 0xff) ops_fail(o, "a guard or a gap between rows was written");
}

static void finish(struct ops *o) {
  for (struct ops_alloc *a = o->allocs; a; a = a->next) {
    check_range(o, a->block, a->p);
    for (size_t r = 0; r < a->rows; r++)
      check_range(o, a->p + r * a->row_bytes + a->used_bytes, a->p + (r + 1) * a->row_bytes);
    check_range(o, a->p + a->rows * a->row_bytes, a->block + a->block_bytes);
  }
  while (o->allocs) {
    struct ops_alloc *a = o->allocs;
    o->allocs = a->next;
    free(a->block);
    free(a);
  }
}

void ops_run(const char *label, ops_case_fn fn, const void *arg) {
  struct ops_trail trail = {0};
  for (int i = 0; i < n_envs; i++) {
    struct ops *o = &envs[i];
    o->label = label;
    o->rng = 0x9e3779b97f4a7c15u;
    o->allocs = NULL;
    o->trail = &trail;
    trail.at = 0;
    if (o->threads == 1) trail.n = 0;
    fn(o, arg);
    finish(o);
    if (trail.at != trail.n) ops_fail(o, "checked %zu outputs, %zu before", trail.at, trail.n);
  }
  free(trail.hash);
}

void ops_mark(struct ops *o, const void *p, size_t bytes) {
  struct ops_trail *t = o->trail;
  uint64_t hash = bytes ? XXH3_64bits(p, bytes) : 0;
  if (o->threads == 1) {
    t->hash = realloc(t->hash, (t->n + 1) * sizeof *t->hash);
    assert_non_null(t->hash);
    t->hash[t->n++] = hash;
  } else if (t->at >= t->n || t->hash[t->at] != hash) {
    ops_fail(o, "output %zu has other bits than with one thread", t->at);
  }
  t->at++;
}

static void *take(struct ops *o, size_t rows, size_t row_bytes, size_t used_bytes) {
  struct ops_alloc *a = malloc(sizeof *a);
  assert_non_null(a);
  size_t bytes = moe_round_up(rows * row_bytes, 64) + 2 * GUARD;
  *a = (struct ops_alloc){o->allocs, aligned_alloc(64, bytes), NULL, bytes, rows, row_bytes,
                          used_bytes};
  assert_non_null(a->block);
  memset(a->block, 0xff, bytes);
  a->p = a->block + GUARD;
  o->allocs = a;
  return a->p;
}

struct moe_mat ops_mat(struct ops *o, moe_dtype dtype, int64_t rows, int64_t cols, int64_t gap) {
  size_t e = moe_dtype_bytes(dtype);
  void *p = take(o, (size_t)rows, (size_t)(cols + gap) * e, (size_t)cols * e);
  return (struct moe_mat){p, rows, cols, cols + gap, dtype};
}
float *ops_floats(struct ops *o, int64_t n) {
  return take(o, 1, (size_t)n * sizeof(float), (size_t)n * sizeof(float));
}
int32_t *ops_ints(struct ops *o, int64_t n) {
  int32_t *p = take(o, 1, (size_t)n * sizeof *p, (size_t)n * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = OPS_POISON;
  return p;
}
double *ops_doubles(struct ops *o, int64_t n) {
  double *p = take(o, 1, (size_t)n * sizeof *p, (size_t)n * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = 0;
  return p;
}

static uint64_t next_word(struct ops *o) { /* splitmix64 */
  uint64_t z = o->rng += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
double ops_uniform(struct ops *o) { return (double)(next_word(o) >> 11) * 0x1p-53; }
double ops_normal(struct ops *o) {
  double u = 1 - ops_uniform(o), v = ops_uniform(o);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
int64_t ops_below(struct ops *o, int64_t n) { return (int64_t)(next_word(o) % (uint64_t)n); }
void ops_random(struct ops *o, struct moe_mat m, double std) {
  for (int64_t r = 0; r < m.rows; r++)
    for (int64_t c = 0; c < m.cols; c++) ops_set(m, r, c, std * ops_normal(o));
}
void ops_random_f(struct ops *o, float *x, int64_t n, double std) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)(std * ops_normal(o));
}

double ops_get(struct moe_mat m, int64_t r, int64_t c) {
  if (m.dtype == MOE_F32) return ((const float *)m.p)[r * m.ld + c];
  uint32_t u = (uint32_t)((const uint16_t *)m.p)[r * m.ld + c] << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
void ops_set(struct moe_mat m, int64_t r, int64_t c, double v) {
  float f = (float)v;
  if (m.dtype == MOE_F32) {
    ((float *)m.p)[r * m.ld + c] = f;
    return;
  }
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  uint32_t up = u + 0x7fff + (u >> 16 & 1);
  ((uint16_t *)m.p)[r * m.ld + c] = (uint16_t)(isnan(f) ? 0x7fc0 : up >> 16);
}
double *ops_copy(struct ops *o, struct moe_mat m) {
  double *d = ops_doubles(o, m.rows * m.cols);
  for (int64_t r = 0; r < m.rows; r++)
    for (int64_t c = 0; c < m.cols; c++) d[r * m.cols + c] = ops_get(m, r, c);
  return d;
}
double *ops_copy_f(struct ops *o, const float *x, int64_t n) {
  double *d = ops_doubles(o, n);
  for (int64_t i = 0; i < n; i++) d[i] = x[i];
  return d;
}

static bool close_enough(double got, double want, double mag, double tol, moe_dtype dtype) {
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return got == want;
  double bound = tol * mag;
  if (dtype == MOE_BF16) bound += OPS_EPS_BF16 * (fabs(want) + bound);
  return fabs(got - want) <= bound; /* false for NaN */
}

void ops_close(struct ops *o, const char *what, struct moe_mat got, const double *want,
               const double *mag, double tol) {
  for (int64_t r = 0; r < got.rows; r++) {
    for (int64_t c = 0; c < got.cols; c++) {
      int64_t i = r * got.cols + c;
      double g = ops_get(got, r, c), m = mag ? mag[i] : fabs(want[i]);
      if (!close_enough(g, want[i], m, tol, got.dtype))
        ops_fail(o, "%s[%ld][%ld] is %.9g, must be %.9g (off by %.3g, magnitude %.3g)", what,
                 (long)r, (long)c, g, want[i], g - want[i], m);
    }
    size_t e = moe_dtype_bytes(got.dtype);
    ops_mark(o, (const char *)got.p + (size_t)(r * got.ld) * e, (size_t)got.cols * e);
  }
}
void ops_close_f(struct ops *o, const char *what, const float *got, int64_t n, const double *want,
                 const double *mag, double tol) {
  ops_close(o, what, (struct moe_mat){(void *)(uintptr_t)got, 1, n, n, MOE_F32}, want, mag, tol);
}
void ops_equal_i(struct ops *o, const char *what, const int32_t *got, int64_t n,
                 const int32_t *want) {
  for (int64_t i = 0; i < n; i++)
    if (got[i] != want[i])
      ops_fail(o, "%s[%ld] is %d, must be %d", what, (long)i, got[i], want[i]);
}

void ops_differences(struct ops *o, const char *what, double (*f)(void *arg), void *arg, double *x,
                     int64_t n, const double *grad) {
  double largest = 1e-3;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(grad[i]));
  int64_t stride = moe_max64(1, n / 400);
  for (int64_t i = 0; i < n; i += stride) {
    double x0 = x[i], h = 1e-5 * fmax(1, fabs(x0));
    x[i] = x0 + h;
    double up = f(arg);
    x[i] = x0 - h;
    double down = f(arg);
    x[i] = x0;
    double d = (up - down) / (2 * h);
    if (!(fabs(d - grad[i]) <= 1e-6 * largest))
      ops_fail(o, "%s[%ld]: gradient %.9g, finite differences %.9g", what, (long)i, grad[i], d);
  }
}
