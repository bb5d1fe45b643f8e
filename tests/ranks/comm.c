/* Every operation of the comm table, on all ranks. */
#include "ranks.h"

static struct moe_group everyone(moe_ctx *ctx) {
  struct moe_world *world;
  struct moe_comm *all;
  int32_t ranks[64];
  MUST(ctx, moe_ctx_world(ctx, &world));
  for (int32_t i = 0; i < world->size; i++) ranks[i] = i;
  MUST(ctx, moe_comm_get(world, ranks, world->size, &all));
  return (struct moe_group){all, 0};
}

static void reduce(moe_ctx *ctx, struct moe_group g) {
  int32_t n = moe_group_size(g);
  float x[3] = {1, (float)moe_group_rank(g), 2};
  MUST(ctx, moe_all_reduce(g, NULL, x, 3, MOE_F32, MOE_SUM, NULL));
  CHECK(x[0] == (float)n && x[1] == (float)(n * (n - 1) / 2) && x[2] == (float)(2 * n));
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  struct moe_group g = everyone(ctx);
  reduce(ctx, g);
  return ranks_close(ctx);
}
