/* Every operation of the comm table: all types, blocking and with requests, parts that differ and
 * may be empty, messages and pieces cut small, several groups at once. Values are small integers,
 * exact in every type; what is exact in no type is in sums.c. */
#include "ranks.h"

enum { MOST = 8, ROOM = 1024, TAG_WORLD = 0, TAG_PART = 1, TAG_BACK = 2 };

static const moe_dtype types[] = {MOE_F32, MOE_F64, MOE_BF16, MOE_I32, MOE_I64, MOE_U8};

union buffer {
  double f64[ROOM];
  float f32[ROOM];
  uint16_t bf16[ROOM];
  int32_t i32[ROOM];
  int64_t i64[ROOM];
  uint8_t u8[ROOM];
};

static void put(union buffer *b, moe_dtype type, int64_t i, int v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  switch (type) {
    case MOE_F32: b->f32[i] = f; return;
    case MOE_F64: b->f64[i] = v; return;
    case MOE_BF16: b->bf16[i] = (uint16_t)(bits >> 16); return;
    case MOE_I32: b->i32[i] = v; return;
    case MOE_I64: b->i64[i] = v; return;
    default: b->u8[i] = (uint8_t)v; return;
  }
}

static double get(const union buffer *b, moe_dtype type, int64_t i) {
  float f;
  uint32_t bits = (uint32_t)b->bf16[i] << 16;
  memcpy(&f, &bits, sizeof f);
  switch (type) {
    case MOE_F32: return b->f32[i];
    case MOE_F64: return b->f64[i];
    case MOE_BF16: return f;
    case MOE_I32: return b->i32[i];
    case MOE_I64: return (double)b->i64[i];
    default: return b->u8[i];
  }
}

static void *at(union buffer *b, moe_dtype type, int64_t i) {
  return b->u8 + (size_t)i * moe_dtype_bytes(type);
}

enum { NOBODY = 99 }; /* what stands where nothing arrives */
static void blank(union buffer *b, moe_dtype type) {
  for (int64_t i = 0; i < ROOM / 8; i++) put(b, type, i, NOBODY);
}

/* Elements that `from` has for `to`: 0 .. 4, and one long part. */
static int64_t amount(int32_t from, int32_t to) {
  return from == 1 && to == 0 ? 17 : (3 * from + 2 * to) % 5;
}
static int value(int32_t from, int32_t to, int64_t i) {
  return (int)((3 * from + 5 * to + i) % 13) + 1;
}

/* ---- the operations, each started and then waited for ---- */

struct job {
  moe_ctx *ctx;
  struct moe_group g;
  moe_dtype type;
  bool in_place, blocking;
  int32_t root;
  union buffer send, recv;
  int64_t out[MOST], out_at[MOST], in[MOST], in_at[MOST];
  struct moe_request request;
};

static struct moe_request *way(struct job *j) { return j->blocking ? NULL : &j->request; }

static void job_wait(struct job *j) {
  if (!j->blocking) MUST(j->ctx, moe_comm_wait(NULL, &j->request));
}

enum { REDUCED = 41 };

static void reduce_start(struct job *j, enum moe_reduce reduce) {
  for (int64_t i = 0; i < REDUCED; i++)
    put(&j->recv, j->type, i, value(moe_group_rank(j->g), 0, i));
  MUST(j->ctx, moe_all_reduce(j->g, NULL, &j->recv, REDUCED, j->type, reduce, way(j)));
}
static void reduce_check(struct job *j, enum moe_reduce reduce) {
  for (int64_t i = 0; i < REDUCED; i++) {
    int sum = 0, most = 0;
    for (int32_t m = 0; m < moe_group_size(j->g); m++) {
      int v = value(m, 0, i);
      sum += v;
      most = v > most ? v : most;
    }
    CHECK(get(&j->recv, j->type, i) == (reduce == MOE_SUM ? sum : most));
  }
}

/* Member m has amount(m, 0) elements; between the parts lies one that nobody touches. */
static void parts(struct job *j) {
  int64_t total = 0;
  for (int32_t m = 0; m < moe_group_size(j->g); m++) {
    j->in[m] = amount(m, 0);
    j->in_at[m] = total;
    total += j->in[m] + 1;
  }
}

static void gather_start(struct job *j) {
  int32_t me = moe_group_rank(j->g);
  parts(j);
  blank(&j->recv, j->type);
  union buffer *b = j->in_place ? &j->recv : &j->send;
  int64_t first = j->in_place ? j->in_at[me] : 0;
  for (int64_t i = 0; i < j->in[me]; i++) put(b, j->type, first + i, value(me, 0, i));
  MUST(j->ctx, moe_all_gather_v(j->g, NULL, at(b, j->type, first), &j->recv, j->in, j->in_at,
                                j->type, way(j)));
}
static void gather_check(struct job *j) {
  for (int32_t m = 0; m < moe_group_size(j->g); m++) {
    for (int64_t i = 0; i < j->in[m]; i++)
      CHECK(get(&j->recv, j->type, j->in_at[m] + i) == value(m, 0, i));
    CHECK(get(&j->recv, j->type, j->in_at[m] + j->in[m]) == NOBODY);
  }
}

static void scatter_start(struct job *j) {
  int32_t me = moe_group_rank(j->g);
  parts(j);
  blank(&j->recv, j->type);
  for (int32_t m = 0; m < moe_group_size(j->g); m++)
    for (int64_t i = 0; i < j->in[m]; i++) put(&j->send, j->type, j->in_at[m] + i, value(me, m, i));
  void *recv = j->in_place ? at(&j->send, j->type, j->in_at[me]) : &j->recv;
  MUST(j->ctx, moe_reduce_scatter_v(j->g, NULL, &j->send, recv, j->in, j->in_at, j->type, way(j)));
}
static void scatter_check(struct job *j) {
  int32_t n = moe_group_size(j->g), me = moe_group_rank(j->g);
  const union buffer *b = j->in_place ? &j->send : &j->recv;
  int64_t first = j->in_place ? j->in_at[me] : 0;
  for (int64_t i = 0; i < j->in[me]; i++) {
    int sum = 0;
    for (int32_t m = 0; m < n; m++) sum += value(m, me, i);
    CHECK(get(b, j->type, first + i) == sum);
  }
  if (!j->in_place) CHECK(get(b, j->type, j->in[me]) == NOBODY);
}

static void exchange_start(struct job *j) {
  int32_t me = moe_group_rank(j->g);
  int64_t sent = 0, got = 0;
  blank(&j->recv, j->type);
  for (int32_t m = 0; m < moe_group_size(j->g); m++) {
    j->out[m] = amount(me, m), j->out_at[m] = sent, sent += j->out[m] + 1;
    j->in[m] = amount(m, me), j->in_at[m] = got, got += j->in[m] + 1;
    for (int64_t i = 0; i < j->out[m]; i++)
      put(&j->send, j->type, j->out_at[m] + i, value(me, m, i));
  }
  MUST(j->ctx, moe_all_to_all_v(j->g, NULL, &j->send, j->out, j->out_at, &j->recv, j->in, j->in_at,
                                j->type, way(j)));
}
static void exchange_check(struct job *j) {
  for (int32_t m = 0; m < moe_group_size(j->g); m++) {
    for (int64_t i = 0; i < j->in[m]; i++)
      CHECK(get(&j->recv, j->type, j->in_at[m] + i) == value(m, moe_group_rank(j->g), i));
    CHECK(get(&j->recv, j->type, j->in_at[m] + j->in[m]) == NOBODY);
  }
}

static void broadcast_start(struct job *j) {
  blank(&j->recv, j->type);
  if (moe_group_rank(j->g) == j->root)
    for (int64_t i = 0; i < REDUCED; i++) put(&j->recv, j->type, i, value(j->root, 1, i));
  MUST(j->ctx, moe_broadcast(j->g, NULL, &j->recv, REDUCED, j->type, j->root, way(j)));
}
static void broadcast_check(struct job *j) {
  for (int64_t i = 0; i < REDUCED; i++) CHECK(get(&j->recv, j->type, i) == value(j->root, 1, i));
}

/* ---- all of it ---- */

static void every_operation(struct job *j) {
  reduce_start(j, MOE_SUM), job_wait(j), reduce_check(j, MOE_SUM);
  reduce_start(j, MOE_MAX), job_wait(j), reduce_check(j, MOE_MAX);
  gather_start(j), job_wait(j), gather_check(j);
  scatter_start(j), job_wait(j), scatter_check(j);
  exchange_start(j), job_wait(j), exchange_check(j);
  for (j->root = 0; j->root < moe_group_size(j->g); j->root++)
    broadcast_start(j), job_wait(j), broadcast_check(j);
  MUST(j->ctx, moe_barrier(j->g, NULL));
}

/* Around the ring with requests: everyone sends two messages before anyone receives. */
static void pass_on(moe_ctx *ctx, struct moe_group g) {
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  int32_t to = (me + 1) % n, from = (me + n - 1) % n, sent[24], got[24] = {0}, two = me + 100;
  struct moe_request r[4];
  if (n == 1) return;
  for (int32_t i = 0; i < 24; i++) sent[i] = 10 * me + i;
  MUST(ctx, moe_send(g, NULL, sent, 23, MOE_I32, to, &r[0]));
  MUST(ctx, moe_send(g, NULL, &two, 1, MOE_I32, to, &r[1]));
  MUST(ctx, moe_recv(g, NULL, got, 23, MOE_I32, from, &r[2]));
  MUST(ctx, moe_recv(g, NULL, got + 23, 1, MOE_I32, from, &r[3]));
  for (int i = 0; i < 4; i++) MUST(ctx, moe_comm_wait(NULL, &r[i]));
  MUST(ctx, moe_comm_wait(NULL, &r[0])); /* nothing to wait for */
  for (int32_t i = 0; i < 23; i++) CHECK(got[i] == 10 * from + i);
  CHECK(got[23] == from + 100);
  if (me % 2 == 0) MUST(ctx, moe_send(g, NULL, sent, 23, MOE_I32, to, NULL));
  MUST(ctx, moe_recv(g, NULL, got, 23, MOE_I32, from, NULL));
  if (me % 2 == 1) MUST(ctx, moe_send(g, NULL, sent, 23, MOE_I32, to, NULL));
  CHECK(got[0] == 10 * from && got[22] == 10 * from + 22);
}

/* Six operations at once on two groups; neighbours wait for the groups in opposite orders, so that
 * an operation only ends if waiting for another one moves it on. */
static void at_once(moe_ctx *ctx, struct moe_group a, struct moe_group b) {
  static struct job job[6];
  bool a_first = moe_group_rank(a) % 2;
  for (int i = 0; i < 6; i++)
    job[i] = (struct job){.ctx = ctx, .g = i % 2 ? b : a, .type = types[i % 3]};
  reduce_start(&job[0], MOE_SUM);
  exchange_start(&job[1]);
  gather_start(&job[2]);
  reduce_start(&job[3], MOE_MAX);
  scatter_start(&job[4]);
  scatter_start(&job[5]);
  moe_comm_progress(a.comm->world);
  for (int turn = 0; turn < 2; turn++)
    for (int i = a_first ? turn : 1 - turn; i < 6; i += 2) job_wait(&job[i]);
  reduce_check(&job[0], MOE_SUM);
  exchange_check(&job[1]);
  gather_check(&job[2]);
  reduce_check(&job[3], MOE_MAX);
  scatter_check(&job[4]);
  scatter_check(&job[5]);
}

static struct moe_group group(moe_ctx *ctx, int32_t tag, int32_t first, int32_t step, int32_t n) {
  struct moe_world *world;
  struct moe_comm *comm;
  int32_t ranks[MOST];
  MUST(ctx, moe_ctx_world(ctx, &world));
  for (int32_t i = 0; i < n; i++) ranks[i] = first + step * i;
  MUST(ctx, moe_comm_get(world, ranks, n, &comm));
  return (struct moe_group){comm, tag};
}

static void all_ways(moe_ctx *ctx, struct moe_group g) {
  static struct job j;
  for (size_t t = 0; t < MOE_COUNTOF(types); t++)
    for (int ways = 0; ways < 4; ways++) {
      j = (struct job){
          .ctx = ctx, .g = g, .type = types[t], .in_place = ways & 1, .blocking = ways & 2};
      every_operation(&j);
    }
}

static void everything(moe_ctx *ctx, const struct moe_group g[3]) {
  for (int i = 0; i < 3; i++) all_ways(ctx, g[i]);
  for (int i = 0; i < 3; i++) pass_on(ctx, g[i]);
  at_once(ctx, g[0], g[1]);
  at_once(ctx, g[0], g[2]);
  at_once(ctx, g[1], g[1]);
}

/* ---- what is told about it ---- */

static void counts(moe_ctx *ctx, struct moe_group g) {
  static struct job j;
  struct moe_world *world = g.comm->world;
  int32_t n = moe_group_size(g), me = moe_group_rank(g);
  const struct moe_count *c = world->count[g.tag];
  memset(world->count, 0, MOE_COMM_TAGS * sizeof world->count[0]);
  j = (struct job){.ctx = ctx, .g = g, .type = MOE_F32};
  every_operation(&j);
  pass_on(ctx, g);
  int64_t to_all = 0, scattered = 0;
  for (int32_t m = 0; m < n; m++) {
    to_all += m == me ? 0 : 4 * amount(me, m);
    scattered += m == me ? 0 : 4 * amount(m, 0);
  }
  CHECK(c[MOE_COMM_ALL_REDUCE].calls == (n > 1 ? 2 : 0));
  CHECK(c[MOE_COMM_ALL_REDUCE].bytes == 2 * 4 * (2 * REDUCED * (n - 1) / n));
  CHECK(c[MOE_COMM_ALL_GATHER].bytes == 4 * (n - 1) * amount(me, 0));
  CHECK(c[MOE_COMM_REDUCE_SCATTER].bytes == scattered);
  CHECK(c[MOE_COMM_ALL_TO_ALL].bytes == to_all);
  CHECK(c[MOE_COMM_BROADCAST].calls == (n > 1 ? n : 0));
  CHECK(c[MOE_COMM_BROADCAST].bytes == (n > 1 ? 4 * REDUCED : 0));
  CHECK(c[MOE_COMM_SEND].calls == (n > 1 ? 3 : 0) && c[MOE_COMM_RECV].bytes == 0);
  CHECK(c[MOE_COMM_SEND].bytes == (n > 1 ? 4 * (23 + 1 + 23) : 0));
  CHECK(c[MOE_COMM_BARRIER].calls == (n > 1) && c[MOE_COMM_BARRIER].bytes == 0);
  CHECK(world->count[TAG_BACK][MOE_COMM_SEND].calls == 0);
}

static void ring(moe_ctx *ctx, struct moe_group g) {
  struct moe_world *world = g.comm->world;
  int64_t number = world->transfers;
  struct moe_request request;
  float x[4] = {0};
  if (moe_group_size(g) == 1) return;
  MUST(ctx, moe_all_reduce(g, NULL, x, 4, MOE_F32, MOE_SUM, &request));
  MUST(ctx, moe_broadcast(g, NULL, x, 2, MOE_F32, 1, NULL));
  const struct moe_ring_entry *e = &world->ring[number % MOE_COMM_RING];
  CHECK(e->number == number && e->op == MOE_COMM_ALL_REDUCE && e->tag == g.tag);
  CHECK(e->size == moe_group_size(g) && e->started > 0 && e->ended == 0);
  MUST(ctx, moe_comm_wait(NULL, &request));
  CHECK(e->ended >= e->started);
  e = &world->ring[(number + 1) % MOE_COMM_RING];
  CHECK(e->number == number + 1 && e->op == MOE_COMM_BROADCAST && e->peer == 1);
  CHECK(e->bytes == (moe_group_rank(g) == 1 ? 8 : 0) && e->ended >= e->started);
  CHECK(world->transfers == number + 2);
}

/* One rank fails, then all alike, then all with texts of their own. */
static void agree(moe_ctx *ctx) {
  int32_t n = moe_ctx_ranks(ctx), me = moe_ctx_rank(ctx);
  char own[32];
  if (n == 1) {
    CHECK(moe_ctx_agree(ctx, MOE_IO, "alone") == MOE_IO && moe_ctx_tells(ctx) == MOE_TELLS_OWN);
    CHECK(!strcmp(moe_ctx_error(ctx), "alone"));
    return;
  }
  moe_tells first = me ? MOE_TELLS_NOT : MOE_TELLS_ALL;
  CHECK(moe_ctx_agree(ctx, MOE_OK, NULL) == MOE_OK);
  CHECK(moe_ctx_agree(ctx, me == n - 1 ? MOE_IO : MOE_OK, "no file") == MOE_IO);
  snprintf(own, sizeof own, "rank %d: no file", n - 1);
  CHECK(!strcmp(moe_ctx_error(ctx), own) && moe_ctx_tells(ctx) == first);
  CHECK(moe_ctx_agree(ctx, MOE_IO, "no disk") == MOE_IO);
  CHECK(!strcmp(moe_ctx_error(ctx), "no disk") && moe_ctx_tells(ctx) == first);
  snprintf(own, sizeof own, "disk %d", me);
  CHECK(moe_ctx_agree(ctx, me ? MOE_INTERNAL : MOE_IO, own) == MOE_INTERNAL);
  CHECK(!strcmp(moe_ctx_error(ctx), "rank 1: disk 1") && moe_ctx_tells(ctx) == first);
}

int main(void) {
  moe_ctx *ctx = ranks_open();
  struct moe_world *world;
  MUST(ctx, moe_ctx_world(ctx, &world));
  int32_t n = world->size, me = world->rank, half = n > 1 ? n / 2 : 1;
  const struct moe_group g[3] = {
      group(ctx, TAG_WORLD, 0, 1, n),
      group(ctx, TAG_PART, me % half, half, (n - me % half + half - 1) / half),
      group(ctx, TAG_BACK, n - 1, -1, n)};
  everything(ctx, g);
  uint64_t allocations = moe_ctx_alloc_count(ctx);
  everything(ctx, g);
  CHECK(moe_ctx_alloc_count(ctx) == allocations);
  int64_t message = world->message_bytes, piece = world->piece_bytes;
  world->message_bytes = 12; /* splits elements, too */
  world->piece_bytes = 40;
  everything(ctx, g);
  world->message_bytes = message;
  world->piece_bytes = piece;
  counts(ctx, g[0]);
  ring(ctx, g[0]);
  agree(ctx);
  return ranks_close(ctx);
}
