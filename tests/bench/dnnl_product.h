/* One matrix product by oneDNN, for comparison: C (m, n) = A (m, k) B (k, n), plain strides. */
#ifndef MOE_TESTS_BENCH_DNNL_PRODUCT_H
#define MOE_TESTS_BENCH_DNNL_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

struct dnnl_product;

struct dnnl_shape {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col; /* strides; C is (n, 1) */
  bool bf16, c_bf16;                  /* operands; result */
};

/* NULL when oneDNN refuses. Generates code: do it before measuring. */
struct dnnl_product *dnnl_product_create(const struct dnnl_shape *shape);
void dnnl_product_destroy(struct dnnl_product *p);
void dnnl_product_run(struct dnnl_product *p, void *a, void *b, void *c);

#endif
