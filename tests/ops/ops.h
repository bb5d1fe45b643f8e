/* What the tests of the ops share. A case is a function run on every instruction set of this
 * processor with 1, 2 and 3 threads. Everything a case allocates here starts poisoned (NaN, or
 * OPS_POISON in integers) with poisoned guards around it and in the gaps behind each row; the
 * harness checks after the case that the gaps are untouched, and that everything passed to the
 * checks had the same bits with each number of threads. */
#ifndef MOE_TESTS_OPS_H
#define MOE_TESTS_OPS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

enum { OPS_POISON = 0x5a5a5a5a };
/* Unit roundoff of fp32 and bf16. */
#define OPS_EPS (1.0 / (1 << 24))
#define OPS_EPS_BF16 (1.0 / (1 << 8))

struct ops_trail; /* hashes of what a case checked */
struct ops {
  moe_ctx *ctx;
  const struct moe_kernels *k;
  struct moe_stream *s;
  const char *isa, *label;
  int32_t threads;
  uint64_t rng;
  struct ops_alloc *allocs;
  struct ops_trail *trail;
};

typedef void (*ops_case_fn)(struct ops *o, const void *arg);
/* Runs the case on all sets and numbers of threads. */
void ops_run(const char *label, ops_case_fn fn, const void *arg);
/* Runs a group of cmocka tests with the contexts made before and destroyed after. */
#define OPS_MAIN(tests) \
  int main(void) { return cmocka_run_group_tests(tests, ops_setup, ops_teardown); }
int ops_setup(void **state);
int ops_teardown(void **state);

/* Memory of the case, released by the harness. `gap`: columns between rows. */
struct moe_mat ops_mat(struct ops *o, moe_dtype dtype, int64_t rows, int64_t cols, int64_t gap);
float *ops_floats(struct ops *o, int64_t n);
int32_t *ops_ints(struct ops *o, int64_t n);
double *ops_doubles(struct ops *o, int64_t n); /* zeroed, for references */

/* Random values, the same in every run of the case. */
double ops_normal(struct ops *o);
double ops_uniform(struct ops *o);              /* [0, 1) */
int64_t ops_below(struct ops *o, int64_t n);    /* [0, n) */
void ops_random(struct ops *o, struct moe_mat m, double std);
void ops_random_f(struct ops *o, float *x, int64_t n, double std);

double ops_get(struct moe_mat m, int64_t r, int64_t c);
void ops_set(struct moe_mat m, int64_t r, int64_t c, double v);
/* A copy as rows * cols doubles. */
double *ops_copy(struct ops *o, struct moe_mat m);
double *ops_copy_f(struct ops *o, const float *x, int64_t n);

/* |got - want| <= tol * mag (mag NULL: |want|), and half a unit in the last place when got is bf16.
 * mag: the sum of the absolute values of the terms of each element. NaN equals NaN only, an
 * infinity only itself. */
void ops_close(struct ops *o, const char *what, struct moe_mat got, const double *want,
               const double *mag, double tol);
void ops_close_f(struct ops *o, const char *what, const float *got, int64_t n, const double *want,
                 const double *mag, double tol);
void ops_equal_i(struct ops *o, const char *what, const int32_t *got, int64_t n,
                 const int32_t *want);
/* Adds bytes to what must not depend on the number of threads. */
void ops_mark(struct ops *o, const void *p, size_t bytes);
/* fail_msg with the case's label, set and threads in front. */
void ops_fail(struct ops *o, const char *fmt, ...) MOE_PRINTF(2, 3);

/* Compares grad (n) with central differences of f, a function of x in double; at most 400 elements,
 * spread over x. Bound: 1e-6 of the largest |grad|. */
void ops_differences(struct ops *o, const char *what, double (*f)(void *arg), void *arg, double *x,
                     int64_t n, const double *grad);

#endif
