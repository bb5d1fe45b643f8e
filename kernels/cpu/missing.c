/* Temporary while the ops are being written: an op without its file yet traps. */
#include "kernels/cpu/ops.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define MISSING __attribute__((weak))

MISSING void MOE_FN(rmsnorm)(struct moe_stream *s, const struct moe_rmsnorm_args *a) { __builtin_trap(); }
MISSING void MOE_FN(rmsnorm_bwd)(struct moe_stream *s, const struct moe_rmsnorm_bwd_args *a) { __builtin_trap(); }
MISSING void MOE_FN(swiglu)(struct moe_stream *s, const struct moe_swiglu_args *a) { __builtin_trap(); }
MISSING void MOE_FN(swiglu_bwd)(struct moe_stream *s, const struct moe_swiglu_bwd_args *a) { __builtin_trap(); }
MISSING void MOE_FN(router)(struct moe_stream *s, const struct moe_router_args *a) { __builtin_trap(); }
MISSING void MOE_FN(router_bwd)(struct moe_stream *s, const struct moe_router_bwd_args *a) { __builtin_trap(); }
MISSING void MOE_FN(route)(struct moe_stream *s, const struct moe_route_args *a) { __builtin_trap(); }
MISSING void MOE_FN(gather)(struct moe_stream *s, const struct moe_gather_args *a) { __builtin_trap(); }
MISSING void MOE_FN(combine)(struct moe_stream *s, const struct moe_combine_args *a) { __builtin_trap(); }
MISSING void MOE_FN(prob_rows)(struct moe_stream *s, const struct moe_prob_rows_args *a) { __builtin_trap(); }
MISSING void MOE_FN(gate)(struct moe_stream *s, const struct moe_gate_args *a) { __builtin_trap(); }
MISSING void MOE_FN(gate_bwd)(struct moe_stream *s, const struct moe_gate_bwd_args *a) { __builtin_trap(); }
MISSING void MOE_FN(embed)(struct moe_stream *s, const struct moe_embed_args *a) { __builtin_trap(); }
MISSING size_t MOE_FN(embed_bwd_bytes)(int64_t tokens, int64_t rows) { __builtin_trap(); }
MISSING void MOE_FN(embed_bwd)(struct moe_stream *s, const struct moe_embed_bwd_args *a) { __builtin_trap(); }
MISSING void MOE_FN(xent_stats)(struct moe_stream *s, const struct moe_xent_args *a) { __builtin_trap(); }
MISSING void MOE_FN(xent_grad)(struct moe_stream *s, const struct moe_xent_grad_args *a) { __builtin_trap(); }
MISSING void MOE_FN(adamw)(struct moe_stream *s, const struct moe_adamw_args *a) { __builtin_trap(); }
