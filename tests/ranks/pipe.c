/* What a pipeline owes beside the right numbers: tied weights equal to the bit on both ends, memory
 * as planned, a steady loop that allocates nothing, errors on all stages, and no more micro-batches
 * kept than the schedule says. */
#include "equal.h"
#include "train/trainer.h"

static void setup(moe_ctx *ctx, struct equal_setup *s, const char *words) {
  char text[256];
  snprintf(text, sizeof text, "pp=%d blocks=8 stages=%s %s", moe_ctx_ranks(ctx),
           moe_ctx_ranks(ctx) == 3   ? "3,2,3"
           : moe_ctx_ranks(ctx) == 2 ? "4,4"
                                     : "2,2,2,2",
           words);
  equal_init(s, text);
}

/* This rank's weight against the first stage's. */
static void same_as_first(moe_ctx *ctx, moe_trainer *t, const char *name) {
  static float mine[EQUAL_VOCAB * 24], first[EQUAL_VOCAB * 24];
  int64_t index, n = EQUAL_VOCAB * 24;
  struct moe_group all = t->groups.of[MOE_GROUP_WORLD];
  bool here = t->model->has_embed || t->model->has_head;
  if (here) {
    MUST(ctx, moe_trainer_param_find(t, name, &index));
    MUST(ctx, moe_trainer_param_read(t, index, MOE_TENSOR_WEIGHT, mine, n));
  }
  memcpy(first, mine, sizeof first);
  MUST(ctx, moe_broadcast(all, t->stream, first, n, MOE_F32, 0, NULL));
  if (here) CHECK(!memcmp(first, mine, sizeof first));
}

static void tied(moe_ctx *ctx, const char *words) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  setup(ctx, &s, words);
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  same_as_first(ctx, t, "embed");
  for (int i = 0; i < 3; i++) MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &m));
  same_as_first(ctx, t, "embed");
  moe_trainer_destroy(t);
}

/* After the second step everything that may grow has grown. */
static void steady(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  setup(ctx, &s, "");
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  uint64_t count = 0;
  for (int i = 0; i < 6; i++) {
    if (i == 3) count = moe_ctx_alloc_count(ctx);
    MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &m));
  }
  CHECK(moe_ctx_alloc_count(ctx) == count);
  moe_trainer_destroy(t);
}

/* The fullest stage has what the planner says, and slots are as many as the formula has live. */
static void planned(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_memory_report r = {.size = sizeof r};
  setup(ctx, &s, "");
  MUST(ctx, moe_plan_memory(ctx, &s.config, &r));
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  int32_t pp = moe_ctx_ranks(ctx), rank = moe_ctx_rank(ctx), live = pp - rank;
  CHECK(t->pipe.slots == (live < EQUAL_BATCH ? live : EQUAL_BATCH));
  struct moe_group all = t->groups.of[MOE_GROUP_WORLD];
  uint64_t bytes = moe_ctx_alloc_bytes(ctx);
  moe_trainer_destroy(t);
  int64_t most = (int64_t)(bytes - moe_ctx_alloc_bytes(ctx));
  MUST(ctx, moe_all_reduce(all, NULL, &most, 1, MOE_I64, MOE_MAX, NULL));
  const int64_t workspace = (int64_t)ranks_threads() * (4 << 20); /* of the stream */
  CHECK(most - workspace >= (int64_t)r.total && most - workspace < (int64_t)r.total + (96 << 10));
}

/* A bad token on the middle or the last stage is an error on all; the next step works. */
static void agree(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  setup(ctx, &s, "");
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  int32_t good = s.tokens[3];
  if (moe_ctx_rank(ctx) == 1) s.tokens[3] = EQUAL_VOCAB;
  CHECK(moe_trainer_step(t, s.tokens, s.labels, &m) == MOE_INVALID);
  CHECK(strstr(moe_ctx_error(ctx), "token 3 is 43") != NULL);
  s.tokens[3] = good;
  MUST(ctx, moe_trainer_step(t, s.tokens, s.labels, &m));
  CHECK(m.step == 1);
  moe_trainer_destroy(t);
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  tied(ctx, "tied=1");
  tied(ctx, "tied=1 scope=2");
  steady(ctx);
  planned(ctx);
  agree(ctx);
  return ranks_close(ctx);
}
