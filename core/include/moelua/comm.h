/* Working on several ranks: a context joins the others before its first use. */
#ifndef MOELUA_COMM_H
#define MOELUA_COMM_H

#include "moelua/ctx.h"

MOE_BEGIN

/* Joins the ranks of an MPI job. comm: points to the MPI_Comm of a host that has initialised MPI
 * (it is duplicated); NULL: MPI is initialised here, and finalised with the context, for programs
 * that do not use MPI themselves. MOE_UNSUPPORTED when the MPI module is not there. Collective. */
MOE_API moe_status moe_ctx_join_mpi(moe_ctx *ctx, const void *comm);
/* Longest time to wait for other ranks in one transfer, in seconds (600 unless set; 0: for ever).
 * Then the call fails with MOE_COMM and a text that says which rank is behind and what it did last,
 * and so does every transfer after it: only ending the program is left. */
MOE_API void moe_ctx_comm_timeout(moe_ctx *ctx, double seconds);
/* Whether this rank is the one to tell the user of the last error, so that a job says it once: of
 * one that all ranks agreed on the first rank (all have the same text), of ranks that wait in vain
 * the first that saw it, of any other the rank that has it. */
MOE_API int32_t moe_ctx_tells(const moe_ctx *ctx);
/* This process among the ranks of the context: 0 .. ranks - 1; 0 of 1 when it joined none. */
MOE_API int32_t moe_ctx_rank(const moe_ctx *ctx);
MOE_API int32_t moe_ctx_ranks(const moe_ctx *ctx);

MOE_END

#endif
