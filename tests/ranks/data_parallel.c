/* dp = ranks against one process: losses, norms, weights of ten steps; one rank's labels masked. */
#include <math.h>

#include "base/rng.h"
#include "ranks.h"

enum { SEQ = 16, BATCH = 8, VOCAB = 40, N = SEQ * BATCH, STEPS = 10 };

struct setup {
  moe_block_config block[2];
  moe_train_config config;
  int32_t tokens[N], labels[N];
};

static void init(struct setup *s, moe_aux_scope scope, double capacity) {
  memset(s, 0, sizeof *s);
  for (int i = 0; i < 2; i++) {
    moe_block_config *b = &s->block[i];
    moe_block_config_init(b);
    b->heads = 4, b->kv_heads = 2, b->head_dim = 6;
    b->ffn = 20, b->experts = 6, b->topk = 2;
    b->score = i ? MOE_SCORE_SIGMOID : MOE_SCORE_SOFTMAX;
    b->expert_bias = i, b->bias_rate = 0.01;
    b->renormalise = 1;
    b->aux_coef = 0.02, b->aux_scope = (int32_t)scope, b->z_coef = 0.01;
    b->shared_ffn = 12, b->shared_gate = 1;
  }
  moe_train_config_init(&s->config);
  s->config.model.vocab = VOCAB, s->config.model.hidden = 24;
  s->config.model.max_positions = SEQ;
  s->config.model.n_blocks = 2, s->config.model.blocks = s->block;
  s->config.model.init_std = 0.3;
  s->config.seq = SEQ, s->config.micro_batch = 1, s->config.global_batch = BATCH;
  s->config.seed = 5;
  s->config.optimizer.shard = 0, s->config.optimizer.clip = 0.5;
  s->config.dispatch.capacity_factor = capacity;
  struct moe_rng_key key = moe_rng_key(1, "batch");
  for (int i = 0; i < N; i++) {
    s->tokens[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i) % VOCAB);
    s->labels[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i + N) % VOCAB);
    if (i % 7 == 3 || i < SEQ) s->labels[i] = -1; /* the first sequence has nothing to learn */
  }
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

static void same_metrics(const moe_step_metrics *a, const moe_step_metrics *b) {
  CHECK(near(a->loss, b->loss));
  CHECK(near(a->grad_norm, b->grad_norm));
  CHECK(near(a->aux_loss, b->aux_loss));
  CHECK(near(a->z_loss, b->z_loss));
  CHECK(near(a->load_max, b->load_max));
  CHECK(a->loss_tokens == b->loss_tokens && a->tokens == b->tokens);
  CHECK(a->routed == b->routed && a->dropped == b->dropped);
}

/* Largest difference of a tensor over its largest value. */
static double distance(moe_ctx *ctx, moe_trainer *one, moe_trainer *many, int64_t index) {
  moe_param_info info = {.size = sizeof info};
  static float a[1 << 14], b[1 << 14];
  int64_t n = 1;
  double most = 1e-30, far = 0;
  MUST(ctx, moe_trainer_param_info(many, index, &info));
  for (int d = 0; d < info.dims; d++) n *= info.count[d];
  CHECK(n <= 1 << 14);
  MUST(ctx, moe_trainer_param_read(one, index, MOE_TENSOR_WEIGHT, a, n));
  MUST(ctx, moe_trainer_param_read(many, index, MOE_TENSOR_WEIGHT, b, n));
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)a[i]));
    far = fmax(far, fabs((double)a[i] - (double)b[i]));
  }
  return far / most;
}

static void compare(moe_ctx *ctx, moe_ctx *alone, moe_aux_scope scope, double capacity) {
  struct setup s;
  moe_trainer *one, *many;
  init(&s, scope, capacity);
  MUST(alone, moe_trainer_create(alone, &s.config, &one));
  MUST(ctx, moe_trainer_create(ctx, &s.config, &many));
  int32_t share = N / moe_ctx_ranks(ctx), first = share * moe_ctx_rank(ctx);
  for (int step = 0; step < STEPS; step++) {
    moe_step_metrics a = {.size = sizeof a}, b = {.size = sizeof b};
    MUST(alone, moe_trainer_step(one, s.tokens, s.labels, &a));
    MUST(ctx, moe_trainer_step(many, s.tokens + first, s.labels + first, &b));
    same_metrics(&a, &b);
  }
  for (int64_t i = 0; i < moe_trainer_param_count(one); i++)
    CHECK(distance(ctx, one, many, i) < 1e-5);
  moe_trainer_destroy(one);
  moe_trainer_destroy(many);
}

/* A bad token on one rank is an error on all, and the next step works. */
static void agree(moe_ctx *ctx) {
  struct setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  init(&s, MOE_AUX_MICRO_BATCH, 0);
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  int32_t last = moe_ctx_ranks(ctx) - 1, good = s.tokens[3];
  if (moe_ctx_rank(ctx) == last) s.tokens[3] = VOCAB;
  CHECK(moe_trainer_step(t, s.tokens, s.labels, &m) == MOE_INVALID);
  CHECK(strstr(moe_ctx_error(ctx), "token 3 is 40") != NULL);
  s.tokens[3] = good;
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &m));
  CHECK(m.step == 1);
  moe_trainer_destroy(t);
}

/* All ranks save to and load from one folder; a step after loading equals the one without. */
static void resume(moe_ctx *ctx) {
  struct setup s;
  moe_trainer *t;
  moe_step_metrics straight = {.size = sizeof straight}, resumed = straight;
  char dir[] = "/tmp/moelua-ranks-XXXXXX", command[64];
  struct moe_world *world;
  struct moe_groups groups;
  struct moe_layout layout;
  init(&s, MOE_AUX_MICRO_BATCH, 0);
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &s.config.layout, world->size, &layout));
  MUST(ctx, moe_groups_create(world, &layout, &groups));
  if (world->rank == 0) CHECK(mkdtemp(dir) != NULL);
  MUST(ctx, moe_broadcast(groups.of[MOE_GROUP_WORLD], NULL, dir, sizeof dir, MOE_U8, 0, NULL));
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &straight));
  MUST(ctx, moe_trainer_save(t, dir, 0, NULL));
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &straight));
  MUST(ctx, moe_trainer_load(t, dir));
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &resumed));
  CHECK(straight.loss == resumed.loss && straight.grad_norm == resumed.grad_norm);
  CHECK(moe_trainer_load(t, "/nonexistent") != MOE_OK);
  moe_trainer_destroy(t);
  snprintf(command, sizeof command, "rm -rf %s", dir);
  if (world->rank == 0) CHECK(system(command) == 0);
}

int main(void) {
  moe_ctx *ctx = ranks_open(), *alone;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  if (moe_ctx_create(&options, &alone) != MOE_OK) return 1;
  compare(ctx, alone, MOE_AUX_MICRO_BATCH, 0);
  compare(ctx, alone, MOE_AUX_SEQUENCE, 1.0);
  compare(ctx, alone, MOE_AUX_GLOBAL, 0);
  agree(ctx);
  resume(ctx);
  moe_ctx_destroy(alone);
  return ranks_close(ctx);
}
