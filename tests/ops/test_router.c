/* router and router_bwd. */
#include "ops/ops.h"

enum corner { SPREAD, TIES, NANS, TINY, LARGE };
struct setting {
  int64_t tokens, experts, topk;
  moe_score_kind score;
  bool renormalise;
  int64_t groups, topk_groups;
  float scale;
  bool bias, aux_shared;
  int64_t segment;
  enum corner corner;
};
#define SOFT MOE_SCORE_SOFTMAX
#define SIGM MOE_SCORE_SIGMOID
static const struct setting settings[] = {
    {0, 4, 2, SOFT, true, 0, 0, 1, false, false, 0, SPREAD},
    {0, 4, 2, SIGM, true, 0, 0, 1, true, false, 16, SPREAD},
    {1, 8, 2, SOFT, true, 0, 0, 1, false, true, 1, SPREAD},       /* Mixtral, Qwen3 */
    {30, 60, 4, SOFT, false, 0, 0, 1, false, false, 10, SPREAD},  /* Qwen2-MoE, OLMoE */
    {20, 8, 1, SOFT, false, 0, 0, 1, false, true, 0, SPREAD},
    {700, 64, 8, SOFT, true, 1, 1, 1, false, false, 350, SPREAD},
    {3, 1024, 64, SOFT, false, 0, 0, 1, false, true, 0, SPREAD},
    {20, 32, 8, SIGM, true, 8, 4, 2.5f, true, false, 10, SPREAD}, /* DeepSeek-V3 */
    {20, 12, 3, SIGM, true, 4, 2, 1.5f, true, true, 0, SPREAD},   /* groups by their best expert */
    {20, 7, 3, SIGM, false, 0, 0, 0.5f, false, true, 5, SPREAD},
    {20, 7, 1, SIGM, true, 0, 0, 3, true, true, 0, SPREAD},       /* K = 1: not divided */
    {40, 16, 4, SOFT, true, 0, 0, 1, false, true, 0, TIES},
    {40, 16, 4, SIGM, true, 4, 2, 1, true, true, 8, TIES},
    {40, 37, 9, SOFT, true, 0, 0, 1, false, true, 0, TIES},
    {40, 33, 5, SOFT, true, 0, 0, 1, false, true, 0, NANS},
    {40, 32, 6, SIGM, true, 8, 3, 1, true, true, 0, NANS},
    {10, 16, 4, SIGM, true, 0, 0, 1, false, true, 0, TINY},       /* sums near 1e-20 */
    {10, 16, 4, SOFT, true, 0, 0, 1, false, true, 0, LARGE},
    {5000, 8, 2, SIGM, true, 0, 0, 1, true, true, 0, SPREAD},     /* several blocks in a segment */
};

struct problem {
  const struct setting *c;
  int64_t segment, segments;
  double *x, *dprob, *aux; /* aux: d(loss)/d(p_te), (segments, E) */
  double z_weight;
  const int32_t *index;
};

static void fill(struct ops *o, const struct setting *c, float *logits, float *bias) {
  int64_t n = c->tokens * c->experts;
  ops_random_f(o, logits, n, 2);
  ops_random_f(o, bias, c->experts, 0.1);
  for (int64_t i = 0; i < n; i++) {
    if (c->corner == TIES) logits[i] = (float)ops_below(o, 3);
    if (c->corner == TINY) logits[i] -= 46;
    if (c->corner == LARGE) logits[i] = (float)(1000 + 10 * ops_normal(o));
  }
  for (int64_t e = 0; c->corner == TIES && e < c->experts; e++) bias[e] = 0;
  if (c->corner != NANS) return;
  static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (int64_t t = 0; t < c->tokens; t++) /* token 1: all NaN; some others: one bad value */
    for (int64_t e = 0; e < c->experts; e++)
      if (t == 1 || (t % 2 == 0 && e == t % c->experts))
        logits[t * c->experts + e] = bad[t / 2 % 4];
}

/* Scores and p of one token in double, and the log-sum-exp. */
static double token_scores(const struct setting *c, const double *x, double *s, double *p) {
  double max = -INFINITY, sum = 0, all = 0;
  for (int64_t e = 0; e < c->experts; e++) max = fmax(max, x[e]);
  for (int64_t e = 0; e < c->experts; e++) sum += exp(x[e] - max);
  for (int64_t e = 0; e < c->experts; e++) {
    s[e] = c->score == SOFT ? exp(x[e] - max) / sum : 1 / (1 + exp(-x[e]));
    all += s[e];
  }
  for (int64_t e = 0; e < c->experts; e++) p[e] = c->score == SOFT ? s[e] : s[e] / (all + 1e-20);
  return max + log(sum);
}
static double divisor(const struct setting *c, const double *s, const int32_t *index) {
  if (!c->renormalise || (c->score == SIGM && c->topk == 1)) return 1;
  double sum = c->score == SIGM ? 1e-20 : 0;
  for (int64_t k = 0; k < c->topk; k++) sum += s[index[k]];
  return sum;
}

static double loss_of(void *arg) {
  const struct problem *q = arg;
  const struct setting *c = q->c;
  double loss = 0, s[1024], p[1024];
  for (int64_t t = 0; t < c->tokens; t++) {
    const int32_t *index = q->index + t * c->topk;
    double lse = token_scores(c, q->x + t * c->experts, s, p), d = divisor(c, s, index);
    for (int64_t k = 0; k < c->topk; k++)
      loss += q->dprob[t * c->topk + k] * c->scale * s[index[k]] / d;
    for (int64_t e = 0; e < c->experts; e++) loss += q->aux[t / q->segment * c->experts + e] * p[e];
    loss += q->z_weight * lse * lse;
  }
  return loss;
}

/* ds += gradient through value[k] = f s[set[k]] / (sum over the set + ..): the quotient rule. */
static void quotient(const double *g, const double *s, const int32_t *set, int64_t n, double d,
                     double f, bool divided, double *ds, double *ds_mag) {
  for (int64_t k = 0; k < n; k++)
    for (int64_t j = 0; j < n; j++) {
      int32_t a = set ? set[k] : (int32_t)k, b = set ? set[j] : (int32_t)j;
      double v = (a == b ? f / d : 0) - (divided ? f * s[a] / (d * d) : 0);
      ds[b] += g[k] * v;
      ds_mag[b] += fabs(g[k]) * ((a == b ? f / d : 0) + (divided ? f * s[a] / (d * d) : 0));
    }
}

static void token_grad(const struct problem *q, int64_t t, double *want, double *mag) {
  const struct setting *c = q->c;
  int64_t E = c->experts;
  const int32_t *index = q->index + t * c->topk;
  double s[1024], p[1024], ds[1024] = {0}, ds_mag[1024] = {0}, all = 1e-20;
  double lse = token_scores(c, q->x + t * E, s, p), d = divisor(c, s, index);
  const double *aux = q->aux + t / q->segment * E;
  bool divided = c->renormalise && !(c->score == SIGM && c->topk == 1);
  quotient(q->dprob + t * c->topk, s, index, c->topk, d, c->scale, divided, ds, ds_mag);
  for (int64_t e = 0; e < E; e++) all += s[e];
  quotient(aux, s, NULL, E, c->score == SOFT ? 1 : all, 1, c->score == SIGM, ds, ds_mag);
  for (int64_t e = 0; e < E; e++) {
    double z = 2 * q->z_weight * lse * exp(q->x[t * E + e] - lse);
    want[e] = z;
    mag[e] = fabs(z);
    for (int64_t j = 0; j < E; j++) {
      double v = c->score == SOFT ? s[j] * ((j == e) - s[e]) : (j == e ? s[e] * (1 - s[e]) : 0);
      double terms = s[j] * ((j == e) + s[e]); /* 1 - s is taken from the score as it is kept */
      want[e] += ds[j] * v;
      mag[e] += c->score == SOFT || j == e ? ds_mag[j] * terms : 0;
    }
  }
}

static bool before(const float *value, int32_t a, int32_t b) { /* a is chosen before b */
  if (isnan(value[a]) || isnan(value[b]))
    return isnan(value[a]) == isnan(value[b]) ? a < b : isnan(value[b]);
  return value[a] != value[b] ? value[a] > value[b] : a < b;
}
static void sort_by(const float *value, int32_t *id, int64_t n) { /* insertion sort */
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = i; j > 0 && before(value, id[j], id[j - 1]); j--) {
      int32_t swap = id[j];
      id[j] = id[j - 1];
      id[j - 1] = swap;
    }
}

/* The choice by definition, from the scores as they are kept. */
static void reference_choice(const struct setting *c, const float *s, const float *bias,
                             int32_t *index) {
  int64_t E = c->experts, groups = c->groups > 1 ? c->groups : 1, each = E / groups, n = 0;
  float value[1024], group_value[1024];
  int32_t id[1024], group_id[1024];
  for (int64_t e = 0; e < E; e++) value[e] = c->bias ? s[e] + bias[e] : s[e];
  for (int64_t g = 0; g < groups; g++) {
    int64_t best = c->groups > 1 ? moe_max64(1, c->topk / c->topk_groups) : 0;
    for (int64_t i = 0; i < each; i++) id[i] = (int32_t)(g * each + i);
    sort_by(value, id, each);
    group_value[g] = 0;
    for (int64_t i = 0; i < best; i++) group_value[g] += value[id[i]];
    group_id[g] = (int32_t)g;
  }
  sort_by(group_value, group_id, groups);
  for (int64_t i = 0; i < (c->groups > 1 ? c->topk_groups : 1); i++)
    for (int64_t j = 0; j < each; j++) id[n++] = (int32_t)(group_id[i] * each + j);
  sort_by(value, id, n);
  memcpy(index, id, (size_t)c->topk * sizeof *index);
}

struct sums {
  int32_t *count;
  double *prob_sum;
};

static void check_forward(struct ops *o, struct problem *q, const struct moe_router_args *a) {
  const struct setting *c = q->c;
  int64_t T = c->tokens, E = c->experts, K = c->topk;
  double *scores = ops_doubles(o, T * E), *prob = ops_doubles(o, T * K), *lse = ops_doubles(o, T);
  double *lse_mag = ops_doubles(o, T), p[1024];
  struct sums w = {ops_ints(o, q->segments * E), ops_doubles(o, q->segments * E)};
  memset(w.count, 0, (size_t)(q->segments * E) * sizeof *w.count);
  int32_t *index = ops_ints(o, T * K);
  for (int64_t t = 0; t < T; t++) {
    double *s = scores + t * E;
    lse[t] = token_scores(c, q->x + t * E, s, p);
    lse_mag[t] = fabs(lse[t]) + 16;
    reference_choice(c, a->scores + t * E, a->bias, index + t * K);
    double d = divisor(c, s, index + t * K);
    for (int64_t k = 0; k < K; k++) {
      prob[t * K + k] = c->scale * s[index[t * K + k]] / d;
      w.count[t / q->segment * E + index[t * K + k]]++;
    }
    for (int64_t e = 0; e < E; e++) w.prob_sum[t / q->segment * E + e] += p[e];
  }
  ops_equal_i(o, "index", a->index, T * K, index);
  ops_equal_i(o, "count", a->count, q->segments * E, w.count);
  if (c->corner == NANS) return; /* only the choice is defined */
  /* exp's few units, the rounding of x - max (under 40), a sum in at least 4 lanes. */
  double tol = (48 + (double)E / 4) * OPS_EPS;
  ops_close_f(o, "scores", a->scores, T * E, scores, NULL, tol);
  ops_close_f(o, "prob", a->prob, T * K, prob, NULL, 2 * tol);
  ops_close_f(o, "lse", a->lse, T, lse, lse_mag, 8 * OPS_EPS);
  ops_close_f(o, "prob_sum", a->prob_sum, q->segments * E, w.prob_sum, NULL,
              2 * tol + sqrt((double)T) * OPS_EPS);
}

static void check_backward(struct ops *o, struct problem *q, const struct moe_router_args *a) {
  const struct setting *c = q->c;
  int64_t T = c->tokens, E = c->experts, K = c->topk, rows = c->aux_shared ? 1 : q->segments;
  float *dprob = ops_floats(o, T * K), *dlogits = ops_floats(o, T * E);
  int32_t *count = ops_ints(o, rows * E);
  ops_random_f(o, dprob, T * K, 1);
  for (int64_t i = 0; i < rows * E; i++) count[i] = (int32_t)ops_below(o, 100);
  struct moe_router_bwd_args b = {.fwd = *a, .dprob = dprob, .aux_count = count,
                                  .aux_shared = c->aux_shared, .aux_weight = 0.03f,
                                  .z_weight = 0.01f, .dlogits = dlogits};
  q->dprob = ops_copy_f(o, dprob, T * K);
  q->aux = ops_doubles(o, q->segments * E);
  q->z_weight = b.z_weight;
  for (int64_t i = 0; i < q->segments * E; i++)
    q->aux[i] = (double)b.aux_weight * count[c->aux_shared ? i % E : i];
  double *want = ops_doubles(o, T * E), *mag = ops_doubles(o, T * E);
  for (int64_t t = 0; t < T; t++) token_grad(q, t, want + t * E, mag + t * E);
  if (T * E < 3000 && c->corner != LARGE) /* differences of 1000-wide z-losses lose their digits */
    ops_differences(o, "dlogits", loss_of, q, q->x, T * E, want);
  o->k->router_bwd(o->s, &b);
  ops_close_f(o, "dlogits", dlogits, T * E, want, mag, (96 + (double)E / 2) * OPS_EPS);
  b.aux_count = NULL;
  b.z_weight = 0;
  o->k->router_bwd(o->s, &b);
  q->z_weight = 0;
  for (int64_t i = 0; i < q->segments * E; i++) q->aux[i] = 0;
  for (int64_t t = 0; t < T; t++) token_grad(q, t, want + t * E, mag + t * E);
  ops_close_f(o, "dlogits of the probabilities", dlogits, T * E, want, mag,
              (96 + (double)E / 2) * OPS_EPS);
}

static void check(struct ops *o, const void *arg) {
  const struct setting *c = arg;
  int64_t T = c->tokens, E = c->experts, K = c->topk;
  struct problem q = {.c = c, .segment = c->segment > 0 ? c->segment : moe_max64(1, T),
                      .segments = c->segment > 0 ? T / c->segment : 1};
  float *logits = ops_floats(o, T * E), *bias = ops_floats(o, E);
  fill(o, c, logits, bias);
  struct moe_router_args a = {.tokens = T, .experts = E, .topk = K, .score = c->score,
                              .renormalise = c->renormalise, .groups = c->groups,
                              .topk_groups = c->topk_groups, .scale = c->scale,
                              .bias = c->bias ? bias : NULL, .logits = logits,
                              .scores = ops_floats(o, T * E), .index = ops_ints(o, T * K),
                              .prob = ops_floats(o, T * K), .lse = ops_floats(o, T),
                              .segment = c->segment, .count = ops_ints(o, q.segments * E),
                              .prob_sum = ops_floats(o, q.segments * E)};
  o->k->router(o->s, &a);
  q.x = ops_copy_f(o, logits, T * E);
  q.index = a.index;
  check_forward(o, &q, &a);
  if (c->corner != NANS) {
    check_backward(o, &q, &a);
    return;
  }
  struct moe_router_bwd_args b = {.fwd = a, .dprob = a.prob, .dlogits = ops_floats(o, T * E)};
  o->k->router_bwd(o->s, &b); /* must not crash */
}

/* Renormalised softmax is the softmax over the chosen logits. */
static void chosen_softmax(struct ops *o, const void *arg) {
  (void)arg;
  enum { T = 20, E = 16, K = 3 };
  float *logits = ops_floats(o, T * E);
  ops_random_f(o, logits, T * E, 2);
  struct moe_router_args a = {.tokens = T, .experts = E, .topk = K, .renormalise = true, .scale = 1,
                              .logits = logits, .scores = ops_floats(o, T * E),
                              .index = ops_ints(o, T * K), .prob = ops_floats(o, T * K),
                              .count = ops_ints(o, E), .prob_sum = ops_floats(o, E)};
  o->k->router(o->s, &a); /* lse NULL: not wanted */
  double want[T * K];
  for (int t = 0; t < T; t++) {
    double sum = 0;
    for (int k = 0; k < K; k++) sum += want[t * K + k] = exp(logits[t * E + a.index[t * K + k]]);
    for (int k = 0; k < K; k++) want[t * K + k] /= sum;
  }
  ops_close_f(o, "prob", a.prob, T * K, want, NULL, 64 * OPS_EPS);
}

static void test_router(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(settings); i++) {
    char label[32];
    snprintf(label, sizeof label, "router setting %zu", i);
    ops_run(label, check, &settings[i]);
  }
  ops_run("softmax of the chosen", chosen_softmax, NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_router)};
OPS_MAIN(tests)
