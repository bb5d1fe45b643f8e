/* xent_stats and xent_grad, over one shard and over two with the reduction between them by hand. */
#include "ops/ops.h"

enum corner { PLAIN, ALL_MASKED, LARGE, INFINITE };
struct shape {
  moe_dtype in, out;
  int64_t rows, vocab, split; /* split > 0: two shards, [0, split) and [split, vocab) */
  bool in_place;
  enum corner corner;
};
static const struct shape shapes[] = {
    {MOE_F32, MOE_F32, 0, 10, 0, false, PLAIN},      {MOE_F32, MOE_F32, 1, 1, 0, false, PLAIN},
    {MOE_F32, MOE_F32, 9, 37, 0, true, PLAIN},       {MOE_BF16, MOE_BF16, 9, 37, 0, true, PLAIN},
    {MOE_F32, MOE_BF16, 9, 100, 33, false, PLAIN},
    {MOE_BF16, MOE_F32, 5, 5003, 2600, false, PLAIN},
    {MOE_F32, MOE_F32, 3, 152064, 0, true, PLAIN},
    {MOE_BF16, MOE_BF16, 3, 151936, 70000, true, PLAIN},
    {MOE_F32, MOE_F32, 6, 40, 0, false, ALL_MASKED},
    {MOE_F32, MOE_F32, 6, 5000, 2500, false, LARGE},
    {MOE_F32, MOE_F32, 6, 5000, 2500, true, INFINITE},
};

struct loss {
  int64_t rows, vocab;
  double *x, scale;
  const int32_t *label;
};
static double row_loss(const double *x, int64_t n, int32_t label) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) max = fmax(max, x[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
  return log(sum) + max - x[label];
}
static double loss_of(void *arg) { /* scale * sum of the losses */
  const struct loss *l = arg;
  double sum = 0;
  for (int64_t r = 0; r < l->rows; r++)
    if (l->label[r] >= 0) sum += row_loss(l->x + r * l->vocab, l->vocab, l->label[r]);
  return l->scale * sum;
}

static void fill(struct ops *o, const struct shape *sh, struct moe_mat x, int32_t *label) {
  ops_random(o, x, 3);
  for (int64_t r = 0; r < sh->rows; r++) {
    label[r] = r % 4 == 2 || sh->corner == ALL_MASKED ? -1 - (int32_t)(r % 100)
                                                      : (int32_t)ops_below(o, sh->vocab);
    if (sh->corner == PLAIN || sh->corner == ALL_MASKED) continue;
    for (int64_t c = 0; c < sh->vocab; c++) {
      if (sh->corner == LARGE) ops_set(x, r, c, (r - 2) * 1e4 + 30 * ops_get(x, r, c));
      /* The first shard's first chunk is all -infinity, and half of the rest. */
      if (sh->corner == INFINITE && c != label[r] && (c < 2100 || c % 2))
        ops_set(x, r, c, -INFINITY);
    }
  }
}

struct shard {
  struct moe_mat x, d;
  int64_t first;
  float *max, *sum, *target;
};

/* What the ranks of a tensor-parallel group do between the halves: two shards, and an empty one
 * between them, as a rank without a row of the vocabulary has it. */
static void merge(struct ops *o, struct shard *s, int64_t rows) {
  enum { PARTS = 3 };
  float *parts = ops_floats(o, PARTS * 3 * rows), *merged = ops_floats(o, 3 * rows);
  for (int i = 0; i < PARTS; i++) {
    float *part = parts + i * 3 * rows;
    for (int64_t r = 0; r < rows; r++) {
      part[r] = i == 1 ? -INFINITY : s[i / 2].max[r];
      part[rows + r] = i == 1 ? 0 : s[i / 2].sum[r];
      part[2 * rows + r] = i == 1 ? 0 : s[i / 2].target[r];
    }
  }
  o->k->xent_merge(o->s, &(struct moe_xent_merge_args){
                             .parts = parts, .n = PARTS, .rows = rows, .merged = merged});
  for (int i = 0; i < 2; i++)
    for (int64_t r = 0; r < rows; r++) {
      s[i].max[r] = merged[r];
      s[i].sum[r] = merged[rows + r];
      s[i].target[r] = merged[2 * rows + r];
    }
}

static void check(struct ops *o, const void *arg) {
  const struct shape *sh = arg;
  int64_t R = sh->rows, V = sh->vocab;
  struct moe_mat x = ops_mat(o, sh->in, R, V, 5);
  struct moe_mat d = sh->in_place ? x : ops_mat(o, sh->out, R, V, 3);
  int32_t *label = ops_ints(o, R);
  fill(o, sh, x, label);
  struct loss l = {R, V, ops_copy(o, x), 0.25, label};
  double *want = ops_doubles(o, R * V), *mag = ops_doubles(o, R * V), *loss = ops_doubles(o, R);
  double *loss_mag = ops_doubles(o, R);
  for (int64_t r = 0; r < R; r++) {
    if (label[r] < 0) continue;
    loss[r] = row_loss(l.x + r * V, V, label[r]);
    double lse = loss[r] + l.x[r * V + label[r]];
    loss_mag[r] = fabs(lse) + fabs(l.x[r * V + label[r]]) + 8;
    for (int64_t c = 0; c < V; c++) {
      double p = exp(l.x[r * V + c] - lse), hit = c == label[r];
      want[r * V + c] = l.scale * (p - hit);
      mag[r * V + c] = l.scale * (p + hit) + 1e-30; /* exp gives 0 below 1e-38 */
    }
  }
  if (R * V < 2000) ops_differences(o, "dlogits", loss_of, &l, l.x, R * V, want);
  int n = sh->split > 0 ? 2 : 1;
  struct shard s[2] = {{.first = 0}};
  for (int i = 0; i < n; i++) {
    int64_t first = i * sh->split, cols = (n == 2 && i == 0 ? sh->split : V) - first;
    s[i] = (struct shard){moe_mat_cols(x, first, cols), moe_mat_cols(d, first, cols), first,
                          ops_floats(o, R), ops_floats(o, R), ops_floats(o, R)};
    o->k->xent_stats(o->s, &(struct moe_xent_args){.logits = s[i].x, .label = label, .first = first,
                                                   .max = s[i].max, .sum = s[i].sum,
                                                   .target = s[i].target});
  }
  if (n == 2) merge(o, s, R);
  float *got = ops_floats(o, R);
  for (int i = 0; i < n; i++) {
    struct moe_xent_grad_args a = {.logits = s[i].x, .dlogits = s[i].d, .label = label,
                                   .first = s[i].first, .max = s[i].max, .sum = s[i].sum,
                                   .target = s[i].target, .scale = 0.25f, .loss = got};
    o->k->xent_grad(o->s, &a); /* without a gradient: only the loss */
    ops_close_f(o, "loss", got, R, loss, loss_mag, 8 * OPS_EPS);
    a.grad = true;
    a.loss = i ? NULL : got;
    o->k->xent_grad(o->s, &a);
  }
  /* exp's few units, the rounding of x - max (at most 40 wide where p counts) and V/64 lanes. */
  ops_close(o, "dlogits", d, want, mag, (48 + sqrt((double)V)) * OPS_EPS);
}

static void test_xent(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(shapes); i++) ops_run("xent", check, &shapes[i]);
}

/* A NaN logit reaches the loss of its row, and of no other. */
static void nan_row(struct ops *o, const void *arg) {
  (void)arg;
  struct moe_mat x = ops_mat(o, MOE_F32, 2, 3000, 0);
  int32_t *label = ops_ints(o, 2);
  float *st = ops_floats(o, 6), *loss = ops_floats(o, 2);
  ops_random(o, x, 1);
  ops_set(x, 0, 1234, NAN);
  label[0] = label[1] = 7;
  struct moe_xent_args a = {.logits = x, .label = label, .max = st, .sum = st + 2,
                            .target = st + 4};
  o->k->xent_stats(o->s, &a);
  struct moe_xent_grad_args g = {.logits = x, .dlogits = x, .label = label, .max = st,
                                 .sum = st + 2, .target = st + 4, .scale = 1, .loss = loss};
  o->k->xent_grad(o->s, &g);
  if (!isnan(loss[0]) || !isfinite(loss[1])) ops_fail(o, "losses %g %g", loss[0], loss[1]);
}
static void test_nan(void **state) {
  (void)state;
  ops_run("xent of NaN", nan_row, NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_xent), cmocka_unit_test(test_nan)};
OPS_MAIN(tests)
