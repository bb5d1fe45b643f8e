/* Working on several ranks: a context joins the others before its first use. */
#ifndef MOELUA_COMM_H
#define MOELUA_COMM_H

#include "moelua/config.h"

MOE_BEGIN

/* Joins the ranks of an MPI job. comm: points to the MPI_Comm of a host that has initialised MPI
 * (it is duplicated); NULL: MPI is initialised here, and finalised with the context, for programs
 * that do not use MPI themselves. MOE_UNSUPPORTED when the MPI module is not there. Collective. */
MOE_API moe_status moe_ctx_join_mpi(moe_ctx *ctx, const void *comm);
/* Longest time to wait for other ranks in one transfer, in seconds (600 unless set; 0: for ever).
 * Then the call fails with MOE_COMM and a text that says which rank is behind and what it did last,
 * and so does every transfer after it: only ending the program is left. */
MOE_API void moe_ctx_comm_timeout(moe_ctx *ctx, double seconds);
/* The worst status of all ranks, on all of them, so that one rank's failure is everyone's; text
 * describes this rank's (NULL: moe_ctx_error has it already). All get the same error text: the one
 * of the lowest rank that has the worst status, after "rank 5 (tp 1, cp 0, dp 1, pp 0): " unless
 * all ranks have that text. Collective; a context of one rank just sets the error. */
MOE_API moe_status moe_ctx_agree(moe_ctx *ctx, moe_status mine, const char *text);
/* Who tells the user of the last error, so that a job says it once. */
typedef enum moe_tells {
  MOE_TELLS_OWN, /* this rank; none but it is known to have the error */
  MOE_TELLS_ALL, /* this rank, for all: the text names a rank where it is one's alone */
  MOE_TELLS_NOT  /* another rank */
} moe_tells;
MOE_API moe_tells moe_ctx_tells(const moe_ctx *ctx);
/* "rank 5 (tp 1, cp 0, dp 1, pp 0)", without coordinates before the layout is known. Valid as long
 * as the context. */
MOE_API const char *moe_ctx_rank_name(moe_ctx *ctx);
/* Makes the layout known to messages; a trainer does so too. Not collective. */
MOE_API moe_status moe_ctx_name_ranks(moe_ctx *ctx, const moe_layout_config *layout);
/* This process among the ranks of the context: 0 .. ranks - 1; 0 of 1 when it joined none. */
MOE_API int32_t moe_ctx_rank(const moe_ctx *ctx);
MOE_API int32_t moe_ctx_ranks(const moe_ctx *ctx);

/* ---- traffic: what each rank sent, by kind of groups and operation ---- */

/* Kinds of groups: 0 .. moe_traffic_groups() - 1: those of moe_mesh_get_group in the same order,
 * then "job", all ranks outside of a layout. Operations: 0 .. moe_traffic_ops() - 1. */
MOE_API int32_t moe_traffic_groups(void);
MOE_API int32_t moe_traffic_ops(void);
/* "ep", "etp-ep", ..; "all-to-all", ..: static storage; NULL outside. */
MOE_API const char *moe_traffic_group_name(int32_t group);
MOE_API const char *moe_traffic_op_name(int32_t op);
/* Calls and bytes of this rank since the context has its ranks; calls[group * moe_traffic_ops() +
 * op], bytes alike, n = moe_traffic_groups() * moe_traffic_ops() entries each; either may be NULL.
 * Bytes are what the rank sent to others as the operation's arithmetic has it: all-reduce
 * 2(n-1)/n of its buffer, all-gather n-1 times its part, reduce-scatter, all-to-all and send what
 * is others'. Groups of one rank count nothing. Counts only grow: two readings and their
 * difference tell of what was done in between. Not collective. */
MOE_API moe_status moe_ctx_traffic(moe_ctx *ctx, int64_t *calls, int64_t *bytes, int32_t n);

MOE_END

#endif
