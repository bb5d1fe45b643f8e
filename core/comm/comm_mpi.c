/* The MPI backend: a module of its own (libmoelua_mpi.so), so that the library loads and trains on
 * a machine without MPI. */
#include "comm/comm_mpi.h"

#include <string.h>

moe_status moe_mpi_check(struct moe_world *world, int rc, const char *what) {
  if (rc == MPI_SUCCESS) return MOE_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(rc, text, &n);
  return mpi_host(world)->fail(world->ctx, MOE_COMM, "MPI %s on rank %d: %s", what, world->rank,
                               text);
}

static void comm_destroy(struct moe_world *world, void *impl) {
  struct mpi_comm *c = impl;
  if (c->comm != MPI_COMM_NULL) MPI_Comm_free(&c->comm);
  mpi_host(world)->release(world->ctx, c->part);
  mpi_host(world)->release(world->ctx, c);
}

/* The same on all members, whatever other groups a rank has made. */
static int tag_of(const int32_t *ranks, int32_t size) {
  uint32_t hash = (uint32_t)size;
  for (int32_t i = 0; i < size; i++) hash = hash * 31 + (uint32_t)ranks[i];
  return (int)(hash % 16384);
}

static moe_status comm_create(struct moe_world *world, const int32_t *ranks, int32_t size,
                              void **impl) {
  struct mpi_world *w = world->impl;
  struct mpi_comm *c = w->host->alloc(world->ctx, sizeof *c);
  const void **list = w->host->alloc(world->ctx, (size_t)size * sizeof *list);
  if (c == NULL || list == NULL) {
    w->host->release(world->ctx, c);
    w->host->release(world->ctx, list);
    return MOE_MEMORY;
  }
  *c = (struct mpi_comm){.comm = MPI_COMM_NULL, .part = list};
  MPI_Group all, part;
  MPI_Comm_group(w->world, &all);
  MPI_Group_incl(all, size, ranks, &part);
  int rc = MPI_Comm_create_group(w->world, part, tag_of(ranks, size), &c->comm);
  MPI_Group_free(&part);
  MPI_Group_free(&all);
  moe_status status = moe_mpi_check(world, rc, "communicator");
  if (status != MOE_OK) {
    comm_destroy(world, c);
    return status;
  }
  MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
  *impl = c;
  return MOE_OK;
}

/* ---- boards ---- */

static struct moe_board *board(struct moe_world *world, int32_t rank) {
  struct mpi_world *w = world->impl;
  return w->board ? w->board[rank] : NULL;
}

/* Ranks of one machine share a window of a board each. Without it (or without memory) a rank that
 * waits knows of itself only, so failures here are none. */
static void share_boards(struct mpi_world *w, moe_ctx *ctx, int32_t size) {
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Group all, part;
  void *mine;
  w->win = MPI_WIN_NULL;
  int rc = MPI_Comm_split_type(w->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  if (rc != MPI_SUCCESS) return;
  MPI_Comm_set_errhandler(here, MPI_ERRORS_RETURN);
  rc = MPI_Win_allocate_shared(sizeof(struct moe_board), 1, MPI_INFO_NULL, here, &mine, &w->win);
  w->board = w->host->alloc(ctx, (size_t)size * sizeof(struct moe_board *));
  if (rc == MPI_SUCCESS && w->board) {
    memset(mine, 0, sizeof(struct moe_board));
    MPI_Comm_group(w->world, &all);
    MPI_Comm_group(here, &part);
    for (int rank = 0; rank < size; rank++) {
      int there, unit;
      MPI_Aint bytes;
      MPI_Group_translate_ranks(all, 1, &rank, part, &there);
      if (there != MPI_UNDEFINED)
        MPI_Win_shared_query(w->win, there, &bytes, &unit, &w->board[rank]);
    }
    MPI_Group_free(&part);
    MPI_Group_free(&all);
  }
  MPI_Barrier(here); /* all boards are cleared */
  MPI_Comm_free(&here);
}

static void close_world(struct moe_world *world) {
  struct mpi_world *w = world->impl;
  const struct moe_module_host *host = w->host;
  moe_mpi_release_slots(world);
  if (!world->broken) { /* else it would wait for the others */
    if (w->win != MPI_WIN_NULL) MPI_Win_free(&w->win);
    if (w->own)
      MPI_Finalize();
    else
      MPI_Comm_free(&w->world);
  }
  host->release(world->ctx, w->board);
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
                                             .start = moe_mpi_start,
                                             .test = moe_mpi_test,
                                             .progress = moe_mpi_progress,
                                             .board = board,
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
  share_boards(w, ctx, *size);
  *out = &backend;
  *impl = w;
  return MOE_OK;
}
