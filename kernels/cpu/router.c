/* The router: scores, the choice of K experts, probabilities, and the sums of the losses. */
#include "kernels/cpu/ops.h"

enum { PADDED = MOE_EXPERTS_MAX + MOE_VW, BLOCK = 64, BLOCKS = 256 };

/* Keys order like floats; a NaN is below -infinity, and TAKEN below that. */
enum { TAKEN = INT32_MIN, KEY_NAN = INT32_MIN + 1 };

static inline int32_t key_of(float x) {
  if (x != x) return KEY_NAN;
  x += 0.0f; /* -0 is 0 */
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

/* The first of the largest of keys[0..n); the rest of the last vector holds TAKEN. */
static int32_t arg_max(const int32_t *keys, int64_t n) {
  vi best, at, id;
  memcpy(&best, keys, sizeof best);
  for (int j = 0; j < MOE_VW; j++) id[j] = j;
  at = id;
  for (int64_t i = MOE_VW; i < n; i += MOE_VW) {
    vi v;
    memcpy(&v, keys + i, sizeof v);
    id += MOE_VW;
    vi more = v > best;
    best = (v & more) | (best & ~more);
    at = (id & more) | (at & ~more);
  }
  int32_t lane = 0, b[MOE_VW], a[MOE_VW];
  memcpy(b, &best, sizeof b);
  memcpy(a, &at, sizeof a);
  for (int j = 1; j < MOE_VW; j++)
    if (b[j] > b[lane] || (b[j] == b[lane] && a[j] < a[lane])) lane = j;
  return a[lane];
}

/* s = exp(x - max), or sigmoid(x); returns the sum. Equal logits give equal scores wherever they
 * lie: the end of the row runs the same code. */
MOE_INLINE float map_row(const float *x, float *s, int64_t n, float max, bool sigmoid) {
  vf acc = {0};
  for (int64_t i = 0; i < n; i += MOE_VW) {
    vf v = vx_load_or(x, MOE_F32, i, n - i, -INFINITY);
    v = sigmoid ? vf_sigmoid(v) : vf_exp(v - vf_set(max));
    acc += v;
    if (n - i >= MOE_VW)
      vf_store(s + i, v);
    else
      vf_store_n(s + i, v, n - i);
  }
  return vf_sum(acc);
}

/* Logits to scores; returns their sum over the experts. */
static float score_row(const struct moe_router_args *a, int64_t t) {
  int64_t n = a->experts;
  const float *x = a->logits + t * n;
  float *s = a->scores + t * n, max = -INFINITY, sum = 0;
  bool softmax = a->score == MOE_SCORE_SOFTMAX;
  if (softmax || a->lse) {
    vf m = vf_set(max);
    for (int64_t e = 0; e < n; e += MOE_VW) /* a NaN is passed over here */
      m = vf_max(vx_load_or(x, MOE_F32, e, n - e, max), m);
    max = vf_hmax(m);
    sum = map_row(x, s, n, max, false);
    if (a->lse) a->lse[t] = max + logf(sum);
  }
  if (!softmax) return map_row(x, s, n, 0, true);
  float inv = 1.0f / sum;
  for (int64_t e = 0; e < n; e++) s[e] *= inv;
  return 1;
}

/* Takes the experts of all but the best topk_groups groups. A group's score is the sum of its best
 * max(1, K / topk_groups) selection values. */
static void limit_groups(const struct moe_router_args *a, int32_t *keys, const float *value) {
  int64_t each = a->experts / a->groups;
  int64_t best = moe_min64(each, moe_max64(1, a->topk / a->topk_groups));
  int32_t group[PADDED], part[PADDED];
  for (int64_t g = 0; g < a->groups; g++) {
    float sum = 0;
    for (int64_t i = 0; i < each + MOE_VW; i++) part[i] = i < each ? keys[g * each + i] : TAKEN;
    for (int64_t i = 0; i < best; i++) {
      int32_t e = arg_max(part, each);
      sum += value[g * each + e];
      part[e] = TAKEN;
    }
    group[g] = key_of(sum);
  }
  for (int64_t g = a->groups; g < a->groups + MOE_VW; g++) group[g] = TAKEN;
  bool keep[MOE_EXPERTS_MAX] = {false};
  for (int64_t i = 0; i < a->topk_groups; i++) {
    int32_t g = arg_max(group, a->groups);
    group[g] = TAKEN;
    keep[g] = true;
  }
  for (int64_t e = 0; e < a->experts; e++)
    if (!keep[e / each]) keys[e] = TAKEN;
}

static void choose(const struct moe_router_args *a, int64_t t) {
  int64_t n = a->experts;
  const float *s = a->scores + t * n;
  int32_t keys[PADDED], *index = a->index + t * a->topk;
  float value[MOE_EXPERTS_MAX];
  for (int64_t e = 0; e < n; e++) {
    value[e] = a->bias ? s[e] + a->bias[e] : s[e];
    keys[e] = key_of(value[e]);
  }
  for (int64_t e = n; e < n + MOE_VW; e++) keys[e] = TAKEN;
  if (a->groups > 1) limit_groups(a, keys, value);
  for (int64_t k = 0; k < a->topk; k++) {
    index[k] = arg_max(keys, n);
    keys[index[k]] = TAKEN;
  }
}

/* 1 / what the chosen scores are divided by. */
static inline float inverse(const struct moe_router_args *a, const float *s, const int32_t *index) {
  bool sigmoid = a->score == MOE_SCORE_SIGMOID;
  if (!a->renormalise || (sigmoid && a->topk == 1)) return 1;
  float sum = sigmoid ? 1e-20f : 0;
  for (int64_t k = 0; k < a->topk; k++) sum += s[index[k]];
  return 1.0f / sum;
}

static void token(const struct moe_router_args *a, int64_t t, int32_t *count, float *prob_sum) {
  const float *s = a->scores + t * a->experts;
  const int32_t *index = a->index + t * a->topk;
  float sum = score_row(a, t);
  choose(a, t);
  float inv = inverse(a, s, index);
  for (int64_t k = 0; k < a->topk; k++) {
    a->prob[t * a->topk + k] = s[index[k]] * inv * a->scale;
    count[index[k]]++;
  }
  float share = a->score == MOE_SCORE_SIGMOID ? 1.0f / (sum + 1e-20f) : 1;
  for (int64_t e = 0; e < a->experts; e++) prob_sum[e] += s[e] * share;
}

/* A segment is cut into `blocks` blocks of `block` tokens; with more than one, each has its own
 * sums in the workspace, added in order at the end. */
struct job {
  const struct moe_router_args *a;
  int64_t segments, segment, blocks, block;
  int32_t *count;
  float *prob_sum;
};

static void route_blocks(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct job *j = arg;
  int64_t E = j->a->experts;
  for (int64_t i = first; i < last; i++) {
    int64_t segment = i / j->blocks, begin = i % j->blocks * j->block;
    int64_t end = moe_min64(begin + j->block, j->segment);
    int32_t *count = j->count + i * E;
    float *prob_sum = j->prob_sum + i * E;
    memset(count, 0, (size_t)E * sizeof *count);
    memset(prob_sum, 0, (size_t)E * sizeof *prob_sum);
    for (int64_t t = begin; t < end; t++) token(j->a, segment * j->segment + t, count, prob_sum);
  }
}

static void add_blocks(const struct job *j) {
  int64_t E = j->a->experts;
  for (int64_t i = 0; i < j->segments; i++) {
    int32_t *count = j->a->count + i * E;
    float *prob_sum = j->a->prob_sum + i * E;
    memset(count, 0, (size_t)E * sizeof *count);
    memset(prob_sum, 0, (size_t)E * sizeof *prob_sum);
    for (int64_t b = i * j->blocks; b < (i + 1) * j->blocks; b++)
      for (int64_t e = 0; e < E; e++) {
        count[e] += j->count[b * E + e];
        prob_sum[e] += j->prob_sum[b * E + e];
      }
  }
}

void MOE_FN(router)(struct moe_stream *s, const struct moe_router_args *a) {
  struct job j = {.a = a, .segments = 1, .segment = a->tokens, .count = a->count};
  j.prob_sum = a->prob_sum;
  if (a->segment > 0) {
    j.segment = a->segment;
    j.segments = a->tokens / a->segment;
  }
  int64_t most = moe_max64(1, BLOCKS / moe_max64(1, j.segments));
  j.blocks = moe_max64(1, moe_min64(moe_div_up(j.segment, BLOCK), most));
  j.block = moe_div_up(j.segment, j.blocks);
  if (j.blocks > 1) {
    j.count = moe_cpu_workspace(s, 0);
    j.prob_sum = (float *)(j.count + (int64_t)BLOCKS * MOE_EXPERTS_MAX);
  }
  moe_cpu_for(s, j.segments * j.blocks, 1, route_blocks, &j);
  if (j.blocks > 1) add_blocks(&j);
}

/* The gradient of the scores of token t: from the probabilities, and from the aux loss. */
static void score_grad(const struct moe_router_bwd_args *b, int64_t t, float *ds) {
  const struct moe_router_args *a = &b->fwd;
  int64_t E = a->experts, K = a->topk;
  const float *s = a->scores + t * E, *g = b->dprob + t * K;
  const int32_t *index = a->index + t * K;
  float inv = inverse(a, s, index), dot = 0;
  memset(ds, 0, (size_t)E * sizeof *ds);
  if (a->renormalise && !(a->score == MOE_SCORE_SIGMOID && K == 1))
    for (int64_t k = 0; k < K; k++) dot += g[k] * (s[index[k]] * inv);
  for (int64_t k = 0; k < K; k++) ds[index[k]] = a->scale * inv * (g[k] - dot);
  if (b->aux_count == NULL) return;
  int64_t segment = b->aux_shared || a->segment <= 0 ? 0 : t / a->segment;
  const int32_t *count = b->aux_count + segment * E;
  float share = 1, mean = 0;
  if (a->score == MOE_SCORE_SIGMOID) {
    float sum = 1e-20f;
    for (int64_t e = 0; e < E; e++) sum += s[e];
    share = 1.0f / sum;
    for (int64_t e = 0; e < E; e++) mean += b->aux_weight * (float)count[e] * (s[e] * share);
  }
  for (int64_t e = 0; e < E; e++) ds[e] += (b->aux_weight * (float)count[e] - mean) * share;
}

static void back_range(void *arg, int64_t first, int64_t last, int32_t thread) {
  (void)thread;
  const struct moe_router_bwd_args *b = arg;
  const struct moe_router_args *a = &b->fwd;
  int64_t E = a->experts;
  float ds[MOE_EXPERTS_MAX];
  for (int64_t t = first; t < last; t++) {
    const float *s = a->scores + t * E;
    float *d = b->dlogits + t * E, dot = 0;
    score_grad(b, t, ds);
    if (a->score == MOE_SCORE_SOFTMAX) {
      for (int64_t e = 0; e < E; e++) dot += ds[e] * s[e];
      for (int64_t e = 0; e < E; e++) d[e] = s[e] * (ds[e] - dot);
    } else {
      for (int64_t e = 0; e < E; e++) d[e] = ds[e] * s[e] * (1.0f - s[e]);
    }
    if (b->z_weight == 0) continue;
    float k = 2 * b->z_weight * a->lse[t];
    if (a->score == MOE_SCORE_SOFTMAX) {
      for (int64_t e = 0; e < E; e++) d[e] += k * s[e];
    } else { /* the only case that is given logits */
      const float *x = a->logits + t * E;
      for (int64_t e = 0; e < E; e++) d[e] += k * expf(x[e] - a->lse[t]);
    }
  }
}

void MOE_FN(router_bwd)(struct moe_stream *s, const struct moe_router_bwd_args *b) {
  struct moe_router_bwd_args args = *b;
  moe_cpu_for(s, b->fwd.tokens, moe_cpu_row_grain(b->fwd.experts * 16), back_range, &args);
}
