/* Everything a training step may do, small enough for valgrind: three blocks that between them use
 * every switch, fp32 and bf16, a step, the loss of other data, logits. valgrind_step ISA. */
#include <stdio.h>
#include <stdlib.h>

#include "moelua/moelua.h"

enum { SEQ = 11, BATCH = 4, VOCAB = 37, N = SEQ * BATCH, BLOCKS = 3 };

static void ok(moe_ctx *ctx, moe_status status, const char *what) {
  if (status == MOE_OK) return;
  fprintf(stderr, "%s: %s\n", what, moe_ctx_error(ctx));
  exit(1);
}

static void set_blocks(moe_block_config *block) {
  for (int i = 0; i < BLOCKS; i++) {
    moe_block_config *b = &block[i];
    moe_block_config_init(b);
    b->heads = 4;
    b->kv_heads = 2;
    b->head_dim = 6;
    b->ffn = 20;
    b->qk_norm = i; /* none, head, all */
    if (i == 0) continue;
    b->ffn_kind = MOE_FFN_MOE;
    b->experts = 6;
    b->topk = 2;
    b->aux_coef = 0.01;
    b->z_coef = 0.001;
  }
  block[0].ffn_kind = MOE_FFN_DENSE;
  block[0].qkv_bias = 1;
  block[0].recompute = MOE_RECOMPUTE_BLOCK;
  block[1].window = 5;
  block[1].shared_ffn = 12;
  block[1].shared_gate = 1;
  block[1].renormalise = 1;
  block[1].recompute = MOE_RECOMPUTE_FFN;
  block[2].score = MOE_SCORE_SIGMOID;
  block[2].renormalise = 1;
  block[2].expert_bias = 1;
  block[2].bias_rate = 0.001;
  block[2].groups = 3;
  block[2].topk_groups = 2;
  block[2].aux_scope = MOE_AUX_SEQUENCE;
}

/* capacity: dispatch.capacity_factor; it decides which of the dispatch paths runs. */
static void run(moe_ctx *ctx, moe_dtype dtype, double capacity) {
  moe_block_config block[BLOCKS];
  moe_train_config config;
  moe_trainer *trainer;
  int32_t tokens[N], labels[N];
  set_blocks(block);
  moe_train_config_init(&config);
  config.model.vocab = VOCAB;
  config.model.hidden = 24;
  config.model.max_positions = SEQ;
  config.model.n_blocks = BLOCKS;
  config.model.blocks = block;
  config.model.tie_embeddings = capacity > 0;
  config.dispatch.capacity_factor = capacity;
  config.dispatch.pad = capacity > 0;
  config.dtype = dtype;
  config.seq = SEQ;
  config.micro_batch = 2;
  config.global_batch = BATCH;
  for (int i = 0; i < N; i++) {
    tokens[i] = i * 7 % VOCAB;
    labels[i] = i % 5 == 3 ? -1 : (i + 1) * 7 % VOCAB;
  }
  ok(ctx, moe_trainer_create(ctx, &config, &trainer), "create");
  for (int i = 0; i < 2; i++) { /* the second finds used memory */
    moe_step_metrics m = {.size = sizeof m};
    ok(ctx, moe_trainer_step(trainer, tokens, labels, &m), "step");
    printf("%s dtype %d: loss %.4f, gradient %.4f\n", moe_ctx_isa(ctx), (int)dtype, m.loss,
           m.grad_norm);
  }
  double sum;
  int64_t counted;
  ok(ctx, moe_trainer_eval(trainer, tokens, labels, 3, &sum, &counted), "eval");
  float logits[VOCAB * 5];
  ok(ctx, moe_trainer_logits(trainer, tokens, 5, 1, logits), "logits");
  double total = 0;
  for (int i = 0; i < VOCAB * 5; i++) total += (double)logits[i];
  printf("eval %.4f, logits %.4f\n", sum / (double)counted, total); /* valgrind looks at both */
  moe_trainer_destroy(trainer);
}

int main(int argc, char **argv) {
  moe_ctx_options options;
  moe_ctx *ctx;
  moe_ctx_options_init(&options);
  options.threads = 2;
  options.isa = argc > 1 ? argv[1] : "generic";
  if (moe_ctx_create(&options, &ctx) != MOE_OK) return 1;
  run(ctx, MOE_F32, 0);
  run(ctx, MOE_BF16, 0);
  run(ctx, MOE_BF16, 1.25);
  moe_ctx_destroy(ctx);
  return 0;
}
