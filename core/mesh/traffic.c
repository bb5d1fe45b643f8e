/* The world's counts of transfers as a host reads them. */
#include "base/ctx.h"
#include "mesh/groups.h"

/* The kinds of groups that a layout names, and the one that is there without a layout. */
enum { JOB = MOE_GROUPS, KINDS };

int32_t moe_traffic_groups(void) { return KINDS; }
int32_t moe_traffic_ops(void) { return MOE_COMM_OPS; }

const char *moe_traffic_group_name(int32_t group) {
  if (group < 0 || group >= KINDS) return NULL;
  return group == JOB ? "job" : moe_group_name((enum moe_group_kind)group);
}

const char *moe_traffic_op_name(int32_t op) {
  return op < 0 || op >= MOE_COMM_OPS ? NULL : moe_comm_op_name((enum moe_comm_op)op);
}

moe_status moe_traffic_check(moe_ctx *ctx, int32_t n) {
  if (n == KINDS * MOE_COMM_OPS) return MOE_OK;
  return moe_fail(ctx, MOE_INVALID, "traffic: %d entries; %d groups of %d operations have %d", n,
                  KINDS, MOE_COMM_OPS, KINDS * MOE_COMM_OPS);
}

moe_status moe_ctx_traffic(moe_ctx *ctx, int64_t *calls, int64_t *bytes, int32_t n) {
  struct moe_world *world;
  MOE_TRY(moe_traffic_check(ctx, n));
  MOE_TRY(moe_ctx_world(ctx, &world));
  for (int32_t i = 0; i < n; i++) {
    int32_t kind = i / MOE_COMM_OPS, tag = kind == JOB ? MOE_COMM_TAGS - 1 : kind;
    const struct moe_count *count = &world->count[tag][i % MOE_COMM_OPS];
    if (calls) calls[i] = count->calls;
    if (bytes) bytes[i] = count->bytes;
  }
  return MOE_OK;
}
