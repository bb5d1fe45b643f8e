/* Inside of the MPI module. */
#ifndef MOE_COMM_COMM_MPI_H
#define MOE_COMM_COMM_MPI_H

#include <mpi.h>

#include "comm/backend.h"

MOE_API moe_status moe_mpi_open(const struct moe_module_host *host, moe_ctx *ctx,
                                const void *host_comm, const struct moe_backend **out, void **impl,
                                int32_t *rank, int32_t *size);

struct mpi_operation;

struct mpi_world {
  const struct moe_module_host *host;
  MPI_Comm world;
  bool own;                 /* MPI was initialised here */
  MPI_Win win;              /* the boards of this machine's ranks; MPI_WIN_NULL: none */
  struct moe_board **board; /* by rank of the world; NULL: on another machine */
  int32_t slots;            /* operations so far in flight at once */
  struct mpi_operation **slot;
};

struct mpi_comm {
  MPI_Comm comm;
  int32_t started;   /* operations: their messages' tag */
  const void **part; /* [size]: what is being summed */
};

static inline const struct moe_module_host *mpi_host(struct moe_world *world) {
  return ((struct mpi_world *)world->impl)->host;
}

/* MOE_OK or the error with MPI's text. */
moe_status moe_mpi_check(struct moe_world *world, int rc, const char *what);

/* The backend's operations. */
moe_status moe_mpi_start(struct moe_comm *comm, struct moe_stream *stream,
                         const struct moe_transfer *t, struct moe_request *request);
moe_status moe_mpi_test(struct moe_comm *comm, struct moe_request *request, bool *done);
void moe_mpi_progress(struct moe_world *world);
void moe_mpi_release_slots(struct moe_world *world);

#endif
