/* Prototypes of the CPU ops of one instruction set, and their list for the table. */
#ifndef MOE_KERNELS_CPU_OPS_H
#define MOE_KERNELS_CPU_OPS_H

#include "kernels/cpu/host_stream.h"
#include "kernels/cpu/simd.h"

void MOE_FN(convert)(struct moe_stream *s, struct moe_mat dst, struct moe_mat src);
void MOE_FN(add)(struct moe_stream *s, struct moe_mat dst, struct moe_mat a, struct moe_mat b);
void MOE_FN(scale)(struct moe_stream *s, float *x, int64_t n, float factor);
void MOE_FN(sumsq)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate);
void MOE_FN(sum)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate);
size_t MOE_FN(weight_bytes)(const struct moe_weight *w);
void MOE_FN(weight_prepare)(struct moe_stream *s, const struct moe_weight *w);
void MOE_FN(matmul)(struct moe_stream *s, const struct moe_matmul_args *a);
void MOE_FN(matmul_bwd)(struct moe_stream *s, const struct moe_matmul_args *a);
void MOE_FN(matmul_wgrad)(struct moe_stream *s, const struct moe_wgrad_args *a);
void MOE_FN(bias_grad)(struct moe_stream *s, const struct moe_bias_grad_args *a);
double MOE_FN(peak)(struct moe_stream *s, moe_dtype dtype, double seconds);
void MOE_FN(rmsnorm_sum)(struct moe_stream *s, const struct moe_rmsnorm_sum_args *a);
void MOE_FN(rmsnorm)(struct moe_stream *s, const struct moe_rmsnorm_args *a);
void MOE_FN(rmsnorm_bwd)(struct moe_stream *s, const struct moe_rmsnorm_bwd_args *a);
void MOE_FN(rope)(struct moe_stream *s, const struct moe_rope_args *a);
void MOE_FN(attn)(struct moe_stream *s, const struct moe_attn_args *a);
size_t MOE_FN(attn_bwd_bytes)(const struct moe_attn_args *a);
void MOE_FN(attn_bwd)(struct moe_stream *s, const struct moe_attn_bwd_args *a);
void MOE_FN(attn_merge)(struct moe_stream *s, const struct moe_attn_merge_args *a);
void MOE_FN(swiglu)(struct moe_stream *s, const struct moe_swiglu_args *a);
void MOE_FN(swiglu_bwd)(struct moe_stream *s, const struct moe_swiglu_bwd_args *a);
void MOE_FN(router)(struct moe_stream *s, const struct moe_router_args *a);
void MOE_FN(router_bwd)(struct moe_stream *s, const struct moe_router_bwd_args *a);
void MOE_FN(count_sum)(struct moe_stream *s, const struct moe_count_sum_args *a);
void MOE_FN(route)(struct moe_stream *s, const struct moe_route_args *a);
void MOE_FN(choices)(struct moe_stream *s, const struct moe_choices_args *a);
void MOE_FN(gather)(struct moe_stream *s, const struct moe_gather_args *a);
void MOE_FN(chunks)(struct moe_stream *s, const struct moe_chunks_args *a);
void MOE_FN(combine)(struct moe_stream *s, const struct moe_combine_args *a);
void MOE_FN(prob_rows)(struct moe_stream *s, const struct moe_prob_rows_args *a);
void MOE_FN(gate)(struct moe_stream *s, const struct moe_gate_args *a);
void MOE_FN(gate_bwd)(struct moe_stream *s, const struct moe_gate_bwd_args *a);
void MOE_FN(embed)(struct moe_stream *s, const struct moe_embed_args *a);
size_t MOE_FN(embed_bwd_bytes)(int64_t tokens, int64_t rows);
void MOE_FN(embed_bwd)(struct moe_stream *s, const struct moe_embed_bwd_args *a);
void MOE_FN(xent_stats)(struct moe_stream *s, const struct moe_xent_args *a);
void MOE_FN(xent_merge)(struct moe_stream *s, const struct moe_xent_merge_args *a);
void MOE_FN(xent_grad)(struct moe_stream *s, const struct moe_xent_grad_args *a);
void MOE_FN(adamw)(struct moe_stream *s, const struct moe_adamw_args *a);

/* X(name): every op this folder implements; table.c fills the table by it. */
#define MOE_CPU_OPS(X) \
  X(convert) X(add) X(scale) X(sumsq) X(sum) X(weight_bytes) \
  X(weight_prepare) X(matmul) X(matmul_bwd) X(matmul_wgrad) X(bias_grad) X(peak) X(rmsnorm_sum) \
  X(rmsnorm) X(rmsnorm_bwd) X(rope) X(attn) X(attn_bwd_bytes) X(attn_bwd) X(attn_merge) X(swiglu) \
  X(swiglu_bwd) X(router) X(router_bwd) X(count_sum) X(route) X(choices) X(gather) \
  X(chunks) X(combine) X(prob_rows) X(gate) X(gate_bwd) X(embed) X(embed_bwd_bytes) X(embed_bwd) \
  X(xent_stats) X(xent_merge) X(xent_grad) X(adamw)

#endif
