/* The entry point of the MPI module. */
#ifndef MOE_COMM_COMM_MPI_H
#define MOE_COMM_COMM_MPI_H

#include "comm/backend.h"

MOE_API moe_status moe_mpi_open(const struct moe_module_host *host, moe_ctx *ctx,
                                const void *host_comm, const struct moe_backend **out, void **impl,
                                int32_t *rank, int32_t *size);

#endif
