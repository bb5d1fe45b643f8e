/* What the tests of checkpoints share: a small model with dense, MoE and router-bias parts, batches
 * that depend on the step alone, folders of their own. */
#ifndef TESTS_CHECKPOINT_MODEL_H
#define TESTS_CHECKPOINT_MODEL_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h> /* after setjmp, stdarg, stddef and stdint */

#include "moelua/moelua.h"

enum { SEQ = 16, BATCH = 4, VOCAB = 67, BLOCKS = 3 };

static moe_ctx *ctx;
static char folder[256];     /* of this test, removed after it */
static char last_log[65536]; /* last line the library logged */

#define OK(call)                                                         \
  do {                                                                   \
    if ((call) != MOE_OK) fail_msg("%s: %s", #call, moe_ctx_error(ctx)); \
  } while (0)

__attribute__((unused)) static void has(const char *part) {
  if (!strstr(moe_ctx_error(ctx), part)) fail_msg("no \"%s\" in \"%s\"", part, moe_ctx_error(ctx));
}

static void keep_log(void *user, moe_log_level level, const char *text) {
  (void)user, (void)level;
  snprintf(last_log, sizeof last_log, "%s", text);
}

static int setup(void **state) {
  (void)state;
  const char *base = getenv("TMPDIR");
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  options.log = keep_log;
  last_log[0] = 0;
  snprintf(folder, sizeof folder, "%s/moe-checkpoint-XXXXXX", base ? base : "/tmp");
  if (mkdtemp(folder) == NULL) return -1;
  return moe_ctx_create(&options, &ctx) == MOE_OK ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw) {
  (void)info, (void)flag, (void)ftw;
  return remove(path);
}

static int teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* folder/name, in one of a few static buffers. */
static char *in_folder(const char *name) {
  static char buffer[8][512];
  static int next;
  char *path = buffer[next++ % 8];
  snprintf(path, sizeof buffer[0], "%s/%s", folder, name);
  return path;
}

__attribute__((unused)) static int exists(const char *name) {
  struct stat info;
  return lstat(in_folder(name), &info) == 0;
}

/* Creates or replaces a file. */
__attribute__((unused)) static void write_file(const char *name, const char *text) {
  FILE *file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

struct model {
  moe_train_config config;
  moe_block_config block[BLOCKS + 1];
};

/* Block 0 is dense, the others are MoE with a router bias and a shared expert. */
__attribute__((unused)) static void model_init(struct model *m, int32_t dtype) {
  moe_train_config_init(&m->config);
  for (int i = 0; i <= BLOCKS; i++) {
    moe_block_config *b = &m->block[i];
    moe_block_config_init(b);
    b->heads = 4, b->kv_heads = 2, b->head_dim = 8, b->qkv_bias = 1;
    b->ffn = 40, b->ffn_kind = i == 0 ? MOE_FFN_DENSE : MOE_FFN_MOE;
    b->experts = i == 0 ? 0 : 6, b->topk = i == 0 ? 0 : 2;
    if (i == 0) continue;
    b->score = MOE_SCORE_SIGMOID, b->renormalise = 1;
    b->expert_bias = 1, b->bias_rate = 1e-2, b->aux_coef = 1e-2;
    b->shared_ffn = 24, b->shared_gate = 1;
  }
  m->config.model.vocab = VOCAB, m->config.model.hidden = 36;
  m->config.model.max_positions = SEQ;
  m->config.model.n_blocks = BLOCKS, m->config.model.blocks = m->block;
  m->config.seq = SEQ, m->config.micro_batch = 2, m->config.global_batch = BATCH;
  m->config.dtype = dtype;
  m->config.seed = 0xfedcba9876543210u;
  m->config.optimizer.lr.peak = 1e-2;
}

__attribute__((unused)) static moe_trainer *trainer_of(const struct model *m) {
  moe_trainer *t;
  OK(moe_trainer_create(ctx, &m->config, &t));
  return t;
}

__attribute__((unused)) static moe_trainer *trainer_new(int32_t dtype) {
  struct model m;
  model_init(&m, dtype);
  return trainer_of(&m);
}

/* Trains `steps` steps on batches that follow from the trainer's cursor; losses go to loss. */
__attribute__((unused)) static void train(moe_trainer *t, int steps, double *loss) {
  for (int i = 0; i < steps; i++) {
    int32_t token[BATCH * SEQ], label[BATCH * SEQ];
    moe_trainer_state state = {.size = sizeof state};
    moe_step_metrics metrics = {.size = sizeof metrics};
    OK(moe_trainer_get_state(t, &state));
    uint64_t x = (uint64_t)state.cursor * 0x9e3779b97f4a7c15u + 1;
    for (int n = 0; n < BATCH * SEQ; n++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      token[n] = (int32_t)((x >> 33) % VOCAB);
      label[n] = (token[n] * 5 + 3) % VOCAB;
    }
    OK(moe_trainer_step(t, token, label, &metrics));
    if (loss) loss[i] = metrics.loss;
  }
}

static int64_t elements_of(const moe_param_info *info) {
  int64_t n = 1;
  for (int d = 0; d < info->dims; d++) n *= info->count[d];
  return n;
}

__attribute__((unused)) static int is_buffer(const moe_param_info *info) {
  return strstr(info->name, "router_bias") != NULL;
}

/* This rank's values of a tensor, to be freed. */
__attribute__((unused)) static float *values_of(moe_trainer *t, int64_t index, int32_t kind,
                                                int64_t *n) {
  moe_param_info info = {.size = sizeof info};
  OK(moe_trainer_param_info(t, index, &info));
  *n = elements_of(&info);
  float *values = malloc((size_t)*n * sizeof *values);
  assert_non_null(values);
  OK(moe_trainer_param_read(t, index, kind, values, *n));
  return values;
}

/* Weights and moments of both are the same bits. */
__attribute__((unused)) static void assert_same_tensors(moe_trainer *a, moe_trainer *b) {
  static const int32_t kind[] = {MOE_TENSOR_WEIGHT, MOE_TENSOR_EXP_AVG, MOE_TENSOR_EXP_AVG_SQ};
  assert_int_equal(moe_trainer_param_count(a), moe_trainer_param_count(b));
  for (int64_t i = 0; i < moe_trainer_param_count(a); i++) {
    moe_param_info info = {.size = sizeof info};
    OK(moe_trainer_param_info(a, i, &info));
    for (int k = 0; k < (is_buffer(&info) ? 1 : 3); k++) {
      int64_t n, m;
      float *x = values_of(a, i, kind[k], &n), *y = values_of(b, i, kind[k], &m);
      assert_int_equal(n, m);
      if (memcmp(x, y, (size_t)n * sizeof *x) != 0) fail_msg("%s, kind %d", info.name, kind[k]);
      free(x);
      free(y);
    }
  }
}

#endif
