/* gather, combine and prob_rows, over an order of rows made by hand. */
#include "ops/ops.h"

struct shape {
  moe_dtype dtype;
  int64_t tokens, topk, cols;
  double drop; /* share of pairs without a row */
  int64_t pad; /* rows without a token */
  bool base, in_place;
};
static const struct shape shapes[] = {
    {MOE_F32, 0, 2, 8, 0, 0, true, false},     {MOE_F32, 0, 2, 8, 0, 3, false, false},
    {MOE_F32, 1, 1, 1, 0, 0, false, false},    {MOE_F32, 50, 3, 130, 0.3, 5, true, false},
    {MOE_BF16, 50, 3, 130, 0.3, 5, true, true}, {MOE_BF16, 40, 64, 257, 0, 0, false, false},
    {MOE_F32, 300, 8, 64, 1, 2, true, false},  {MOE_F32, 300, 8, 71, 0.1, 0, false, false},
};

struct order {
  int64_t pairs, rows;
  int32_t *row, *token, *slot;
};

/* Pairs get rows in a random order; dropped pairs -1, padding rows -1. */
static struct order make_order(struct ops *o, const struct shape *sh) {
  int64_t pairs = sh->tokens * sh->topk;
  struct order r = {pairs, sh->pad, ops_ints(o, pairs), NULL, NULL};
  for (int64_t i = 0; i < pairs; i++) {
    r.row[i] = ops_uniform(o) < sh->drop ? -1 : 0;
    r.rows += r.row[i] == 0;
  }
  r.token = ops_ints(o, r.rows);
  r.slot = ops_ints(o, r.rows);
  int32_t *free_rows = ops_ints(o, r.rows);
  for (int64_t i = 0; i < r.rows; i++) free_rows[i] = (int32_t)i;
  int64_t left = r.rows;
  for (int64_t i = 0; i < r.rows; i++) r.token[i] = r.slot[i] = -1;
  for (int64_t i = 0; i < pairs; i++) {
    if (r.row[i] < 0) continue;
    int64_t at = ops_below(o, left);
    r.row[i] = free_rows[at];
    free_rows[at] = free_rows[--left];
    r.token[r.row[i]] = (int32_t)(i / sh->topk);
    r.slot[r.row[i]] = (int32_t)(i % sh->topk);
  }
  return r;
}

static void check_rows(struct ops *o, const struct shape *sh, const struct order *r) {
  int64_t T = sh->tokens, n = sh->cols, K = sh->topk;
  struct moe_mat x = ops_mat(o, sh->dtype, T, n, 2), out = ops_mat(o, sh->dtype, r->rows, n, 1);
  struct moe_mat base = ops_mat(o, sh->dtype, T, n, 3), y = ops_mat(o, sh->dtype, T, n, 0);
  ops_random(o, x, 1);
  ops_random(o, base, 1);
  double *want = ops_doubles(o, r->rows * n);
  for (int64_t i = 0; i < r->rows * n; i++)
    want[i] = r->token[i / n] < 0 ? 0 : ops_get(x, r->token[i / n], i % n);
  o->k->gather(o->s, &(struct moe_gather_args){.x = x, .out = out, .token = r->token});
  ops_close(o, "gather", out, want, NULL, 0);

  ops_random(o, out, 1);
  double *sum = ops_doubles(o, T * n), *mag = ops_doubles(o, T * n);
  for (int64_t t = 0; t < T; t++)
    for (int64_t c = 0; c < n; c++) {
      double s = sh->base ? ops_get(base, t, c) : 0, m = fabs(s);
      for (int64_t k = 0; k < K; k++) {
        if (r->row[t * K + k] < 0) continue;
        s += ops_get(out, r->row[t * K + k], c);
        m += fabs(ops_get(out, r->row[t * K + k], c));
      }
      sum[t * n + c] = s;
      mag[t * n + c] = m;
    }
  struct moe_combine_args a = {.rows = out, .y = y, .row = r->row, .topk = K};
  if (sh->base) a.base = base;
  if (sh->in_place) a.y = base;
  o->k->combine(o->s, &a);
  ops_close(o, "combine", a.y, sum, mag, (double)K * OPS_EPS); /* K additions */
}

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  struct order r = make_order(o, sh);
  check_rows(o, sh, &r);
  float *prob = ops_floats(o, r.pairs), *value = ops_floats(o, r.rows);
  ops_random_f(o, prob, r.pairs, 1);
  double *by_row = ops_doubles(o, r.rows), *by_pair = ops_doubles(o, r.pairs);
  for (int64_t i = 0; i < r.rows; i++)
    if (r.token[i] >= 0) by_row[i] = prob[r.token[i] * sh->topk + r.slot[i]];
  struct moe_prob_rows_args a = {.to_rows = true, .tokens = sh->tokens, .topk = sh->topk,
                                 .n_rows = r.rows, .row = r.row, .token = r.token, .slot = r.slot,
                                 .in = prob, .out = value};
  o->k->prob_rows(o->s, &a);
  ops_close_f(o, "prob of rows", value, r.rows, by_row, NULL, 0);
  for (int64_t i = 0; i < r.pairs; i++) by_pair[i] = r.row[i] < 0 ? 0 : by_row[r.row[i]];
  a.to_rows = false;
  a.in = value;
  a.out = prob;
  o->k->prob_rows(o->s, &a);
  ops_close_f(o, "prob of pairs", prob, r.pairs, by_pair, NULL, 0);
}

struct moved {
  moe_dtype dtype;
  int64_t chunks, most, cols, gap; /* most: rows of a chunk are below */
};
static const struct moved moves[] = {
    {MOE_F32, 1, 1, 4, 0},   {MOE_F32, 1, 90, 3, 0},   {MOE_F32, 24, 9, 130, 0},
    {MOE_BF16, 24, 9, 33, 2}, {MOE_F32, 200, 3, 1, 0}, {MOE_BF16, 7, 400, 300, 0},
};

/* Chunks in a random order, some of them empty, and the way back. */
static void check_chunks(struct ops *o, const void *arg) {
  const struct moved *m = arg;
  int64_t n = m->chunks, rows = 0;
  int32_t *from = ops_ints(o, n), *to = ops_ints(o, n + 1), *size = ops_ints(o, n);
  int32_t *order = ops_ints(o, n);
  for (int64_t i = 0; i < n; i++) {
    size[i] = (int32_t)ops_below(o, m->most);
    from[i] = (int32_t)rows;
    order[i] = (int32_t)i;
    rows += size[i];
  }
  int32_t *first = ops_ints(o, n); /* in, by chunk */
  for (int64_t i = 0; i < n; i++) first[i] = from[i];
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = ops_below(o, i + 1);
    int32_t swap = order[i];
    order[i] = order[j], order[j] = swap;
  }
  to[0] = 0;
  for (int64_t i = 0; i < n; i++) {
    from[i] = first[order[i]];
    to[i + 1] = to[i] + size[order[i]];
  }
  struct moe_mat in = ops_mat(o, m->dtype, rows, m->cols, m->gap);
  struct moe_mat out = ops_mat(o, m->dtype, rows, m->cols, 0);
  double *want = ops_doubles(o, rows * m->cols);
  ops_random(o, in, 1);
  for (int64_t i = 0; i < n; i++)
    for (int64_t r = 0; r < size[order[i]]; r++)
      for (int64_t c = 0; c < m->cols; c++)
        want[(to[i] + r) * m->cols + c] = ops_get(in, from[i] + r, c);
  o->k->chunks(o->s, &(struct moe_chunks_args){in, out, n, from, to});
  ops_close(o, "chunks", out, want, NULL, 0);
}

static void test_chunks(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(moves); i++) ops_run("chunks", check_chunks, &moves[i]);
}

static void test_permute(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("permute", check, &shapes[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_permute),
                                          cmocka_unit_test(test_chunks)};
OPS_MAIN(tests)
