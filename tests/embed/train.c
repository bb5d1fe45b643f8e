/* A host program: plain C99, the installed library, two models in one process, each in a context of
 * its own. Both learn to count; their losses must fall, and equal seeds give equal losses. */
#include <moelua/moelua.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQ = 16, BATCH = 4, VOCAB = 32, STEPS = 40 };

static void die(moe_ctx *ctx, const char *what) {
  fprintf(stderr, "%s: %s\n", what, moe_ctx_error(ctx));
  exit(1);
}

static moe_trainer *make(moe_ctx *ctx, int32_t experts) {
  moe_block_config block;
  moe_train_config config;
  moe_trainer *trainer;
  moe_block_config_init(&block);
  block.heads = 2;
  block.kv_heads = 1;
  block.head_dim = 16;
  block.ffn_kind = MOE_FFN_MOE;
  block.ffn = 32;
  block.experts = experts;
  block.topk = 2;
  block.renormalise = 1;
  block.aux_coef = 0.01;
  moe_train_config_init(&config);
  config.model.vocab = VOCAB;
  config.model.hidden = 32;
  config.model.max_positions = SEQ;
  config.model.n_blocks = 1;
  config.model.blocks = &block;
  config.seq = SEQ;
  config.micro_batch = 2;
  config.global_batch = BATCH;
  config.optimizer.lr.peak = 1e-2;
  config.optimizer.lr.total = STEPS;
  config.seed = 7;
  if (moe_trainer_create(ctx, &config, &trainer) != MOE_OK) die(ctx, "create");
  return trainer;
}

static double step(moe_ctx *ctx, moe_trainer *trainer, int i) {
  int32_t tokens[BATCH * SEQ], labels[BATCH * SEQ];
  moe_step_metrics metrics;
  int j;
  for (j = 0; j < BATCH * SEQ; j++) {
    tokens[j] = (i + j) % VOCAB;
    labels[j] = (i + j + 1) % VOCAB;
  }
  metrics.size = sizeof metrics;
  if (moe_trainer_step(trainer, tokens, labels, &metrics) != MOE_OK) die(ctx, "step");
  return metrics.loss;
}

int main(void) {
  moe_ctx_options options;
  moe_ctx *a, *b;
  moe_trainer *first, *second;
  double start = 0, end = 0;
  int i;
  moe_ctx_options_init(&options);
  options.threads = 2;
  if (moe_ctx_create(&options, &a) != MOE_OK) return 1;
  options.threads = 1;
  if (moe_ctx_create(&options, &b) != MOE_OK) return 1;
  first = make(a, 4);
  second = make(b, 4);
  for (i = 0; i < STEPS; i++) {
    double x = step(a, first, i), y = step(b, second, i);
    if (x != y) {
      fprintf(stderr, "step %d: %a with two threads, %a with one\n", i, x, y);
      return 1;
    }
    if (i == 0) start = x;
    end = x;
  }
  printf("moelua %s: loss %.4f to %.4f\n", moe_version(), start, end);
  moe_trainer_destroy(first);
  moe_trainer_destroy(second);
  moe_ctx_destroy(a);
  moe_ctx_destroy(b);
  return end < 0.5 * start ? 0 : 1;
}
