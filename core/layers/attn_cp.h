/* Attention over keys that lie on all ranks of cp. A rank has two pieces of every sequence
 * (zig-zag: pieces r and 2cp-1-r of 2cp), so that causal attention is the same work for all. Three
 * ways:
 *
 *   all-gather  keys and values of all ranks are gathered; their gradients reduce-scattered
 *   ring        blocks of keys and values go round while the block at hand is attended to; results
 *               are merged by their log-sum-exp. Gradients of a block travel with it
 *   all-to-all  a rank gets all rows of a cp-th of the heads (Jacobs et al. 2023, "Ulysses")
 *
 * Backward exchanges again what forward did: nothing of other ranks is kept. */
#ifndef MOE_LAYERS_ATTN_CP_H
#define MOE_LAYERS_ATTN_CP_H

#include "layers/run.h"

/* As the ops attn and attn_bwd, of which args hold this rank's rows; kind: moe_cp_kind. */
moe_status moe_attn_cp_forward(const struct moe_run *run, int32_t kind,
                               const struct moe_attn_args *args);
/* args: without scratch. */
moe_status moe_attn_cp_backward(const struct moe_run *run, int32_t kind,
                                const struct moe_attn_bwd_args *args);

/* ---- one for each kind; cp is larger than 1 ---- */
moe_status moe_attn_gather_forward(const struct moe_run *run, const struct moe_attn_args *args);
moe_status moe_attn_gather_backward(const struct moe_run *run,
                                    const struct moe_attn_bwd_args *args);
moe_status moe_attn_ring_forward(const struct moe_run *run, const struct moe_attn_args *args);
moe_status moe_attn_ring_backward(const struct moe_run *run, const struct moe_attn_bwd_args *args);
moe_status moe_attn_heads_forward(const struct moe_run *run, const struct moe_attn_args *args);
moe_status moe_attn_heads_backward(const struct moe_run *run, const struct moe_attn_bwd_args *args);

/* ---- shared ---- */
/* Of every member: the rows of its piece (0 or 1) in a whole sequence. */
int64_t moe_cp_piece_row(const struct moe_run *run, int32_t member, int piece);
/* k and v side by side (rows, 2*G*D), in scratch. */
moe_status moe_cp_pack_kv(const struct moe_run *run, const struct moe_attn_args *args,
                          struct moe_mat *kv);
/* The op's backward, with its scratch from the arena. */
moe_status moe_attn_backward_op(const struct moe_run *run, struct moe_attn_bwd_args args);

#endif
