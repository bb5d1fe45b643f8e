#include "kernels/dry.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static void event_record(struct moe_stream *s, struct moe_event *e) {}
static void event_wait(struct moe_stream *s, struct moe_event *e) {}
static void copy(struct moe_stream *s, void *dst, const void *src, size_t bytes) {}
static void fill(struct moe_stream *s, void *dst, uint8_t byte, size_t bytes) {}
static void convert(struct moe_stream *s, struct moe_mat dst, struct moe_mat src) {}
static void add(struct moe_stream *s, struct moe_mat dst, struct moe_mat a, struct moe_mat b) {}
static void scale(struct moe_stream *s, float *x, int64_t n, float factor) {}
static void sumsq(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate) {}
static void sum(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate) {}
static void weight_prepare(struct moe_stream *s, const struct moe_weight *w) {}
static void matmul(struct moe_stream *s, const struct moe_matmul_args *a) {}
static void matmul_bwd(struct moe_stream *s, const struct moe_matmul_args *a) {}
static void matmul_wgrad(struct moe_stream *s, const struct moe_wgrad_args *a) {}
static void bias_grad(struct moe_stream *s, const struct moe_bias_grad_args *a) {}
static void rmsnorm_sum(struct moe_stream *s, const struct moe_rmsnorm_sum_args *a) {}
static void rmsnorm(struct moe_stream *s, const struct moe_rmsnorm_args *a) {}
static void rmsnorm_bwd(struct moe_stream *s, const struct moe_rmsnorm_bwd_args *a) {}
static void rope(struct moe_stream *s, const struct moe_rope_args *a) {}
static void attn(struct moe_stream *s, const struct moe_attn_args *a) {}
static void attn_bwd(struct moe_stream *s, const struct moe_attn_bwd_args *a) {}
static void attn_merge(struct moe_stream *s, const struct moe_attn_merge_args *a) {}
static void swiglu(struct moe_stream *s, const struct moe_swiglu_args *a) {}
static void swiglu_bwd(struct moe_stream *s, const struct moe_swiglu_bwd_args *a) {}
static void router(struct moe_stream *s, const struct moe_router_args *a) {}
static void router_bwd(struct moe_stream *s, const struct moe_router_bwd_args *a) {}
static void count_sum(struct moe_stream *s, const struct moe_count_sum_args *a) {}
static void route(struct moe_stream *s, const struct moe_route_args *a) {}
static void choices(struct moe_stream *s, const struct moe_choices_args *a) {}
static void gather(struct moe_stream *s, const struct moe_gather_args *a) {}
static void chunks(struct moe_stream *s, const struct moe_chunks_args *a) {}
static void combine(struct moe_stream *s, const struct moe_combine_args *a) {}
static void prob_rows(struct moe_stream *s, const struct moe_prob_rows_args *a) {}
static void gate(struct moe_stream *s, const struct moe_gate_args *a) {}
static void gate_bwd(struct moe_stream *s, const struct moe_gate_bwd_args *a) {}
static void embed(struct moe_stream *s, const struct moe_embed_args *a) {}
static void embed_bwd(struct moe_stream *s, const struct moe_embed_bwd_args *a) {}
static void xent_stats(struct moe_stream *s, const struct moe_xent_args *a) {}
static void xent_merge(struct moe_stream *s, const struct moe_xent_merge_args *a) {}
static void xent_grad(struct moe_stream *s, const struct moe_xent_grad_args *a) {}
static void adamw(struct moe_stream *s, const struct moe_adamw_args *a) {}

struct moe_kernels moe_kernels_dry(const struct moe_kernels *real) {
  struct moe_kernels k = *real;
  k.name = "dry";
  k.event_record = event_record;
  k.event_wait = event_wait;
  k.copy = copy;
  k.fill = fill;
  k.convert = convert;
  k.add = add;
  k.scale = scale;
  k.sumsq = sumsq;
  k.sum = sum;
  k.weight_prepare = weight_prepare;
  k.matmul = matmul;
  k.matmul_bwd = matmul_bwd;
  k.matmul_wgrad = matmul_wgrad;
  k.bias_grad = bias_grad;
  k.rmsnorm_sum = rmsnorm_sum;
  k.rmsnorm = rmsnorm;
  k.rmsnorm_bwd = rmsnorm_bwd;
  k.rope = rope;
  k.attn = attn;
  k.attn_bwd = attn_bwd;
  k.attn_merge = attn_merge;
  k.swiglu = swiglu;
  k.swiglu_bwd = swiglu_bwd;
  k.router = router;
  k.router_bwd = router_bwd;
  k.count_sum = count_sum;
  k.route = route;
  k.choices = choices;
  k.gather = gather;
  k.chunks = chunks;
  k.combine = combine;
  k.prob_rows = prob_rows;
  k.gate = gate;
  k.gate_bwd = gate_bwd;
  k.embed = embed;
  k.embed_bwd = embed_bwd;
  k.xent_stats = xent_stats;
  k.xent_merge = xent_merge;
  k.xent_grad = xent_grad;
  k.adamw = adamw;
  return k;
}
