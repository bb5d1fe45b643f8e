/* Operations of the MPI backend. All but broadcast and barrier are point-to-point messages between
 * every two members: the same bytes as any other way, sums in the order of the ranks, and, on
 * shared memory, faster than MPI's own reductions.
 *
 * An operation is a row of rounds; a round is a set of MPI requests. A reduction takes a piece of
 * its elements at a time: one round brings each member everyone's copy of what it sums, another
 * hands the sums around (all-reduce); small ones bring everything to everyone in one round.
 *
 * Whoever polls one operation moves all of them on: a member may wait for another operation than
 * the one its neighbour needs. */
#include <limits.h>
#include <string.h>

#include "comm/comm_mpi.h"

enum { SMALL = 4096 }; /* bytes of an all-reduce that takes one round */
enum { TAGS = 16384, COUNTS = 4, FEWEST = 16, SCRATCH = 1 << 16 };

/* The round in flight: the operation's only one; all bring me what I sum; the sums go around. */
enum phase { PLAIN, EXCHANGE, GATHER };

struct mpi_operation {
  bool busy, ended;
  moe_status status; /* why it ended before its time */
  struct moe_comm *comm;
  struct moe_transfer t; /* its arrays of counts lie in `count` */
  size_t each;           /* bytes of an element */
  int tag;
  enum phase phase;
  bool small;       /* an all-reduce in which everyone sums everything */
  int64_t first, n; /* reductions: the piece in flight; reduce-scatter: of every member's part */
  MPI_Request *request;
  int requests, room;
  int64_t *count;
  char *scratch; /* what the others sent, to be summed; grows only */
  size_t scratch_bytes;
};

static struct mpi_comm *mpi_of(const struct mpi_operation *o) { return o->comm->impl; }

static const char *name_of(const struct mpi_operation *o) {
  static const char *const names[] = {
#define NAME(name, text) text,
      MOE_COMM_OP_MAP(NAME)
#undef NAME
  };
  return names[o->t.op];
}

/* ---- slots: kept for ever, so that a steady program allocates nothing ---- */

static void release_slot(struct moe_world *world, struct mpi_operation *o) {
  const struct moe_module_host *host = mpi_host(world);
  host->release(world->ctx, o->count);
  host->release(world->ctx, o->request);
  if (o->scratch) host->unmap(world->ctx, o->scratch, o->scratch_bytes);
  host->release(world->ctx, o);
}

void moe_mpi_release_slots(struct moe_world *world) {
  struct mpi_world *w = world->impl;
  for (int32_t i = 0; i < w->slots; i++) release_slot(world, w->slot[i]);
  w->host->release(world->ctx, w->slot);
}

static moe_status add_slot(struct moe_world *world) {
  struct mpi_world *w = world->impl;
  struct mpi_operation *o = w->host->alloc(world->ctx, sizeof *o);
  if (o == NULL) return MOE_MEMORY;
  o->count = w->host->alloc(world->ctx, COUNTS * (size_t)world->size * sizeof *o->count);
  struct mpi_operation **list =
      w->host->alloc(world->ctx, (size_t)(w->slots + 1) * sizeof(struct mpi_operation *));
  if (o->count == NULL || list == NULL) {
    release_slot(world, o);
    w->host->release(world->ctx, list);
    return MOE_MEMORY;
  }
  if (w->slots) memcpy(list, w->slot, (size_t)w->slots * sizeof *list);
  list[w->slots++] = o;
  w->host->release(world->ctx, w->slot);
  w->slot = list;
  return MOE_OK;
}

/* The first free one: equal steps use equal slots. */
static moe_status take_slot(struct moe_world *world, int32_t *index) {
  struct mpi_world *w = world->impl;
  int32_t i = 0;
  while (i < w->slots && w->slot[i]->busy) i++;
  if (i == w->slots) MOE_TRY(add_slot(world));
  *index = i;
  return MOE_OK;
}

static moe_status reserve_scratch(struct mpi_operation *o, size_t bytes) {
  struct moe_world *world = o->comm->world;
  if (bytes <= o->scratch_bytes) return MOE_OK;
  char *block = mpi_host(world)->map(world->ctx, bytes);
  if (block == NULL) return MOE_MEMORY;
  if (o->scratch) mpi_host(world)->unmap(world->ctx, o->scratch, o->scratch_bytes);
  o->scratch = block;
  o->scratch_bytes = bytes;
  return MOE_OK;
}

/* ---- messages ---- */

/* A place for one more request of the round. */
static moe_status next_request(struct mpi_operation *o, MPI_Request **out) {
  struct moe_world *world = o->comm->world;
  if (o->requests == o->room) {
    int room = o->room ? 2 * o->room : FEWEST;
    MPI_Request *list = mpi_host(world)->alloc(world->ctx, (size_t)room * sizeof *list);
    if (list == NULL) return MOE_MEMORY;
    if (o->requests) memcpy(list, o->request, (size_t)o->requests * sizeof *list);
    mpi_host(world)->release(world->ctx, o->request);
    o->request = list;
    o->room = room;
  }
  *out = &o->request[o->requests];
  **out = MPI_REQUEST_NULL;
  return MOE_OK;
}

enum way { SEND, RECEIVE, BROADCAST };

static int post_one(struct mpi_operation *o, enum way way, void *at, int bytes, int peer,
                    MPI_Request *request) {
  MPI_Comm comm = mpi_of(o)->comm;
  switch (way) {
    case SEND: return MPI_Isend(at, bytes, MPI_BYTE, peer, o->tag, comm, request);
    case RECEIVE: return MPI_Irecv(at, bytes, MPI_BYTE, peer, o->tag, comm, request);
    case BROADCAST: break;
  }
  return MPI_Ibcast(at, bytes, MPI_BYTE, peer, comm, request);
}

/* n elements, cut into messages that MPI can count. */
static moe_status post(struct mpi_operation *o, enum way way, const void *first, int64_t n,
                       int peer) {
  struct moe_world *world = o->comm->world;
  char *at = (char *)(uintptr_t)first;
  int64_t rest = n * (int64_t)o->each, most = moe_min64(world->message_bytes, INT_MAX);
  while (rest > 0) {
    int bytes = (int)moe_min64(rest, most);
    MPI_Request *request;
    MOE_TRY(next_request(o, &request));
    int rc = post_one(o, way, at, bytes, peer, request);
    MOE_TRY(moe_mpi_check(world, rc, name_of(o)));
    o->requests++;
    at += bytes;
    rest -= bytes;
  }
  return MOE_OK;
}

/* ---- who sends what to whom ---- */

struct span {
  const void *base;
  int64_t at, n;
};

/* The elements of the piece that member m sums, in the buffer they are sent from. */
static struct span summed_by(const struct mpi_operation *o, int32_t m) {
  const struct moe_transfer *t = &o->t;
  if (t->op == MOE_COMM_REDUCE_SCATTER) {
    int64_t n = moe_min64(o->n, t->count[m] - o->first);
    return (struct span){t->send, t->offset[m] + o->first, moe_max64(n, 0)};
  }
  if (o->small) return (struct span){t->send, 0, t->n};
  int64_t begin = o->n * m / o->comm->size, end = o->n * (m + 1) / o->comm->size;
  return (struct span){t->send, o->first + begin, end - begin};
}

static struct span outgoing(const struct mpi_operation *o, int32_t m) {
  const struct moe_transfer *t = &o->t;
  if (o->phase == EXCHANGE) return summed_by(o, m);
  if (o->phase == GATHER) return summed_by(o, o->comm->rank);
  if (t->op == MOE_COMM_ALL_GATHER) return (struct span){t->send, 0, t->count[o->comm->rank]};
  return (struct span){t->send, t->send_offset[m], t->send_count[m]};
}

static struct span incoming(const struct mpi_operation *o, int32_t m) {
  const struct moe_transfer *t = &o->t;
  if (o->phase == GATHER) return summed_by(o, m);
  if (o->phase == PLAIN) return (struct span){t->recv, t->offset[m], t->count[m]};
  int64_t n = summed_by(o, o->comm->rank).n;
  return (struct span){o->scratch, m * n, n};
}

static char *address(const struct mpi_operation *o, struct span s) {
  return (char *)(uintptr_t)s.base + (size_t)s.at * o->each;
}

/* A round: to and from every other member; nobody is everyone's first. */
static moe_status exchange(struct mpi_operation *o) {
  int32_t size = o->comm->size, me = o->comm->rank;
  for (int32_t i = 1; i < size; i++) {
    int32_t m = (me + size - i) % size;
    struct span in = incoming(o, m);
    MOE_TRY(post(o, RECEIVE, address(o, in), in.n, m));
  }
  for (int32_t i = 1; i < size; i++) {
    int32_t m = (me + i) % size;
    struct span out = outgoing(o, m);
    MOE_TRY(post(o, SEND, address(o, out), out.n, m));
  }
  return MOE_OK;
}

static void copy_own(const struct mpi_operation *o) {
  struct span out = outgoing(o, o->comm->rank), in = incoming(o, o->comm->rank);
  char *src = address(o, out), *dst = address(o, in);
  if (out.n > 0 && src != dst) memmove(dst, src, (size_t)out.n * o->each);
}

/* ---- reductions ---- */

static void sum(const struct mpi_operation *o) {
  const struct moe_transfer *t = &o->t;
  int32_t size = o->comm->size, me = o->comm->rank;
  struct span mine = summed_by(o, me);
  const void **part = mpi_of(o)->part;
  for (int32_t m = 0; m < size; m++) part[m] = address(o, m == me ? mine : incoming(o, m));
  struct span to = {t->recv, t->op == MOE_COMM_REDUCE_SCATTER ? o->first : mine.at, mine.n};
  mpi_host(o->comm->world)->combine_of(t->dtype, t->reduce)(mine.n, part, size, address(o, to));
}

/* Begins the next piece, or ends. */
static moe_status next_piece(struct mpi_operation *o) {
  const struct moe_transfer *t = &o->t;
  int64_t total = t->n, most = o->comm->world->piece_bytes / (int64_t)o->each;
  if (t->op == MOE_COMM_REDUCE_SCATTER) {
    most /= o->comm->size;
    for (int32_t m = 0; m < o->comm->size; m++) total = moe_max64(total, t->count[m]);
  }
  o->first += o->n;
  o->n = moe_min64(total - o->first, moe_max64(most, 1));
  o->ended = o->n == 0;
  if (o->ended) return MOE_OK;
  size_t bytes = (size_t)(summed_by(o, o->comm->rank).n * o->comm->size) * o->each;
  MOE_TRY(reserve_scratch(o, moe_round_up(bytes, SCRATCH)));
  o->phase = EXCHANGE;
  return exchange(o);
}

static moe_status reduce(struct mpi_operation *o) {
  struct moe_world *world = o->comm->world;
  if (mpi_host(world)->combine_of(o->t.dtype, o->t.reduce) == NULL)
    return mpi_host(world)->fail(world->ctx, MOE_UNSUPPORTED, "%s: nothing sums this type",
                                 name_of(o));
  o->small = o->t.op == MOE_COMM_ALL_REDUCE &&
             o->t.n * (int64_t)o->each <= moe_min64(SMALL, world->piece_bytes);
  return next_piece(o);
}

/* ---- the life of an operation ---- */

static moe_status begin(struct mpi_operation *o) {
  const struct moe_transfer *t = &o->t;
  MPI_Request *request;
  switch (t->op) {
    case MOE_COMM_ALL_REDUCE:
    case MOE_COMM_REDUCE_SCATTER: return reduce(o);
    case MOE_COMM_ALL_GATHER:
    case MOE_COMM_ALL_TO_ALL: copy_own(o); return exchange(o);
    case MOE_COMM_BROADCAST: return post(o, BROADCAST, t->recv, t->n, t->peer);
    case MOE_COMM_SEND: return post(o, SEND, t->send, t->n, t->peer);
    case MOE_COMM_RECV: return post(o, RECEIVE, t->recv, t->n, t->peer);
    case MOE_COMM_BARRIER:
      MOE_TRY(next_request(o, &request));
      o->requests++;
      return moe_mpi_check(o->comm->world, MPI_Ibarrier(mpi_of(o)->comm, request), name_of(o));
    case MOE_COMM_OPS: break;
  }
  return MOE_INTERNAL;
}

/* What follows the round that has ended. */
static moe_status next_round(struct mpi_operation *o) {
  if (o->phase == PLAIN) {
    o->ended = true;
    return MOE_OK;
  }
  if (o->phase == GATHER) return next_piece(o);
  sum(o);
  if (o->t.op == MOE_COMM_REDUCE_SCATTER || o->small) return next_piece(o);
  o->phase = GATHER;
  return exchange(o);
}

static void advance(struct mpi_operation *o) {
  while (!o->ended) {
    int all = 0;
    int rc = MPI_Testall(o->requests, o->request, &all, MPI_STATUSES_IGNORE);
    o->status = moe_mpi_check(o->comm->world, rc, name_of(o));
    if (o->status == MOE_OK && !all) return;
    o->requests = 0;
    if (o->status == MOE_OK) o->status = next_round(o);
    if (o->status != MOE_OK) o->ended = true;
  }
}

void moe_mpi_progress(struct moe_world *world) {
  struct mpi_world *w = world->impl;
  for (int32_t i = 0; i < w->slots; i++)
    if (w->slot[i]->busy) advance(w->slot[i]);
}

static const int64_t *copied(int64_t *to, const int64_t *list, int32_t n) {
  return list ? memcpy(to, list, (size_t)n * sizeof *list) : NULL;
}

static void set(struct mpi_operation *o, struct moe_comm *comm, const struct moe_transfer *t) {
  bool pair = t->op == MOE_COMM_SEND || t->op == MOE_COMM_RECV;
  int32_t n = comm->size;
  o->busy = true;
  o->ended = false;
  o->status = MOE_OK;
  o->comm = comm;
  o->t = *t;
  o->each = moe_dtype_bytes(t->dtype);
  o->tag = pair ? 0 : 1 + mpi_of(o)->started++ % TAGS;
  o->phase = PLAIN;
  o->first = o->n = 0;
  o->requests = 0;
  o->t.count = copied(o->count, t->count, n);
  o->t.offset = copied(o->count + n, t->offset, n);
  o->t.send_count = copied(o->count + 2 * n, t->send_count, n);
  o->t.send_offset = copied(o->count + 3 * n, t->send_offset, n);
}

moe_status moe_mpi_start(struct moe_comm *comm, struct moe_stream *stream,
                         const struct moe_transfer *t, struct moe_request *request) {
  (void)stream;
  struct mpi_world *w = comm->world->impl;
  int32_t index;
  MOE_TRY(take_slot(comm->world, &index));
  request->word[0] = (uint64_t)index;
  set(w->slot[index], comm, t);
  return begin(w->slot[index]);
}

moe_status moe_mpi_test(struct moe_comm *comm, struct moe_request *request, bool *done) {
  struct mpi_world *w = comm->world->impl;
  struct mpi_operation *o = w->slot[request->word[0]];
  advance(o);
  *done = o->ended;
  if (o->ended)
    o->busy = false;
  else
    moe_mpi_progress(comm->world);
  return o->status;
}
