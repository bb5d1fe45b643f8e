/* Working on several ranks: a context joins the others before its first use. */
#ifndef MOELUA_COMM_H
#define MOELUA_COMM_H

#include "moelua/ctx.h"

MOE_BEGIN

/* Joins the ranks of an MPI job. comm: points to the MPI_Comm of a host that has initialised MPI
 * (it is duplicated); NULL: MPI is initialised here, and finalised with the context, for programs
 * that do not use MPI themselves. MOE_UNSUPPORTED when the MPI module is not there. Collective. */
MOE_API moe_status moe_ctx_join_mpi(moe_ctx *ctx, const void *comm);
/* This process among the ranks of the context: 0 .. ranks - 1; 0 of 1 when it joined none. */
MOE_API int32_t moe_ctx_rank(const moe_ctx *ctx);
MOE_API int32_t moe_ctx_ranks(const moe_ctx *ctx);

MOE_END

#endif
