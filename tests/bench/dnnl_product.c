#include "bench/dnnl_product.h"

#include <dnnl.h>
#include <stdlib.h>

struct dnnl_product {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_memory_t a, b, c;
};

static bool describe(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, int64_t row, int64_t col,
                     bool bf16) {
  dnnl_dims_t dims = {rows, cols}, strides = {row, col};
  return dnnl_memory_desc_init_by_strides(d, 2, dims, bf16 ? dnnl_bf16 : dnnl_f32, strides) ==
         dnnl_success;
}

static bool build(struct dnnl_product *p, const struct dnnl_shape *s) {
  dnnl_memory_desc_t a, b, c;
  dnnl_matmul_desc_t op;
  dnnl_primitive_desc_t pd;
  if (dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
      dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success ||
      !describe(&a, s->m, s->k, s->a_row, s->a_col, s->bf16) ||
      !describe(&b, s->k, s->n, s->b_row, s->b_col, s->bf16) ||
      !describe(&c, s->m, s->n, s->n, 1, s->c_bf16) ||
      dnnl_matmul_desc_init(&op, &a, &b, NULL, &c) != dnnl_success ||
      dnnl_primitive_desc_create(&pd, &op, NULL, p->engine, NULL) != dnnl_success)
    return false;
  bool ok = dnnl_primitive_create(&p->primitive, pd) == dnnl_success &&
            dnnl_memory_create(&p->a, &a, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
            dnnl_memory_create(&p->b, &b, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
            dnnl_memory_create(&p->c, &c, p->engine, DNNL_MEMORY_NONE) == dnnl_success;
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

struct dnnl_product *dnnl_product_create(const struct dnnl_shape *shape) {
  struct dnnl_product *p = calloc(1, sizeof *p);
  if (p == NULL || build(p, shape)) return p;
  dnnl_product_destroy(p);
  return NULL;
}

void dnnl_product_destroy(struct dnnl_product *p) {
  if (p == NULL) return;
  if (p->a) dnnl_memory_destroy(p->a);
  if (p->b) dnnl_memory_destroy(p->b);
  if (p->c) dnnl_memory_destroy(p->c);
  if (p->primitive) dnnl_primitive_destroy(p->primitive);
  if (p->stream) dnnl_stream_destroy(p->stream);
  if (p->engine) dnnl_engine_destroy(p->engine);
  free(p);
}

void dnnl_product_run(struct dnnl_product *p, void *a, void *b, void *c) {
  dnnl_memory_set_data_handle(p->a, a);
  dnnl_memory_set_data_handle(p->b, b);
  dnnl_memory_set_data_handle(p->c, c);
  dnnl_exec_arg_t args[] = {
      {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
  dnnl_primitive_execute(p->primitive, p->stream, 3, args);
  dnnl_stream_wait(p->stream);
}
