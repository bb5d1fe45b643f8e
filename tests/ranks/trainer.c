/* Errors and checkpoints of a trainer over all ranks. */
#include "equal.h"
#include "train/trainer.h"

/* A bad token on one rank is an error on all, and the next step works. */
static void agree(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  equal_init(&s, "");
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  int32_t last = moe_ctx_ranks(ctx) - 1, good = s.tokens[3];
  if (moe_ctx_rank(ctx) == last) s.tokens[3] = EQUAL_VOCAB;
  CHECK(moe_trainer_step(t, s.tokens, s.labels, &m) == MOE_INVALID);
  CHECK(strstr(moe_ctx_error(ctx), "token 3 is 43") != NULL);
  s.tokens[3] = good;
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &m));
  CHECK(m.step == 1);
  moe_trainer_destroy(t);
}

/* All values of a kind that this rank can read: their sum of squares, weighted by place. */
static double print_of(moe_ctx *ctx, moe_trainer *t, int32_t kind) {
  static float values[1 << 14];
  double sum = 0;
  for (int64_t i = 0; i < moe_trainer_param_count(t); i++) {
    moe_param_info info = {.size = sizeof info};
    int64_t n = 1;
    MUST(ctx, moe_trainer_param_info(t, i, &info));
    for (int d = 0; d < info.dims; d++) n *= info.count[d];
    CHECK(n <= (int64_t)MOE_COUNTOF(values));
    if (moe_trainer_param_read(t, i, kind, values, n) != MOE_OK) continue;
    for (int64_t e = 0; e < n; e++) sum += (double)(e + i + 1) * values[e] * values[e];
  }
  return sum;
}

/* One process goes on from what all ranks saved. */
static void one_process(moe_ctx *ctx, struct equal_setup *s, const char *dir,
                        const moe_step_metrics *want) {
  moe_ctx *alone;
  moe_ctx_options options;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  moe_ctx_options_init(&options);
  options.threads = 1;
  MUST(ctx, moe_ctx_create(&options, &alone));
  s->config.layout = (moe_layout_config){.size = sizeof s->config.layout};
  MUST(alone, moe_trainer_create(alone, &s->config, &t));
  MUST(alone, moe_trainer_load(t, dir));
  for (int i = 0; i < 2; i++) MUST(alone, moe_trainer_step(t, s->tokens, s->labels, &m));
  equal_metrics("one process", &m, want);
  moe_trainer_destroy(t);
  moe_ctx_destroy(alone);
}

/* All ranks save to and load from one folder, into another trainer; a step after loading equals the
 * one without, to the bit. words: as in equal.c. */
static void resume(moe_ctx *ctx, const char *words) {
  struct equal_setup s;
  moe_trainer *t, *fresh;
  moe_step_metrics straight = {.size = sizeof straight}, resumed = straight;
  char dir[] = "/tmp/moelua-ranks-XXXXXX", command[64];
  struct moe_world *world;
  struct moe_groups groups;
  struct moe_layout layout;
  equal_init(&s, words);
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &s.config.layout, world->size, &layout));
  MUST(ctx, moe_groups_create(world, &layout, &groups));
  if (world->rank == 0) CHECK(mkdtemp(dir) != NULL);
  MUST(ctx, moe_broadcast(groups.of[MOE_GROUP_WORLD], NULL, dir, sizeof dir, MOE_U8, 0, NULL));
  int64_t first = equal_share(ctx, &s);
  const int32_t *tokens = s.tokens + first, *labels = s.labels + first;
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  for (int i = 0; i < 3; i++) MUST(ctx, moe_trainer_step(t, tokens, labels, &straight));
  MUST(ctx, moe_trainer_save(t, dir, 0, NULL));
  for (int i = 0; i < 2; i++) MUST(ctx, moe_trainer_step(t, tokens, labels, &straight));
  s.config.seed++;
  MUST(ctx, moe_trainer_create(ctx, &s.config, &fresh));
  MUST(ctx, moe_trainer_load(fresh, dir));
  for (int i = 0; i < 2; i++) MUST(ctx, moe_trainer_step(fresh, tokens, labels, &resumed));
  CHECK(straight.loss == resumed.loss && straight.grad_norm == resumed.grad_norm);
  for (int32_t kind = 0; kind <= MOE_TENSOR_EXP_AVG_SQ; kind++)
    CHECK(print_of(ctx, t, kind) == print_of(ctx, fresh, kind));
  moe_trainer_destroy(fresh);
  one_process(ctx, &s, dir, &resumed);
  CHECK(moe_trainer_load(t, "/nonexistent") != MOE_OK);
  moe_trainer_destroy(t);
  snprintf(command, sizeof command, "rm -rf %s", dir);
  if (world->rank == 0) CHECK(system(command) == 0);
}

/* Ranks of one tp-cp group must be given one batch; the others' may differ. */
static void one_batch_a_share(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  if (moe_ctx_ranks(ctx) < 4) return;
  for (int tp = 0; tp < 2; tp++) {
    equal_init(&s, tp ? "tp=2 etp=1" : "cp=2");
    MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
    int64_t first = equal_share(ctx, &s), from, count;
    moe_trainer_share(t, &from, &count);
    CHECK(from * EQUAL_SEQ == first && count == 2 * EQUAL_BATCH / moe_ctx_ranks(ctx));
    MUST(ctx, moe_trainer_step(t, s.tokens + first, s.labels + first, &m));
    if (moe_ctx_rank(ctx) == 1) s.labels[first + 5] ^= 1;
    CHECK(moe_trainer_step(t, s.tokens + first, s.labels + first, &m) == MOE_INVALID);
    CHECK(strstr(moe_ctx_error(ctx), "different batches") != NULL);
    moe_trainer_destroy(t);
  }
}

/* The planner's optimizer state is what the first rank keeps, and a part of the whole. */
static void planned(moe_ctx *ctx, const char *words) {
  struct equal_setup s;
  moe_trainer *t;
  moe_memory_report report = {.size = sizeof report};
  uint64_t held = 0, whole = 0;
  equal_init(&s, words);
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  for (int f = 0; f < MOE_FAMILIES; f++) {
    held += 2 * sizeof(float) * (uint64_t)t->optim.buckets.moments[f];
    whole += 2 * sizeof(float) * (uint64_t)t->model->params.pack[f].elements;
  }
  s.config.layout.dp = moe_ctx_ranks(ctx);
  MUST(ctx, moe_plan_memory(ctx, &s.config, &report));
  if (moe_ctx_rank(ctx) == 0) CHECK(report.optimizer == held);
  CHECK(s.config.optimizer.shard && moe_ctx_ranks(ctx) > 1 ? held < whole : held == whole);
  moe_trainer_destroy(t);
}

/* All tokens to experts 0 and 1: other ranks get no rows, and their experts gradients of zeros. */
static void skew(moe_ctx *ctx, moe_dispatch_kind kind) {
  enum { MOST = 1 << 14 };
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  static float grad[MOST];
  const float bias[8] = {10, 10, 0, 0, 0, 0, 0, 0};
  equal_init(&s, "qwen=1");
  s.config.layout.ep = moe_ctx_ranks(ctx);
  s.config.dispatch.kind = kind;
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  for (int64_t i = 0; i < moe_trainer_param_count(t); i++) {
    moe_param_info info = {.size = sizeof info};
    MUST(ctx, moe_trainer_param_info(t, i, &info));
    if (strstr(info.name, "router_bias"))
      MUST(ctx, moe_trainer_param_write(t, i, MOE_TENSOR_WEIGHT, bias, 8));
  }
  const int64_t first = equal_share(ctx, &s);
  MUST(ctx, moe_trainer_gradients(t, s.tokens + first, s.labels + first, &m));
  CHECK(m.load_max == 4 && m.dropped == 0);
  CHECK(m.routed == (int64_t)s.config.model.n_blocks * EQUAL_TOKENS * 2);
  for (int64_t i = 0; i < moe_trainer_param_count(t); i++) {
    moe_param_info info = {.size = sizeof info};
    int64_t n = 1;
    double sum = 0;
    MUST(ctx, moe_trainer_param_info(t, i, &info));
    if (!info.expert) continue;
    for (int d = 0; d < info.dims; d++) n *= info.count[d];
    CHECK(n <= MOST);
    MUST(ctx, moe_trainer_param_read(t, i, MOE_TENSOR_GRAD, grad, n));
    int64_t each = n / info.count[0];
    for (int64_t j = 0; j < n; j++)
      if (info.start[0] + j / each >= 2)
        CHECK(grad[j] == 0);
      else
        sum += grad[j] * grad[j];
    CHECK(info.start[0] >= 2 || sum > 0);
  }
  moe_trainer_destroy(t);
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  agree(ctx);
  one_batch_a_share(ctx);
  planned(ctx, "");
  planned(ctx, "shard=1");
  resume(ctx, "");
  resume(ctx, "shard=1 qwen=1 scope=2");
  if (moe_ctx_ranks(ctx) >= 2) resume(ctx, "tp=2 etp=1 qwen=1 shard=1");
  if (moe_ctx_ranks(ctx) >= 4) resume(ctx, "tp=4 etp=1 qwen=1"); /* kv heads are copied */
  skew(ctx, MOE_DISPATCH_ALLTOALL);
  skew(ctx, MOE_DISPATCH_ALLGATHER);
  return ranks_close(ctx);
}
