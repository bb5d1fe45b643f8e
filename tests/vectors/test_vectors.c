/* Logits, loss, every gradient and ten AdamW steps against files that Hugging Face transformers
 * wrote (make_vectors.py; README.md says what is in them). fp32 must agree to 1e-5, relative to the
 * largest logit, to the loss, and to each gradient's 2-norm. In bf16 both sides round differently:
 * the bounds are about twice the distance that transformers' own bf16 has from its fp32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoints/hf_names.h"
#include "checkpoints/safetensors.h"
#include "moelua/moelua.h"

struct bounds {
  double loss, logits, grad;
};
static const struct bounds kFp32 = {1e-5, 1e-5, 1e-5};
static const struct bounds kBf16 = {2e-3, 3e-2, 1.6e-1};

struct model {
  moe_ctx *ctx;
  struct moe_hf_config hf;
  struct moe_safetensors weights, reference;
  moe_trainer *trainer;
  struct bounds far; /* the largest distances that were seen */
  int32_t batch, seq;
  int32_t *tokens, *labels;
};

static void ok(moe_ctx *ctx, moe_status status) {
  if (status != MOE_OK) fail_msg("%s", moe_ctx_error(ctx));
}

static float *read_f32(struct model *m, struct moe_safetensors *file, const char *name,
                       int64_t *count) {
  const struct moe_safetensor *t = moe_safetensors_find(file, name);
  if (t == NULL) fail_msg("%s: no tensor %s", file->path, name);
  float *values = malloc((size_t)t->elements * sizeof *values);
  assert_non_null(values);
  ok(m->ctx, moe_safetensors_read_f32(file, t, 0, t->elements, values));
  if (count) *count = t->elements;
  return values;
}

static int32_t *read_ids(struct model *m, const char *name) {
  const struct moe_safetensor *t = moe_safetensors_find(&m->reference, name);
  assert_non_null(t);
  m->batch = (int32_t)t->dim[0];
  m->seq = (int32_t)t->dim[1];
  int32_t *ids = malloc((size_t)t->elements * sizeof *ids);
  assert_non_null(ids);
  ok(m->ctx, moe_safetensors_read_i32(&m->reference, t, 0, t->elements, ids));
  return ids;
}

/* Elements of our logical tensor (one rank: the whole of it). */
static int64_t param(struct model *m, const char *name, int64_t *elements) {
  int64_t index;
  moe_param_info info = {.size = sizeof info};
  ok(m->ctx, moe_trainer_param_find(m->trainer, name, &index));
  ok(m->ctx, moe_trainer_param_info(m->trainer, index, &info));
  *elements = 1;
  for (int32_t d = 0; d < info.dims; d++) *elements *= info.dim[d];
  return index;
}

/* Every tensor of the file goes to its place; every element of every parameter must be covered. */
static void load_weights(struct model *m) {
  int64_t covered = 0, total = 0;
  for (int64_t i = 0; i < m->weights.tensors; i++) {
    const struct moe_safetensor *t = &m->weights.tensor[i];
    struct moe_hf_place place;
    int64_t elements;
    ok(m->ctx, moe_hf_name_place(m->ctx, &m->hf, t->name, &place));
    assert_int_equal(place.elements, t->elements);
    int64_t index = param(m, place.name, &elements);
    float *values = malloc((size_t)elements * sizeof *values);
    assert_non_null(values);
    ok(m->ctx, moe_trainer_param_read(m->trainer, index, MOE_TENSOR_WEIGHT, values, elements));
    ok(m->ctx, moe_safetensors_read_f32(&m->weights, t, 0, t->elements, values + place.first));
    ok(m->ctx, moe_trainer_param_write(m->trainer, index, MOE_TENSOR_WEIGHT, values, elements));
    free(values);
    covered += t->elements;
  }
  for (int64_t i = 0; i < moe_trainer_param_count(m->trainer); i++) {
    moe_param_info info = {.size = sizeof info};
    int64_t elements;
    ok(m->ctx, moe_trainer_param_info(m->trainer, i, &info));
    param(m, info.name, &elements);
    total += elements;
  }
  assert_int_equal(covered, total);
}

static void open_model(struct model *m, const char *family, moe_dtype dtype, const char *isa) {
  char path[256];
  moe_ctx_options options;
  moe_train_config config;
  memset(m, 0, sizeof *m);
  moe_ctx_options_init(&options);
  options.isa = isa;
  options.threads = 2;
  assert_int_equal(moe_ctx_create(&options, &m->ctx), MOE_OK);
  snprintf(path, sizeof path, "tests/vectors/%s/config.json", family);
  ok(m->ctx, moe_hf_config_read(m->ctx, path, &m->hf));
  snprintf(path, sizeof path, "tests/vectors/%s/model.safetensors", family);
  ok(m->ctx, moe_safetensors_open(m->ctx, path, &m->weights));
  snprintf(path, sizeof path, "tests/vectors/%s/reference.safetensors", family);
  ok(m->ctx, moe_safetensors_open(m->ctx, path, &m->reference));
  m->tokens = read_ids(m, "tokens");
  m->labels = read_ids(m, "labels");

  moe_train_config_init(&config);
  if (strcmp(family, "mixtral_aux") == 0) {
    /* One layer: ours is K times theirs (recipes/README.md, aux_coef). */
    moe_block_config *block = (moe_block_config *)(uintptr_t)m->hf.model.blocks;
    block->aux_coef = m->hf.router_aux_loss_coef * block->topk;
  }
  config.model = m->hf.model;
  config.dtype = dtype;
  config.seq = m->seq;
  config.micro_batch = m->batch;
  config.global_batch = m->batch;
  config.optimizer.lr.peak = 1e-3;
  config.optimizer.clip = 0;
  ok(m->ctx, moe_trainer_create(m->ctx, &config, &m->trainer));
  load_weights(m);
}

static void close_model(struct model *m) {
  moe_trainer_destroy(m->trainer);
  moe_safetensors_close(&m->weights);
  moe_safetensors_close(&m->reference);
  moe_hf_config_destroy(m->ctx, &m->hf);
  free(m->tokens);
  free(m->labels);
  moe_ctx_destroy(m->ctx);
}

static void compare_logits(struct model *m, const char *name, double bound) {
  int64_t n, vocab = m->hf.model.vocab;
  float *want = read_f32(m, &m->reference, name, &n);
  float *got = malloc((size_t)n * sizeof *got);
  assert_non_null(got);
  double worst = 0, largest = 0;
  for (int32_t b = 0; b < m->batch; b++)
    ok(m->ctx,
       moe_trainer_logits(m->trainer, m->tokens + b * m->seq, m->seq, 1, got + b * m->seq * vocab));
  for (int64_t i = 0; i < n; i++) {
    assert_true(isfinite(got[i]));
    worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    largest = fmax(largest, fabs((double)want[i]));
  }
  m->far.logits = worst / largest;
  if (worst > bound * largest)
    fail_msg("%s %s: %g, bound %g", m->weights.path, name, worst / largest, bound);
  free(want);
  free(got);
}

static void compare_gradient(struct model *m, const struct moe_safetensor *t, const char *hf_name,
                             double bound) {
  struct moe_hf_place place;
  int64_t elements;
  ok(m->ctx, moe_hf_name_place(m->ctx, &m->hf, hf_name, &place));
  int64_t index = param(m, place.name, &elements);
  float *want = read_f32(m, &m->reference, t->name, NULL);
  float *got = malloc((size_t)elements * sizeof *got);
  assert_non_null(got);
  ok(m->ctx, moe_trainer_param_read(m->trainer, index, MOE_TENSOR_GRAD, got, elements));
  double error = 0, norm = 0;
  for (int64_t i = 0; i < t->elements; i++) {
    double d = (double)got[place.first + i] - (double)want[i];
    error += d * d;
    norm += (double)want[i] * (double)want[i];
  }
  if (norm > 0) m->far.grad = fmax(m->far.grad, sqrt(error / norm));
  if (!(error <= bound * bound * norm))
    fail_msg("%s: %g, bound %g", t->name, sqrt(error / norm), bound);
  free(got);
  free(want);
}

static void compare_gradients(struct model *m, const char *prefix, bool all, double bound) {
  size_t n = strlen(prefix);
  int64_t seen = 0;
  for (int64_t i = 0; i < m->reference.tensors; i++) {
    const struct moe_safetensor *t = &m->reference.tensor[i];
    if (strncmp(t->name, prefix, n) != 0) continue;
    compare_gradient(m, t, t->name + n, bound);
    seen++;
  }
  if (all) assert_int_equal(seen, m->weights.tensors);
}

static void check_loss(struct model *m, const char *what, double got, double want, double bound) {
  m->far.loss = fmax(m->far.loss, fabs(got - want) / fabs(want));
  if (!(fabs(got - want) <= bound * fabs(want)))
    fail_msg("%s: %.9g, transformers has %.9g: off by %g, bound %g", what, got, want,
             fabs(got - want) / fabs(want), bound);
}

static void check_family(const char *family, moe_dtype dtype, const char *isa) {
  struct model m;
  bool fp32 = dtype == MOE_F32;
  const struct bounds bounds = fp32 ? kFp32 : kBf16;
  moe_step_metrics metrics = {.size = sizeof metrics};
  open_model(&m, family, dtype, isa);
  float *loss = read_f32(&m, &m.reference, fp32 ? "loss" : "bf16.loss", NULL);
  compare_logits(&m, fp32 ? "logits" : "bf16.logits", bounds.logits);
  ok(m.ctx, moe_trainer_gradients(m.trainer, m.tokens, m.labels, &metrics));
  check_loss(&m, "loss", metrics.loss + metrics.aux_loss, (double)loss[0], bounds.loss);
  compare_gradients(&m, fp32 ? "grad." : "bf16.grad.", fp32, bounds.grad);
  if (fp32) {
    float *losses = read_f32(&m, &m.reference, "adamw.losses", NULL);
    for (int i = 0; i < 10; i++) {
      ok(m.ctx, moe_trainer_step(m.trainer, m.tokens, m.labels, &metrics));
      check_loss(&m, "loss of an AdamW step", metrics.loss + metrics.aux_loss, (double)losses[i],
                 bounds.loss);
    }
    free(losses);
  }
  free(loss);
  print_message("%-14s %s %-8s logits %.1e  losses %.1e  gradients %.1e\n", family,
                fp32 ? "f32 " : "bf16", isa ? isa : "", m.far.logits, m.far.loss, m.far.grad);
  close_model(&m);
}

static const char *const kFamilies[] = {"mixtral",   "mixtral_aux", "mixtral_window",
                                        "qwen2_moe", "qwen3_moe",   "olmoe"};

static void test_fp32(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(kFamilies); i++) check_family(kFamilies[i], MOE_F32, NULL);
}

static void test_fp32_portable_kernels(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(kFamilies); i++)
    check_family(kFamilies[i], MOE_F32, "generic");
}

static void test_bf16(void **state) {
  (void)state;
  for (size_t i = 0; i < MOE_COUNTOF(kFamilies); i++) check_family(kFamilies[i], MOE_BF16, NULL);
}

/* A name that the family does not have is refused by name. */
static void test_unknown_names(void **state) {
  (void)state;
  static const char *const wrong[] = {"model.layers.0.mlp.gate.bias",
                                      "model.layers.9.input_layernorm.weight",
                                      "transformer.h.0",
                                      "model.layers.0.block_sparse_moe.experts.8.w1.weight",
                                      "model.layers.0.block_sparse_moe.experts.0.w4.weight",
                                      "model.layers.x.input_layernorm.weight",
                                      "model.layers.0.self_attn.q_proj.bias"};
  struct model m;
  struct moe_hf_place place;
  open_model(&m, "mixtral", MOE_F32, NULL);
  for (size_t i = 0; i < MOE_COUNTOF(wrong); i++) {
    assert_int_equal(moe_hf_name_place(m.ctx, &m.hf, wrong[i], &place), MOE_NOTFOUND);
    assert_non_null(strstr(moe_ctx_error(m.ctx), wrong[i]));
  }
  close_model(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_fp32_portable_kernels),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_unknown_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
