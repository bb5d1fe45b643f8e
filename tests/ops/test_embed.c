/* embed and embed_bwd. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t tokens, cols, rows, first;
  int64_t ids; /* ids are drawn from [0, ids); 1: all the same */
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 8, 5, 0, 5},         {MOE_F32, 1, 1, 1, 0, 1},
    {MOE_BF16, 300, 33, 40, 20, 80},  {MOE_F32, 700, 600, 50, 0, 1},
    {MOE_BF16, 400, 1100, 7, 3, 12},  {MOE_F32, 64, 16, 1000, 1000, 900},
};

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t T = sh->tokens, n = sh->cols, V = sh->rows;
  float *w = ops_floats(o, V * n), *dw = ops_floats(o, V * n);
  int32_t *token = ops_ints(o, T);
  struct moe_mat y = ops_mat(o, sh->dtype, T, n, 3), dy = ops_mat(o, sh->dtype, T, n, 1);
  ops_random_f(o, w, V * n, 1);
  ops_random_f(o, dw, V * n, 1);
  ops_random(o, dy, 1);
  for (int64_t t = 0; t < T; t++) token[t] = (int32_t)ops_below(o, sh->ids);
  double *want = ops_doubles(o, T * n);
  float *sum = ops_floats(o, V * n);
  memcpy(sum, dw, (size_t)(V * n) * sizeof *sum);
  for (int64_t t = 0; t < T; t++)
    for (int64_t i = 0; i < n; i++) {
      int64_t id = token[t] - sh->first;
      if (id < 0 || id >= V) continue;
      want[t * n + i] = w[id * n + i];
      sum[id * n + i] += (float)ops_get(dy, t, i); /* token order, in fp32: the bits are defined */
    }
  struct moe_embed_args a = {.w = w, .rows = V, .first = sh->first, .token = token, .y = y};
  o->k->embed(o->s, &a);
  ops_close(o, "y", y, want, NULL, 0);
  int32_t *scratch = ops_ints(o, (int64_t)(o->k->embed_bwd_bytes(T, V) / sizeof(int32_t)));
  struct moe_embed_bwd_args b = {.dy = dy, .token = token, .rows = V, .first = sh->first,
                                 .dw = dw, .scratch = scratch};
  o->k->embed_bwd(o->s, &b);
  ops_close_f(o, "dw", dw, V * n, ops_copy_f(o, sum, V * n), NULL, 0);
}

static void test_embed(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("embed", check, &shapes[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_embed)};
OPS_MAIN(tests)
