/* The operations: counting, the ring, and what groups of one rank do; the rest is the backend's. */
#include "comm/comm.h"

#include <sched.h>
#include <string.h>

#include "base/ctx.h"
#include "comm/backend.h"

static int64_t sum_but(const int64_t *count, int32_t size, int32_t but) {
  int64_t n = 0;
  for (int32_t i = 0; i < size; i++) n += i == but ? 0 : count[i];
  return n;
}

/* Elements this rank sends to others. */
static int64_t sent(const struct moe_comm *c, const struct moe_transfer *t) {
  switch (t->op) {
    case MOE_COMM_ALL_REDUCE: return 2 * t->n * (c->size - 1) / c->size;
    case MOE_COMM_ALL_GATHER: return (c->size - 1) * t->count[c->rank];
    case MOE_COMM_REDUCE_SCATTER: return sum_but(t->count, c->size, c->rank);
    case MOE_COMM_ALL_TO_ALL: return sum_but(t->send_count, c->size, c->rank);
    case MOE_COMM_BROADCAST: return t->peer == c->rank ? t->n : 0;
    case MOE_COMM_SEND: return t->n;
    case MOE_COMM_RECV:
    case MOE_COMM_BARRIER:
    case MOE_COMM_OPS: break;
  }
  return 0;
}

static struct moe_ring_entry *note(struct moe_world *world, struct moe_group g,
                                   const struct moe_transfer *t) {
  int64_t bytes = sent(g.comm, t) * (int64_t)moe_dtype_bytes(t->dtype);
  struct moe_count *count = &world->count[g.tag][t->op];
  count->calls++;
  count->bytes += bytes;
  struct moe_ring_entry *e = &world->ring[world->transfers % MOE_COMM_RING];
  *e = (struct moe_ring_entry){.number = world->transfers++,
                               .op = t->op,
                               .tag = g.tag,
                               .size = g.comm->size,
                               .peer = t->peer,
                               .bytes = bytes,
                               .started = moe_now()};
  world->board->transfers = world->transfers;
  return e;
}

/* A group of one: what stays on this rank is copied. */
static void alone(struct moe_world *world, const struct moe_transfer *t) {
  if (world->backend->dry) return;
  int64_t n = 0, from = 0, to = 0;
  if (t->op == MOE_COMM_ALL_GATHER) n = t->count[0], to = t->offset[0];
  if (t->op == MOE_COMM_REDUCE_SCATTER) n = t->count[0], from = t->offset[0];
  if (t->op == MOE_COMM_ALL_TO_ALL)
    n = t->send_count[0], from = t->send_offset[0], to = t->offset[0];
  size_t each = moe_dtype_bytes(t->dtype);
  const char *src = (const char *)t->send + (size_t)from * each;
  char *dst = (char *)t->recv + (size_t)to * each;
  if (n > 0 && src != dst) memmove(dst, src, (size_t)n * each);
}

/* Polls between two offers of the processor to others, and between two looks at the clock. */
enum { POLLS = 16, CLOCK = 1024 };

static moe_status out_of_step(struct moe_world *world) {
  moe_status status = moe_fail(world->ctx, MOE_COMM, "%s", world->broken);
  world->ctx->tells = world->broken_tells;
  return status;
}

/* Polls until the operation has ended, or for too long. */
static moe_status poll(struct moe_request *request) {
  struct moe_world *world = request->comm->world;
  double began = moe_now(), limit = world->ctx->comm_timeout;
  bool done = false;
  world->board->waiting = request->ring;
  for (int64_t polls = 1;; polls++) {
    MOE_TRY(world->backend->test(request->comm, request, &done));
    if (done) break;
    if (polls % POLLS == 0) sched_yield();
    if (polls % CLOCK == 0 && limit > 0 && moe_now() - began > limit)
      return moe_world_hang(request, limit);
  }
  world->board->waiting = -1;
  return MOE_OK;
}

/* Waits for a started operation. */
static moe_status finish(struct moe_request *request) {
  struct moe_world *world = request->comm->world;
  moe_status status = MOE_OK;
  if (world->broken)
    status = out_of_step(world);
  else if (world->backend->test)
    status = poll(request);
  struct moe_ring_entry *e = &world->ring[request->ring % MOE_COMM_RING];
  if (e->number == request->ring && status == MOE_OK) e->ended = moe_now();
  request->comm = NULL;
  return status;
}

static moe_status run(struct moe_group g, struct moe_stream *s, const struct moe_transfer *t,
                      struct moe_request *request) {
  struct moe_world *world = g.comm->world;
  struct moe_request own;
  if (request) *request = (struct moe_request){0};
  if (g.comm->size == 1) {
    alone(world, t);
    return MOE_OK;
  }
  if (world->broken) return out_of_step(world);
  struct moe_ring_entry *entry = note(world, g, t);
  struct moe_request *r = request ? request : &own;
  *r = (struct moe_request){.comm = g.comm, .ring = entry->number};
  moe_status status = world->backend->start(g.comm, s, t, r);
  if (status != MOE_OK) {
    r->comm = NULL;
    return status;
  }
  return request ? MOE_OK : finish(r);
}

moe_status moe_comm_wait(struct moe_stream *s, struct moe_request *request) {
  (void)s;
  return request->comm ? finish(request) : MOE_OK;
}

void moe_comm_progress(struct moe_world *world) {
  if (world->backend->progress) world->backend->progress(world);
}

moe_status moe_all_reduce(struct moe_group g, struct moe_stream *s, void *x, int64_t n,
                          moe_dtype dtype, enum moe_reduce reduce, struct moe_request *request) {
  const struct moe_transfer t = {
      .op = MOE_COMM_ALL_REDUCE, .reduce = reduce, .dtype = dtype, .send = x, .recv = x, .n = n};
  return run(g, s, &t, request);
}

moe_status moe_all_gather_v(struct moe_group g, struct moe_stream *s, const void *send, void *recv,
                            const int64_t *count, const int64_t *offset, moe_dtype dtype,
                            struct moe_request *request) {
  const struct moe_transfer t = {MOE_COMM_ALL_GATHER, .dtype = dtype, .send = send,
                                 .recv = recv,        .count = count, .offset = offset};
  return run(g, s, &t, request);
}

moe_status moe_reduce_scatter_v(struct moe_group g, struct moe_stream *s, const void *send,
                                void *recv, const int64_t *count, const int64_t *offset,
                                moe_dtype dtype, struct moe_request *request) {
  const struct moe_transfer t = {
      MOE_COMM_REDUCE_SCATTER, .dtype = dtype,  .send = send, .recv = recv,
      .count = count,          .offset = offset};
  return run(g, s, &t, request);
}

moe_status moe_all_to_all_v(struct moe_group g, struct moe_stream *s, const void *send,
                            const int64_t *send_count, const int64_t *send_offset, void *recv,
                            const int64_t *recv_count, const int64_t *recv_offset, moe_dtype dtype,
                            struct moe_request *request) {
  const struct moe_transfer t = {.op = MOE_COMM_ALL_TO_ALL,
                                 .dtype = dtype,
                                 .send = send,
                                 .recv = recv,
                                 .send_count = send_count,
                                 .send_offset = send_offset,
                                 .count = recv_count,
                                 .offset = recv_offset};
  return run(g, s, &t, request);
}

moe_status moe_broadcast(struct moe_group g, struct moe_stream *s, void *x, int64_t n,
                         moe_dtype dtype, int32_t root, struct moe_request *request) {
  const struct moe_transfer t = {
      .op = MOE_COMM_BROADCAST, .dtype = dtype, .send = x, .recv = x, .n = n, .peer = root};
  return run(g, s, &t, request);
}

moe_status moe_send(struct moe_group g, struct moe_stream *s, const void *x, int64_t n,
                    moe_dtype dtype, int32_t peer, struct moe_request *request) {
  const struct moe_transfer t = {
      .op = MOE_COMM_SEND, .dtype = dtype, .send = x, .n = n, .peer = peer};
  return run(g, s, &t, request);
}

moe_status moe_recv(struct moe_group g, struct moe_stream *s, void *x, int64_t n, moe_dtype dtype,
                    int32_t peer, struct moe_request *request) {
  const struct moe_transfer t = {
      .op = MOE_COMM_RECV, .dtype = dtype, .recv = x, .n = n, .peer = peer};
  return run(g, s, &t, request);
}

moe_status moe_barrier(struct moe_group g, struct moe_stream *s) {
  const struct moe_transfer t = {.op = MOE_COMM_BARRIER, .dtype = MOE_U8};
  return run(g, s, &t, NULL);
}
