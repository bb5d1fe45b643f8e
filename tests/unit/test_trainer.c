/* Whole training steps: gradients by finite differences over every switch of the layers, equality
 * across micro-batches, threads and recomputation, masked and bad input, steady memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/rng.h"
#include "moelua/moelua.h"

enum { SEQ = 12, BATCH = 4, VOCAB = 40, N = SEQ * BATCH };

struct setup {
  moe_ctx *ctx;
  moe_block_config block[2];
  moe_train_config config;
  moe_trainer *trainer;
  int32_t tokens[N], labels[N];
};

static void init(struct setup *s, int32_t threads) {
  moe_ctx_options options;
  memset(s, 0, sizeof *s);
  moe_ctx_options_init(&options);
  options.threads = threads;
  assert_int_equal(moe_ctx_create(&options, &s->ctx), MOE_OK);
  for (int i = 0; i < 2; i++) {
    moe_block_config *b = &s->block[i];
    moe_block_config_init(b);
    b->heads = 4;
    b->kv_heads = 2;
    b->head_dim = 6;
    b->ffn = 20;
    b->experts = 6;
    b->topk = 2;
    b->renormalise = 1;
  }
  moe_train_config_init(&s->config);
  s->config.model.vocab = VOCAB;
  s->config.model.hidden = 24;
  s->config.model.max_positions = SEQ;
  s->config.model.n_blocks = 2;
  s->config.model.blocks = s->block;
  s->config.model.init_std = 0.3; /* far from the flat start, where gradients are tiny */
  s->config.seq = SEQ;
  s->config.micro_batch = 2;
  s->config.global_batch = BATCH;
  s->config.seed = 5;
  struct moe_rng_key key = moe_rng_key(1, "batch");
  for (int i = 0; i < N; i++) {
    s->tokens[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i) % VOCAB);
    s->labels[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i + N) % VOCAB);
    if (i % 7 == 3) s->labels[i] = -1;
  }
}

static void ok(struct setup *s, moe_status status) {
  if (status != MOE_OK) fail_msg("%s", moe_ctx_error(s->ctx));
}

static void create(struct setup *s) { ok(s, moe_trainer_create(s->ctx, &s->config, &s->trainer)); }

static void finish(struct setup *s) {
  moe_trainer_destroy(s->trainer);
  moe_ctx_destroy(s->ctx);
}

static moe_step_metrics gradients(struct setup *s) {
  moe_step_metrics m = {.size = sizeof m};
  ok(s, moe_trainer_gradients(s->trainer, s->tokens, s->labels, &m));
  return m;
}

static moe_step_metrics step(struct setup *s) {
  moe_step_metrics m = {.size = sizeof m};
  ok(s, moe_trainer_step(s->trainer, s->tokens, s->labels, &m));
  return m;
}

static int64_t elements(const moe_param_info *info) {
  int64_t n = 1;
  for (int32_t d = 0; d < info->dims; d++) n *= info->count[d];
  return n;
}

/* A parameter's values; the caller frees them. */
static float *values(struct setup *s, int64_t index, moe_tensor_kind kind, int64_t *n) {
  moe_param_info info = {.size = sizeof info};
  ok(s, moe_trainer_param_info(s->trainer, index, &info));
  *n = elements(&info);
  float *v = malloc((size_t)*n * sizeof *v);
  assert_non_null(v);
  ok(s, moe_trainer_param_read(s->trainer, index, kind, v, *n));
  return v;
}

static double total(struct setup *s) {
  moe_step_metrics m = gradients(s);
  return m.loss + m.aux_loss + m.z_loss;
}

/* The derivative along each parameter's own gradient, g.g/|g|, against central differences. */
static void check_differences(struct setup *s, const char *what) {
  create(s);
  gradients(s);
  for (int64_t i = 0; i < moe_trainer_param_count(s->trainer); i++) {
    moe_param_info info = {.size = sizeof info};
    ok(s, moe_trainer_param_info(s->trainer, i, &info));
    if (strstr(info.name, "router_bias")) continue; /* a buffer */
    int64_t n;
    gradients(s);
    float *g = values(s, i, MOE_TENSOR_GRAD, &n), *w = values(s, i, MOE_TENSOR_WEIGHT, &n);
    float *moved = malloc((size_t)n * sizeof *moved);
    assert_non_null(moved);
    double norm = 0;
    for (int64_t j = 0; j < n; j++) norm += (double)g[j] * (double)g[j];
    norm = sqrt(norm);
    double loss[2];
    const double h = 1e-3; /* small: a token that changes its experts makes a jump */
    for (int side = 0; side < 2; side++) {
      for (int64_t j = 0; j < n; j++)
        moved[j] = (float)((double)w[j] + (side ? h : -h) * (double)g[j] / (norm + 1e-30));
      ok(s, moe_trainer_param_write(s->trainer, i, MOE_TENSOR_WEIGHT, moved, n));
      loss[side] = total(s);
    }
    ok(s, moe_trainer_param_write(s->trainer, i, MOE_TENSOR_WEIGHT, w, n));
    double slope = (loss[1] - loss[0]) / (2 * h);
    /* fp32 losses of 4 to 10 with 1e-6 of noise, over 2h; curvature adds a share of the slope. */
    if (!(fabs(slope - norm) <= 1e-3 + 1e-2 * norm))
      fail_msg("%s: %s: differences say %g, the gradient %g", what, info.name, slope, norm);
    free(g);
    free(w);
    free(moved);
  }
  finish(s);
}

static void test_gradients_plain(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  check_differences(&s, "plain");
}

static void test_gradients_losses(void **state) {
  (void)state;
  for (int scope = MOE_AUX_MICRO_BATCH; scope <= MOE_AUX_GLOBAL; scope++) {
    struct setup s;
    init(&s, 2);
    for (int i = 0; i < 2; i++) {
      s.block[i].aux_coef = 0.3;
      s.block[i].z_coef = 0.02;
      s.block[i].aux_scope = scope;
    }
    check_differences(&s, "aux and z loss");
  }
}

static void test_gradients_sigmoid_groups_shared(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  for (int i = 0; i < 2; i++) {
    s.block[i].score = MOE_SCORE_SIGMOID;
    s.block[i].expert_bias = 1;
    s.block[i].groups = 3;
    s.block[i].topk_groups = 2;
    s.block[i].routed_scale = 1.7;
    s.block[i].shared_ffn = 10;
    s.block[i].shared_gate = i;
    s.block[i].aux_coef = 0.1;
    s.block[i].z_coef = 0.02;
  }
  check_differences(&s, "sigmoid router, groups, shared experts");
}

static void test_gradients_mixed_blocks(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  s.block[0].ffn_kind = MOE_FFN_DENSE;
  s.block[0].experts = s.block[0].topk = s.block[0].renormalise = 0;
  s.block[0].qk_norm = MOE_QK_NORM_HEAD;
  s.block[0].qkv_bias = 1;
  s.block[1].qk_norm = MOE_QK_NORM_ALL;
  s.block[1].window = 5;
  s.block[1].renormalise = 0;
  s.config.model.tie_embeddings = 1;
  check_differences(&s, "dense and MoE, norms, biases, window, tied embeddings");
}

static void test_gradients_capacity(void **state) {
  (void)state;
  for (int pad = 0; pad < 2; pad++) {
    struct setup s;
    init(&s, 2);
    s.config.dispatch.capacity_factor = 0.75;
    s.config.dispatch.pad = pad;
    s.config.dispatch.drop = MOE_DROP_POSITION; /* the choice does not move with the weights */
    check_differences(&s, "capacity");
  }
}

/* All gradients of two setups, compared relative to each one's norm. */
static void compare_gradients(struct setup *a, struct setup *b, double bound) {
  for (int64_t i = 0; i < moe_trainer_param_count(a->trainer); i++) {
    moe_param_info info = {.size = sizeof info};
    ok(a, moe_trainer_param_info(a->trainer, i, &info));
    if (strstr(info.name, "router_bias")) continue;
    int64_t n;
    float *x = values(a, i, MOE_TENSOR_GRAD, &n), *y = values(b, i, MOE_TENSOR_GRAD, &n);
    double d = 0, norm = 0;
    for (int64_t j = 0; j < n; j++) {
      d += pow((double)x[j] - (double)y[j], 2);
      norm += (double)x[j] * (double)x[j];
    }
    if (!(sqrt(d) <= bound * sqrt(norm)))
      fail_msg("%s: differ by %g of the norm", info.name, sqrt(d / norm));
    free(x);
    free(y);
  }
}

/* Same tokens, same gradient, however the batch is cut (the scopes that do not follow the cut). */
static void test_micro_batches(void **state) {
  (void)state;
  for (int scope = MOE_AUX_SEQUENCE; scope <= MOE_AUX_GLOBAL; scope++) {
    struct setup s[2];
    moe_step_metrics m[2];
    for (int i = 0; i < 2; i++) {
      init(&s[i], 2);
      for (int b = 0; b < 2; b++) {
        s[i].block[b].aux_coef = 0.3;
        s[i].block[b].z_coef = 0.02;
        s[i].block[b].aux_scope = scope;
      }
      s[i].config.micro_batch = i ? 1 : BATCH;
      create(&s[i]);
      m[i] = gradients(&s[i]);
    }
    assert_true(fabs(m[0].loss - m[1].loss) <= 1e-6 * m[0].loss);
    assert_true(fabs(m[0].aux_loss - m[1].aux_loss) <= 1e-6 * m[0].aux_loss);
    assert_true(fabs(m[0].z_loss - m[1].z_loss) <= 1e-6 * m[0].z_loss);
    compare_gradients(&s[0], &s[1], 2e-6);
    for (int i = 0; i < 2; i++) finish(&s[i]);
  }
}

/* Balanced routing gives aux = coef: uniform probabilities do. */
static void test_aux_loss_of_balance(void **state) {
  (void)state;
  struct setup s;
  init(&s, 1);
  s.config.model.init_std = 1e-6;
  s.block[0].aux_coef = 0.25;
  create(&s);
  moe_step_metrics m = gradients(&s);
  assert_true(fabs(m.aux_loss - 0.25) < 1e-4);
  finish(&s);
}

/* Threads, recomputation and repetition leave every bit where it is. */
static void test_same_bits(void **state) {
  (void)state;
  for (int dtype = MOE_F32; dtype <= MOE_BF16; dtype++) {
    double want[5];
    for (int variant = 0; variant < 5; variant++) {
      struct setup s;
      init(&s, variant == 1 ? 1 : variant == 2 ? 3 : 2);
      s.config.dtype = dtype;
      for (int b = 0; b < 2; b++) {
        s.block[b].shared_ffn = 8;
        s.block[b].shared_gate = 1;
        s.block[b].aux_coef = 0.01;
        s.block[b].recompute = variant == 3   ? MOE_RECOMPUTE_FFN
                               : variant == 4 ? MOE_RECOMPUTE_BLOCK
                                              : MOE_RECOMPUTE_NONE;
      }
      create(&s);
      for (int i = 0; i < 5; i++) {
        double loss = step(&s).loss;
        if (variant == 0)
          want[i] = loss;
        else if (loss != want[i])
          fail_msg("dtype %d variant %d step %d: %a, not %a", dtype, variant, i, loss, want[i]);
      }
      finish(&s);
    }
  }
}

static void test_all_labels_masked(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  for (int i = 0; i < N; i++) s.labels[i] = -100;
  create(&s);
  moe_step_metrics m = step(&s);
  assert_true(m.loss == 0 && m.loss_tokens == 0 && m.grad_norm == 0);
  double sum;
  int64_t count;
  ok(&s, moe_trainer_eval(s.trainer, s.tokens, s.labels, BATCH, &sum, &count));
  assert_true(sum == 0 && count == 0);
  /* One micro-batch masked, the other not. */
  for (int i = 0; i < N / 2; i++) s.labels[i] = 1;
  m = step(&s);
  assert_int_equal(m.loss_tokens, N / 2);
  assert_true(isfinite(m.loss) && m.loss > 0);
  finish(&s);
}

static void test_eval_of_any_number(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  create(&s);
  double all, part, sum = 0;
  int64_t count, tokens = 0;
  ok(&s, moe_trainer_eval(s.trainer, s.tokens, s.labels, BATCH, &all, &count));
  const int64_t cut[3] = {0, 1, BATCH};
  for (int i = 0; i < 2; i++) {
    int64_t n;
    ok(&s, moe_trainer_eval(s.trainer, s.tokens + cut[i] * SEQ, s.labels + cut[i] * SEQ,
                            cut[i + 1] - cut[i], &part, &n));
    sum += part;
    tokens += n;
  }
  assert_int_equal(tokens, count);
  assert_true(fabs(sum - all) <= 1e-6 * all);
  moe_step_metrics m = gradients(&s);
  assert_true(fabs(m.loss - all / (double)count) <= 1e-6 * m.loss);
  finish(&s);
}

/* A prefix sees what it saw: causal. */
static void test_logits_are_causal(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  create(&s);
  float all[SEQ * VOCAB], last[VOCAB];
  ok(&s, moe_trainer_logits(s.trainer, s.tokens, SEQ, 1, all));
  for (int n = 1; n <= SEQ; n++) {
    ok(&s, moe_trainer_logits(s.trainer, s.tokens, n, 0, last));
    for (int v = 0; v < VOCAB; v++)
      assert_true(fabs((double)last[v] - (double)all[(n - 1) * VOCAB + v]) <= 1e-5);
  }
  assert_int_equal(moe_trainer_logits(s.trainer, s.tokens, 0, 0, last), MOE_INVALID);
  assert_int_equal(moe_trainer_logits(s.trainer, s.tokens, SEQ + 1, 0, last), MOE_INVALID);
  finish(&s);
}

static void test_bad_batches(void **state) {
  (void)state;
  struct setup s;
  moe_step_metrics m = {.size = sizeof m};
  init(&s, 2);
  create(&s);
  s.tokens[5] = VOCAB;
  assert_int_equal(moe_trainer_step(s.trainer, s.tokens, s.labels, &m), MOE_INVALID);
  assert_non_null(strstr(moe_ctx_error(s.ctx), "token 5"));
  s.tokens[5] = -1;
  assert_int_equal(moe_trainer_step(s.trainer, s.tokens, s.labels, &m), MOE_INVALID);
  s.tokens[5] = 0;
  s.labels[7] = VOCAB;
  assert_int_equal(moe_trainer_step(s.trainer, s.tokens, s.labels, &m), MOE_INVALID);
  s.labels[7] = 0;
  m.size = 3;
  assert_int_equal(moe_trainer_step(s.trainer, s.tokens, s.labels, &m), MOE_INVALID);
  moe_trainer_state now = {.size = sizeof now};
  ok(&s, moe_trainer_get_state(s.trainer, &now));
  assert_int_equal(now.step, 0);
  finish(&s);
}

/* Not-a-number weights: the step refuses, and changes nothing. */
static void test_numeric_failure_changes_nothing(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  create(&s);
  int64_t n, index;
  ok(&s, moe_trainer_param_find(s.trainer, "norm", &index));
  float *w = values(&s, index, MOE_TENSOR_WEIGHT, &n), keep = w[0];
  w[0] = NAN;
  ok(&s, moe_trainer_param_write(s.trainer, index, MOE_TENSOR_WEIGHT, w, n));
  float *before = values(&s, 0, MOE_TENSOR_WEIGHT, &n);
  moe_step_metrics m = {.size = sizeof m};
  assert_int_equal(moe_trainer_step(s.trainer, s.tokens, s.labels, &m), MOE_NUMERIC);
  float *after = values(&s, 0, MOE_TENSOR_WEIGHT, &n);
  assert_memory_equal(before, after, (size_t)n * sizeof *before);
  moe_trainer_state now = {.size = sizeof now};
  ok(&s, moe_trainer_get_state(s.trainer, &now));
  assert_true(now.step == 0 && now.cursor == 0);
  w[0] = keep;
  ok(&s, moe_trainer_param_write(s.trainer, index, MOE_TENSOR_WEIGHT, w, s.config.model.hidden));
  step(&s);
  free(w);
  free(before);
  free(after);
  finish(&s);
}

/* Counts before dropping move the bias: up for experts below the mean, down above. */
static void test_router_bias_follows_the_load(void **state) {
  (void)state;
  struct setup s;
  init(&s, 2);
  for (int i = 0; i < 2; i++) {
    s.block[i].score = MOE_SCORE_SIGMOID;
    s.block[i].expert_bias = 1;
    s.block[i].bias_rate = 0.125;
  }
  s.config.dispatch.capacity_factor = 0.5;
  create(&s);
  moe_step_metrics m = step(&s);
  assert_true(m.dropped > 0 && m.routed == 2 * 2 * N);
  int64_t index, n;
  ok(&s, moe_trainer_param_find(s.trainer, "blocks.0.moe.router_bias", &index));
  float *bias = values(&s, index, MOE_TENSOR_WEIGHT, &n), sum = 0;
  for (int64_t i = 0; i < n; i++) {
    assert_true(bias[i] == 0.125f || bias[i] == -0.125f || bias[i] == 0);
    sum += fabsf(bias[i]);
  }
  assert_true(sum > 0);
  float grad[6];
  assert_int_equal(moe_trainer_param_read(s.trainer, index, MOE_TENSOR_GRAD, grad, n),
                   MOE_INVALID);
  free(bias);
  finish(&s);
}

static void test_no_allocation_in_the_steady_loop(void **state) {
  (void)state;
  for (int dtype = MOE_F32; dtype <= MOE_BF16; dtype++) {
    struct setup s;
    init(&s, 2);
    s.config.dtype = dtype;
    s.block[0].recompute = MOE_RECOMPUTE_BLOCK;
    s.block[1].aux_coef = 0.01;
    s.block[1].aux_scope = MOE_AUX_GLOBAL;
    create(&s);
    step(&s);
    step(&s);
    uint64_t count = moe_ctx_alloc_count(s.ctx);
    for (int i = 0; i < 5; i++) step(&s);
    assert_int_equal(moe_ctx_alloc_count(s.ctx), count);
    finish(&s);
  }
}

/* The planner's bytes are the trainer's: both come from the same dry run. */
static void test_planned_memory_is_real(void **state) {
  (void)state;
  struct setup s;
  init(&s, 1);
  create(&s);
  moe_memory_report r = {.size = sizeof r};
  uint64_t before = moe_ctx_alloc_bytes(s.ctx);
  moe_trainer_destroy(s.trainer);
  uint64_t real = before - moe_ctx_alloc_bytes(s.ctx);
  s.trainer = NULL;
  ok(&s, moe_plan_memory(s.ctx, &s.config, &r));
  /* Beside what the plan counts: the stream's workspace, and host copies of a few kilobytes. */
  const uint64_t workspace = 4 << 20;
  assert_true(real > workspace && real - workspace >= r.total);
  assert_true(real - workspace < r.total + 64 * 1024);
  finish(&s);
}

/* tp halves what is kept: rows, heads or ffn columns of it. */
static void test_planned_memory_of_tp(void **state) {
  (void)state;
  struct setup s;
  init(&s, 1);
  moe_memory_report one = {.size = sizeof one}, two = one;
  ok(&s, moe_plan_memory(s.ctx, &s.config, &one));
  s.config.layout.tp = 2, s.config.layout.etp = 1;
  ok(&s, moe_plan_memory(s.ctx, &s.config, &two));
  assert_true((double)two.saved < 0.55 * (double)one.saved);
  assert_true((double)two.saved > 0.45 * (double)one.saved);
  finish(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients_plain),
      cmocka_unit_test(test_gradients_losses),
      cmocka_unit_test(test_gradients_sigmoid_groups_shared),
      cmocka_unit_test(test_gradients_mixed_blocks),
      cmocka_unit_test(test_gradients_capacity),
      cmocka_unit_test(test_micro_batches),
      cmocka_unit_test(test_aux_loss_of_balance),
      cmocka_unit_test(test_same_bits),
      cmocka_unit_test(test_all_labels_masked),
      cmocka_unit_test(test_eval_of_any_number),
      cmocka_unit_test(test_logits_are_causal),
      cmocka_unit_test(test_bad_batches),
      cmocka_unit_test(test_numeric_failure_changes_nothing),
      cmocka_unit_test(test_router_bias_follows_the_load),
      cmocka_unit_test(test_no_allocation_in_the_steady_loop),
      cmocka_unit_test(test_planned_memory_is_real),
      cmocka_unit_test(test_planned_memory_of_tp),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
