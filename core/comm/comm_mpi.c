/* The MPI backend: a module of its own (libmoelua_mpi.so), so that the library loads and trains on
 * a machine without MPI. */
#include "comm/comm_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

struct mpi_world {
  const struct moe_module_host *host;
  MPI_Comm world;
  bool own; /* initialised here */
  int next_tag;
};
struct mpi_comm {
  MPI_Comm comm;
  int *count[4]; /* of v-operations: send counts, send offsets, receive counts, receive offsets */
};

static const struct moe_module_host *host_of(struct moe_world *world) {
  return ((struct mpi_world *)world->impl)->host;
}

static moe_status check(struct moe_world *world, int rc, const char *what) {
  if (rc == MPI_SUCCESS) return MOE_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(rc, text, &n);
  return host_of(world)->fail(world->ctx, MOE_COMM, "MPI %s on rank %d: %s", what, world->rank,
                              text);
}

static void comm_destroy(struct moe_world *world, void *impl) {
  struct mpi_comm *c = impl;
  if (c->comm != MPI_COMM_NULL) MPI_Comm_free(&c->comm);
  host_of(world)->release(world->ctx, c->count[0]);
  host_of(world)->release(world->ctx, c);
}

static moe_status comm_create(struct moe_world *world, const int32_t *ranks, int32_t size,
                              void **impl) {
  struct mpi_world *w = world->impl;
  struct mpi_comm *c = w->host->alloc(world->ctx, sizeof *c);
  int *count = w->host->alloc(world->ctx, 4 * (size_t)size * sizeof *count);
  if (c == NULL || count == NULL) {
    host_of(world)->release(world->ctx, c);
    host_of(world)->release(world->ctx, count);
    return MOE_MEMORY;
  }
  c->comm = MPI_COMM_NULL;
  for (int i = 0; i < 4; i++) c->count[i] = count + i * size;
  MPI_Group all, part;
  MPI_Comm_group(w->world, &all);
  MPI_Group_incl(all, size, ranks, &part);
  int rc = MPI_Comm_create_group(w->world, part, w->next_tag++ % 16384, &c->comm);
  MPI_Group_free(&part);
  MPI_Group_free(&all);
  moe_status status = check(world, rc, "communicator");
  if (status != MOE_OK) {
    comm_destroy(world, c);
    return status;
  }
  MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
  *impl = c;
  return MOE_OK;
}

static MPI_Datatype type_of(moe_dtype dtype) {
  switch (dtype) {
    case MOE_F32: return MPI_FLOAT;
    case MOE_F64: return MPI_DOUBLE;
    case MOE_I32: return MPI_INT32_T;
    case MOE_I64: return MPI_INT64_T;
    case MOE_U8: return MPI_BYTE;
    case MOE_BF16:
    case MOE_F16: break;
  }
  return MPI_UINT16_T;
}

/* MPI counts in int. */
static moe_status ints(struct moe_comm *comm, int *out, const int64_t *in, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    if (in[i] < 0 || in[i] > INT_MAX)
      return host_of(comm->world)
          ->fail(comm->world->ctx, MOE_COMM, "a transfer of %lld elements is too large",
                 (long long)in[i]);
    out[i] = (int)in[i];
  }
  return MOE_OK;
}

static moe_status start(struct moe_comm *comm, struct moe_stream *stream,
                        const struct moe_transfer *t, struct moe_request *request) {
  (void)stream;
  (void)request;
  struct mpi_comm *c = comm->impl;
  struct moe_world *world = comm->world;
  MPI_Datatype type = type_of(t->dtype);
  MPI_Op op = t->reduce == MOE_MAX ? MPI_MAX : MPI_SUM;
  bool sums = t->op == MOE_COMM_ALL_REDUCE || t->op == MOE_COMM_REDUCE_SCATTER;
  if (sums && moe_dtype_bytes(t->dtype) == 2)
    return host_of(world)->fail(world->ctx, MOE_UNSUPPORTED, "sums of bf16 over MPI");
  const void *send = t->send;
  if (t->count) MOE_TRY(ints(comm, c->count[2], t->count, comm->size));
  if (t->offset) MOE_TRY(ints(comm, c->count[3], t->offset, comm->size));
  if (t->send_count) MOE_TRY(ints(comm, c->count[0], t->send_count, comm->size));
  if (t->send_offset) MOE_TRY(ints(comm, c->count[1], t->send_offset, comm->size));
  size_t each = moe_dtype_bytes(t->dtype);
  int me = comm->rank, n = 0;
  MOE_TRY(ints(comm, &n, &t->n, 1));
  switch (t->op) {
    case MOE_COMM_ALL_REDUCE:
      return check(world, MPI_Allreduce(MPI_IN_PLACE, t->recv, n, type, op, c->comm), "all-reduce");
    case MOE_COMM_ALL_GATHER:
      if (send == (const char *)t->recv + (size_t)t->offset[me] * each) send = MPI_IN_PLACE;
      return check(world,
                   MPI_Allgatherv(send, c->count[2][me], type, t->recv, c->count[2], c->count[3],
                                  type, c->comm),
                   "all-gather");
    case MOE_COMM_REDUCE_SCATTER:
      for (int32_t root = 0; root < comm->size; root++) {
        const void *part = (const char *)send + (size_t)t->offset[root] * each;
        if (root == me && part == t->recv) part = MPI_IN_PLACE;
        MOE_TRY(check(world,
                      MPI_Reduce(part, root == me ? t->recv : NULL, c->count[2][root], type, op,
                                 root, c->comm),
                      "reduce-scatter"));
      }
      return MOE_OK;
    case MOE_COMM_ALL_TO_ALL:
      return check(world,
                   MPI_Alltoallv(send, c->count[0], c->count[1], type, t->recv, c->count[2],
                                 c->count[3], type, c->comm),
                   "all-to-all");
    case MOE_COMM_BROADCAST:
      return check(world, MPI_Bcast(t->recv, n, type, t->peer, c->comm), "broadcast");
    case MOE_COMM_SEND: return check(world, MPI_Send(send, n, type, t->peer, 0, c->comm), "send");
    case MOE_COMM_RECV:
      return check(world, MPI_Recv(t->recv, n, type, t->peer, 0, c->comm, MPI_STATUS_IGNORE),
                   "receive");
    case MOE_COMM_BARRIER: return check(world, MPI_Barrier(c->comm), "barrier");
    case MOE_COMM_OPS: break;
  }
  return MOE_INTERNAL;
}

static moe_status wait(struct moe_comm *comm, struct moe_stream *stream,
                       struct moe_request *request) {
  (void)comm;
  (void)stream;
  (void)request;
  return MOE_OK;
}

static void close_world(struct moe_world *world) {
  struct mpi_world *w = world->impl;
  const struct moe_module_host *host = w->host;
  if (w->own)
    MPI_Finalize();
  else
    MPI_Comm_free(&w->world);
  host->release(world->ctx, w);
}

/* MPI ready for use: the host's communicator, or our own initialisation. */
static moe_status initialize(const struct moe_module_host *host, moe_ctx *ctx,
                             const void *host_comm, bool *own) {
  int initialized = 0, provided;
  MPI_Initialized(&initialized);
  *own = !initialized;
  if (host_comm != NULL && !initialized)
    return host->fail(ctx, MOE_STATE, "a communicator is given, but MPI is not initialised");
  if (host_comm == NULL && initialized)
    return host->fail(ctx, MOE_STATE, "MPI is initialised already: give the host's communicator");
  if (initialized) return MOE_OK;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return host->fail(ctx, MOE_COMM, "MPI cannot be initialised");
  return MOE_OK;
}

moe_status moe_mpi_open(const struct moe_module_host *host, moe_ctx *ctx, const void *host_comm,
                        const struct moe_backend **out, void **impl, int32_t *rank, int32_t *size) {
  static const struct moe_backend backend = {.name = "mpi",
                                             .comm_create = comm_create,
                                             .comm_destroy = comm_destroy,
                                             .start = start,
                                             .wait = wait,
                                             .close = close_world};
  bool own;
  MOE_TRY(initialize(host, ctx, host_comm, &own));
  struct mpi_world *w = host->alloc(ctx, sizeof *w);
  if (w == NULL) return MOE_MEMORY;
  *w = (struct mpi_world){.host = host, .world = MPI_COMM_WORLD, .own = own};
  if (!own && MPI_Comm_dup(*(const MPI_Comm *)host_comm, &w->world) != MPI_SUCCESS) {
    host->release(ctx, w);
    return host->fail(ctx, MOE_COMM, "the host's communicator cannot be copied");
  }
  MPI_Comm_set_errhandler(w->world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(w->world, rank);
  MPI_Comm_size(w->world, size);
  *out = &backend;
  *impl = w;
  return MOE_OK;
}
