/* What the backends share. */
#ifndef MOE_COMM_BACKEND_H
#define MOE_COMM_BACKEND_H

#include "comm/combine.h"
#include "comm/comm.h"

/* An empty world; the backend's create function goes on from here. */
moe_status moe_world_make(moe_ctx *ctx, const struct moe_backend *backend, void *impl, int32_t rank,
                          int32_t size, struct moe_world **out);
/* A request has waited too long: breaks the world, and sets the error: which operation of which
 * group, for whom, what that rank was doing. */
moe_status moe_world_hang(struct moe_request *request, double seconds);

/* What a loadable module may call of the library that loads it: it links nothing of ours. */
struct moe_module_host {
  void *(*alloc)(moe_ctx *ctx, size_t bytes); /* zeroed */
  void (*release)(moe_ctx *ctx, void *ptr);
  void *(*map)(moe_ctx *ctx, size_t bytes); /* large memory */
  void (*unmap)(moe_ctx *ctx, void *ptr, size_t bytes);
  moe_status (*fail)(moe_ctx *ctx, moe_status status, const char *fmt, ...) MOE_PRINTF(3, 4);
  moe_combine_fn (*combine_of)(moe_dtype dtype, enum moe_reduce reduce);
};
/* The one symbol a module exports. Fills in where this rank stands and the backend's state. */
typedef moe_status (*moe_module_open_fn)(const struct moe_module_host *host, moe_ctx *ctx,
                                         const void *host_comm, const struct moe_backend **backend,
                                         void **impl, int32_t *rank, int32_t *size);
#define MOE_MPI_MODULE "libmoelua_mpi.so"
#define MOE_MPI_MODULE_OPEN "moe_mpi_open"

#endif
