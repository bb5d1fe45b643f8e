/* Ranks that wait in vain, in several ways: the call fails, with a text that one of them prints;
 * what follows fails at once, and the context can be destroyed. hang.sh reads what is printed. */
#include <signal.h>
#include <time.h>

#include "ranks.h"

static void never(void) {
  const struct timespec long_time = {.tv_sec = 1000};
  nanosleep(&long_time, NULL); /* the launcher ends it with the job */
  exit(3);
}

static moe_status sum(const struct moe_groups *g, enum moe_group_kind kind) {
  float x[4] = {0};
  return moe_all_reduce(g->of[kind], NULL, x, 4, MOE_F32, MOE_SUM, NULL);
}

/* tp = 2 and dp = 2: the last rank's neighbours are 2 (in tp) and 1 (in dp). */
static moe_status hang(moe_ctx *ctx, const struct moe_groups *g, const char *how) {
  int32_t me = moe_ctx_rank(ctx), x = 0;
  MUST(ctx, sum(g, MOE_GROUP_WORLD));
  if (!strcmp(how, "absent")) {
    if (me == 3) never();
    return sum(g, MOE_GROUP_WORLD);
  }
  if (!strcmp(how, "chain")) { /* 0 waits for 1, which waits for 3 */
    if (me == 3) never();
    if (me % 2) MOE_TRY(sum(g, MOE_GROUP_DP));
    return sum(g, MOE_GROUP_TP);
  }
  if (!strcmp(how, "message")) {
    if (me == 3) never();
    if (me == 2) return moe_recv(g->of[MOE_GROUP_TP], NULL, &x, 1, MOE_I32, 1, NULL);
    return sum(g, MOE_GROUP_WORLD);
  }
  if (!strcmp(how, "late")) { /* all have begun it, one does not go on */
    struct moe_request request;
    float big[5000] = {0};
    MUST(ctx, moe_all_reduce(g->of[MOE_GROUP_WORLD], NULL, big, 5000, MOE_F32, MOE_SUM, &request));
    if (me == 3) never();
    return moe_comm_wait(NULL, &request);
  }
  if (!strcmp(how, "dead")) {
    if (me == 3) {
      fprintf(stderr, "rank 3 ends itself\n");
      raise(SIGKILL);
    }
    return sum(g, MOE_GROUP_WORLD);
  }
  /* circle: 0 waits for 1, for 3, for 2, for 0 */
  return sum(g, me == 0 || me == 3 ? MOE_GROUP_TP : MOE_GROUP_DP);
}

int main(int argc, char **argv) {
  moe_ctx *ctx = ranks_open();
  struct moe_world *world;
  struct moe_groups groups;
  struct moe_layout layout;
  moe_layout_config config = {.tp = 2};
  if (argc != 2) return 2;
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &config, world->size, &layout));
  MUST(ctx, moe_groups_create(world, &layout, &groups));
  moe_ctx_comm_timeout(ctx, strcmp(argv[1], "dead") ? 1 : 100);
  if (hang(ctx, &groups, argv[1]) != MOE_COMM) return 4;
  moe_tells tells = moe_ctx_tells(ctx);
  if (tells != MOE_TELLS_NOT) fprintf(stderr, "told: %s\n", moe_ctx_error(ctx));
  if (sum(&groups, MOE_GROUP_WORLD) != MOE_COMM || moe_ctx_tells(ctx) != tells) return 5;
  moe_ctx_destroy(ctx);
  const struct timespec until_told = {.tv_sec = 2};
  if (tells == MOE_TELLS_NOT) nanosleep(&until_told, NULL);
  return 1;
}
