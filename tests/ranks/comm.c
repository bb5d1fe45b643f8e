/* Every operation of the comm table, on all ranks, with sizes that differ and may be 0. */
#include "ranks.h"

enum { MOST = 8, ROOM = 256 };

static struct moe_group everyone(moe_ctx *ctx) {
  struct moe_world *world;
  struct moe_comm *all;
  int32_t ranks[MOST];
  MUST(ctx, moe_ctx_world(ctx, &world));
  for (int32_t i = 0; i < world->size; i++) ranks[i] = i;
  MUST(ctx, moe_comm_get(world, ranks, world->size, &all));
  return (struct moe_group){all, 0};
}

/* Elements that `from` has for `to`: 0 .. 4. */
static int64_t amount(int32_t from, int32_t to) { return (3 * from + 2 * to) % 5; }
static float value(int32_t from, int32_t to, int64_t i) {
  return (float)(1000 * from + 100 * to + i);
}

static void reduce(moe_ctx *ctx, struct moe_group g) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  float x[3] = {1, (float)me, 2};
  MUST(ctx, moe_all_reduce(g, NULL, x, 3, MOE_F32, MOE_SUM, NULL));
  CHECK(x[0] == (float)n && x[1] == (float)(n * (n - 1) / 2) && x[2] == (float)(2 * n));
  int64_t most = me;
  MUST(ctx, moe_all_reduce(g, NULL, &most, 1, MOE_I64, MOE_MAX, NULL));
  CHECK(most == n - 1);
}

/* Member m has amount(m, 0) elements. */
static void gather_and_scatter(moe_ctx *ctx, struct moe_group g, bool in_place) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  int64_t count[MOST] = {0}, offset[MOST] = {0}, total = 0;
  float mine[4] = {0}, all[ROOM], back[4] = {0};
  for (int32_t m = 0; m < n; m++) {
    count[m] = amount(m, 0);
    offset[m] = total;
    total += count[m] + 1; /* a gap that nobody touches */
  }
  for (int i = 0; i < ROOM; i++) all[i] = -1;
  float *send = in_place ? all + offset[me] : mine;
  for (int64_t i = 0; i < count[me]; i++) send[i] = value(me, 0, i);
  MUST(ctx, moe_all_gather_v(g, NULL, send, all, count, offset, MOE_F32, NULL));
  for (int32_t m = 0; m < n; m++) {
    for (int64_t i = 0; i < count[m]; i++) CHECK(all[offset[m] + i] == value(m, 0, i));
    CHECK(all[offset[m] + count[m]] == -1);
  }
  /* All hold the same now: the sum is n times it. */
  float *recv = in_place ? all + offset[me] : back;
  MUST(ctx, moe_reduce_scatter_v(g, NULL, all, recv, count, offset, MOE_F32, NULL));
  for (int64_t i = 0; i < count[me]; i++) CHECK(recv[i] == (float)n * value(me, 0, i));
}

static void exchange(moe_ctx *ctx, struct moe_group g) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  int64_t out[MOST] = {0}, out_at[MOST] = {0}, in[MOST] = {0}, in_at[MOST] = {0};
  int64_t sent = 0, got = 0;
  float send[ROOM] = {0}, recv[ROOM];
  for (int32_t m = 0; m < n; m++) {
    out[m] = amount(me, m), out_at[m] = sent, sent += out[m];
    in[m] = amount(m, me), in_at[m] = got, got += in[m];
    for (int64_t i = 0; i < out[m]; i++) send[out_at[m] + i] = value(me, m, i);
  }
  MUST(ctx, moe_all_to_all_v(g, NULL, send, out, out_at, recv, in, in_at, MOE_F32, NULL));
  for (int32_t m = 0; m < n; m++)
    for (int64_t i = 0; i < in[m]; i++) CHECK(recv[in_at[m] + i] == value(m, me, i));
}

static void broadcast(moe_ctx *ctx, struct moe_group g) {
  for (int32_t root = 0; root < moe_group_size(g); root++) {
    int32_t x = moe_group_rank(g) == root ? 7 + root : -1;
    MUST(ctx, moe_broadcast(g, NULL, &x, 1, MOE_I32, root, NULL));
    CHECK(x == 7 + root);
  }
}

/* Around the ring; even ranks send first. */
static void pass_on(moe_ctx *ctx, struct moe_group g) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  int32_t to = (me + 1) % n, from = (me + n - 1) % n, x = -1;
  if (n == 1) return;
  if (me % 2 == 0) MUST(ctx, moe_send(g, NULL, &me, 1, MOE_I32, to, NULL));
  MUST(ctx, moe_recv(g, NULL, &x, 1, MOE_I32, from, NULL));
  if (me % 2 == 1) MUST(ctx, moe_send(g, NULL, &me, 1, MOE_I32, to, NULL));
  CHECK(x == from);
  MUST(ctx, moe_barrier(g, NULL));
}

/* What was counted is the operations' arithmetic. */
static void counts(struct moe_group g) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  const struct moe_count *c = g.comm->world->count[g.tag];
  int64_t exchanged = 0;
  for (int32_t m = 0; m < n; m++) exchanged += m == me ? 0 : 4 * amount(me, m);
  if (n == 1) {
    CHECK(c[MOE_COMM_ALL_TO_ALL].calls == 0);
    return;
  }
  CHECK(c[MOE_COMM_ALL_TO_ALL].calls == 1 && c[MOE_COMM_ALL_TO_ALL].bytes == exchanged);
  CHECK(c[MOE_COMM_ALL_GATHER].calls == 2);
  CHECK(c[MOE_COMM_ALL_GATHER].bytes == 2 * 4 * (n - 1) * amount(me, 0));
  CHECK(c[MOE_COMM_SEND].bytes == 4 && c[MOE_COMM_RECV].bytes == 0);
  CHECK(c[MOE_COMM_BROADCAST].calls == n && c[MOE_COMM_BROADCAST].bytes == 4);
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  struct moe_group g = everyone(ctx);
  reduce(ctx, g);
  gather_and_scatter(ctx, g, false);
  gather_and_scatter(ctx, g, true);
  exchange(ctx, g);
  broadcast(ctx, g);
  pass_on(ctx, g);
  counts(g);
  return ranks_close(ctx);
}
