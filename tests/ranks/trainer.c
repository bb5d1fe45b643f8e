/* Errors and checkpoints of a trainer over all ranks. */
#include "equal.h"

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

/* All ranks save to and load from one folder; a step after loading equals the one without. */
static void resume(moe_ctx *ctx) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics straight = {.size = sizeof straight}, resumed = straight;
  char dir[] = "/tmp/moelua-ranks-XXXXXX", command[64];
  struct moe_world *world;
  struct moe_groups groups;
  struct moe_layout layout;
  equal_init(&s, "");
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
  moe_ctx *ctx = ranks_open();
  agree(ctx);
  resume(ctx);
  return ranks_close(ctx);
}
