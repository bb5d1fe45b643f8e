/* The kernel table: every op the layers use, one entry each; each backend fills the whole table.
 *
 * Rules of all entries:
 *  - An op is enqueued on a stream and returns at once; the CPU's streams run it inline. Ops of one
 *    stream run in order. Nothing is read back to the host except by `stream_sync`.
 *  - Ops do not allocate. Their only hidden memory is the stream's workspace, made with the stream.
 *  - Ops cannot fail on valid arguments; a device fault is kept by the stream and reported by
 *    stream_sync. Layers validate shapes before.
 *  - Matrices are row-major with a leading dimension `ld` in elements. Row counts may be 0.
 *  - Outputs are fully written (garbage or NaN in them before does not matter) unless the entry
 *    says "accumulates".
 *  - Activation dtype is F32 or BF16; weights of norms, biases, probabilities, logits of the
 *    router, gradients of parameters are F32. Reductions run in F32 in a fixed order: results do
 *    not depend on the number of threads.
 *
 * Shape letters: core/README.md. */
#ifndef MOE_KERNELS_H
#define MOE_KERNELS_H

#include "base/base.h"
#include "base/trace.h"
#include "moelua/config.h"

struct moe_stream; /* an in-order queue of one device */
struct moe_event;  /* a point in a stream */

/* A matrix view: rows x cols elements of dtype, row r begins at p + r * ld. Owns nothing. */
struct moe_mat {
  void *p;
  int64_t rows, cols, ld;
  moe_dtype dtype; /* MOE_F32 or MOE_BF16 */
};

static inline size_t moe_dtype_bytes(moe_dtype dtype) {
  switch (dtype) {
    case MOE_F64:
    case MOE_I64: return 8;
    case MOE_F32:
    case MOE_I32: return 4;
    case MOE_BF16:
    case MOE_F16: return 2;
    case MOE_U8: return 1;
  }
  return 0;
}
static inline struct moe_mat moe_mat_of(void *p, moe_dtype dtype, int64_t rows, int64_t cols) {
  return (struct moe_mat){p, rows, cols, cols, dtype};
}
/* Columns [first, first+cols) of m. */
static inline struct moe_mat moe_mat_cols(struct moe_mat m, int64_t first, int64_t cols) {
  m.p = m.p ? (char *)m.p + (size_t)first * moe_dtype_bytes(m.dtype) : NULL;
  m.cols = cols;
  return m;
}
static inline struct moe_mat moe_mat_rows(struct moe_mat m, int64_t first, int64_t rows) {
  m.p = m.p ? (char *)m.p + (size_t)first * (size_t)m.ld * moe_dtype_bytes(m.dtype) : NULL;
  m.rows = rows;
  return m;
}

/* A weight of `groups` matrices (out, in), as the master copy has it (fp32, contiguous
 * (groups, out, in)) and as the matrix products want it (backend's own form, made by
 * weight_prepare once a step, serving all micro-batches). `dtype` is the precision of the product:
 * F32, or BF16 with fp32 accumulation. */
struct moe_weight {
  int64_t groups, out, in;
  moe_dtype dtype;
  const float *master;
  void *prepared;    /* weight_bytes() bytes, MOE_ALIGN-aligned; NULL when weight_bytes() is 0 */
  int64_t rows_hint; /* expected rows per group and product: the backend chooses its form by it */
};

/* Row ranges of a grouped product: group g owns rows [offset[g], offset[g+1]). NULL pointer in an
 * op: one group, all rows. `host` mirrors `device` where the host knows the counts (else NULL; a
 * backend then reads the device copy). On the CPU both are the same pointer. */
struct moe_groups_rows {
  const int32_t *device, *host; /* groups + 1 entries each */
};

struct moe_matmul_args {
  struct moe_mat x; /* forward: (M, in). backward-data: dy (M, out) */
  const struct moe_weight *w;
  struct moe_groups_rows rows;
  struct moe_mat y;  /* forward: (M, out). backward-data: dx (M, in) */
  const float *bias; /* forward only; (groups, out) or NULL */
  bool accumulate;   /* y += */
};

/* A bf16 product (fp32 sums) when dy and x are both BF16, else fp32. */
struct moe_wgrad_args {
  struct moe_mat dy; /* (M, out) */
  struct moe_mat x;  /* (M, in) */
  int64_t groups;
  struct moe_groups_rows rows;
  float *dw;       /* (groups, out, in) contiguous fp32 */
  bool accumulate; /* dw +=; else a group without rows gets exact zeros */
};

struct moe_bias_grad_args {
  struct moe_mat dy;
  float *db; /* (cols) */
  bool accumulate;
};

/* y = x * rsqrt(mean(x^2) + eps) * w over rows of `cols` elements; a row r of the op is part
 * r % inner of matrix row r / inner (inner > 1: per-head norms inside a (T, inner*cols) matrix;
 * x.cols == inner * w's length). With `res`: sum = x + res is written to `sum` and normed instead.
 */
struct moe_rmsnorm_args {
  struct moe_mat x, y;
  struct moe_mat res, sum; /* p NULL: no residual. sum may be x itself */
  const float *w;          /* (x.cols / inner) */
  int64_t inner;           /* >= 1 */
  float eps;
  float *rstd; /* (rows * inner), for backward; NULL: not wanted */
  /* Not NULL: rows of x are parts of longer rows of `total` elements, whose sums of squares these
   * are (rows); inner is 1 and res NULL. */
  const float *row_sum;
  int64_t total;
};
/* out[r] = sum over my part of row r of x^2 or, with dy, of dy * w * x. */
struct moe_rmsnorm_sum_args {
  struct moe_mat x, dy; /* dy.p NULL: squares */
  const float *w;
  float *out; /* (rows) */
};
struct moe_rmsnorm_bwd_args {
  struct moe_mat dy, x; /* x: what was normed (the sum, with a residual) */
  const float *w;
  const float *rstd;
  int64_t inner;
  struct moe_mat dx;   /* may be dy itself */
  struct moe_mat dres; /* p not NULL: dx = norm gradient + dres (gradient that reaches the
                          sum from elsewhere); may be dx itself */
  float *dw;           /* accumulates when dw_accumulate; at most 2^20 elements */
  bool dw_accumulate;
  const float *row_sum; /* as forward's: sums of dy * w * x over the whole rows */
  int64_t total;
};

/* Rotary embedding in place, half-rotation ("rotate_half") pairs (i, i + D/2): x is (T, heads*D).
 * cos/sin: (max_positions, D/2) fp32. inverse: the transposed rotation, i.e. backward. */
struct moe_rope_args {
  struct moe_mat x;
  int64_t heads, head_dim;
  const float *cos_t, *sin_t;
  const int32_t *position; /* (T) */
  bool inverse;
};

/* Causal grouped-query attention over B sequences. Query row b*Sq + i has position q_pos[i], key
 * row b*Sk + j position k_pos[j] (the same for all b); i sees j when k_pos[j] <= q_pos[i] and, with
 * a window, q_pos[i] - k_pos[j] < window. Query head h uses kv head h / (A/G). Scores are never
 * stored whole. lse (B, A, Sq): log-sum-exp of the scaled scores, -INFINITY for a row that sees
 * nothing (its output is 0). */
struct moe_attn_args {
  struct moe_mat q, k, v, o; /* (B*Sq, A*D), (B*Sk, G*D), (B*Sk, G*D), (B*Sq, A*D) */
  int64_t batch, sq, sk, heads, kv_heads, head_dim;
  const int32_t *q_pos, *k_pos; /* (Sq), (Sk), ascending */
  int64_t window;               /* 0: none */
  float scale;
  float *lse; /* may be NULL */
};
struct moe_attn_bwd_args {
  struct moe_attn_args fwd; /* q, k, v, o, lse of the forward pass */
  struct moe_mat d_o, dq, dk, dv;
  void *scratch; /* attn_bwd_bytes() */
};

/* o, lse become those of attention over both sets of keys, the ones that gave o and lse and the
 * ones that gave more and more_lse (softmaxes merge by their log-sum-exp; Milakov & Gimelshein
 * 2018). */
struct moe_attn_merge_args {
  struct moe_mat o; /* (B*S, A*D), F32 */
  float *lse;       /* (B, A, S) */
  struct moe_mat more;
  const float *more_lse;
  int64_t batch, seq, heads, head_dim;
};

/* h = silu(gate) * up [* p of the row]; gu is (N, 2F): gate columns first. */
struct moe_swiglu_args {
  struct moe_mat gu, h;
  const float *prob; /* (N) or NULL */
};
struct moe_swiglu_bwd_args {
  struct moe_mat dh, gu;
  const float *prob;
  struct moe_mat dgu; /* may be gu itself */
  struct moe_mat h;   /* p not NULL: h is computed again into it (for the weight gradient) */
  float *dprob;       /* (N): sum over F of dh * silu(gate) * up; NULL without prob */
};

enum { MOE_EXPERTS_MAX = 1024, MOE_TOPK_MAX = 64 }; /* of the router */

/* Router. Semantics: core/layers/README.md, "Router". Selection is by score + bias, ties by the
 * lower expert; a NaN counts as lower than everything, so the chosen experts are always K different
 * ones in [0, E). */
struct moe_router_args {
  int64_t tokens, experts, topk;
  moe_score_kind score;
  bool renormalise;
  int64_t groups, topk_groups; /* groups <= 1: off */
  float scale;                 /* factor of the probabilities; 1: none */
  const float *bias;           /* (E) or NULL */
  const float *logits;         /* (T, E) */
  float *scores;               /* (T, E): softmax, or sigmoid; kept for backward */
  int32_t *index;              /* (T, K): chosen experts, best first */
  float *prob;                 /* (T, K) */
  float *lse;                  /* (T): logsumexp of the logits, for the z-loss; NULL: not wanted */
  /* Per segment of `segment` consecutive tokens (tokens % segment == 0): sums for the losses. */
  int64_t segment; /* 0: one segment of all tokens, even of none */
  int32_t *count;  /* (tokens/segment, E): times chosen, before dropping */
  float *prob_sum; /* (tokens/segment, E): sum of p_te; p is softmax, or sigmoid scores
                      divided by (their sum over experts + 1e-20) */
};
struct moe_router_bwd_args {
  struct moe_router_args fwd; /* logits: only with sigmoid scores and a z loss */
  const float *dprob;         /* (T, K) */
  /* d(aux)/d(p_te) = aux_weight * aux_count[segment][e]; aux_count NULL: no aux loss. */
  const int32_t *aux_count; /* (tokens/segment, E) or, aux_shared, one row (E) for all */
  bool aux_shared;
  float aux_weight;
  float z_weight; /* d(z)/d(logit) = z_weight * 2 * lse * softmax; 0: no z loss */
  float *dlogits; /* (T, E) */
};

/* What the router's choice becomes: an order of rows, experts ascending, token order kept inside an
 * expert. capacity > 0: at most so many rows per expert; `probs` keeps the highest probabilities
 * (ties: lower token), `position` the earliest tokens. pad: every expert has exactly `capacity`
 * rows, missing ones have token -1. Experts are first .. first + E - 1; pairs of others, or of -1,
 * are not routed: their row is -1 and they do not count as dropped. */
struct moe_route_args {
  int64_t tokens, experts, topk;
  int64_t first;
  int64_t capacity; /* 0: dropless */
  moe_drop_policy drop;
  bool pad;
  const int32_t *index; /* (T, K) */
  const float *prob;    /* (T, K) */
  int32_t *row;         /* (T, K): row of the pair, -1 dropped */
  int32_t *token;       /* (N max): token of the row, -1 padding; rows beyond N: -1 */
  int32_t *slot;        /* (N max): k of the row's pair, -1 padding */
  int32_t *offset;      /* (E + 1): rows of the experts */
  int32_t *dropped;     /* (1): pairs dropped */
  int32_t *kept;        /* (1): pairs that got a row; NULL: not wanted */
  int64_t rows_max;     /* N max: T*K dropless, else E*capacity (at most T*K without pad) */
};

/* out = index where a pair has a row, else -1; *dropped = how many were not -1 and have none. */
struct moe_choices_args {
  int64_t pairs;
  const int32_t *row, *index; /* (pairs) */
  int32_t *out, *dropped;     /* (pairs), (1) */
};
/* out[r] = x[token[r]], zeros where token is -1. */
struct moe_gather_args {
  struct moe_mat x, out; /* (T, H), (N, H) */
  const int32_t *token;  /* (N) */
};
/* Blocks of rows change places: out rows [to[i], to[i+1]) = in rows from[i] and following. to
 * ascends from 0 and ends with the rows of out; blocks may be empty. out is not in. */
struct moe_chunks_args {
  struct moe_mat in, out;
  int64_t chunks;
  const int32_t *from, *to; /* (chunks), (chunks + 1) */
};
/* y[t] = base[t] + sum over k (in order, row[t][k] >= 0) of rows[row[t][k]]. base.p NULL: none.
 * base may be y itself. */
struct moe_combine_args {
  struct moe_mat rows, base, y; /* (N, H), (T, H), (T, H) */
  const int32_t *row;           /* (T, K) */
  int64_t topk;
};
/* to_rows: out[r] = prob[token[r]][slot[r]], 0 for padding. Else: out (T, K) =
 * rows_value[row[t][k]], 0 where dropped. */
struct moe_prob_rows_args {
  bool to_rows;
  int64_t tokens, topk, n_rows;
  const int32_t *row, *token, *slot;
  const float *in;
  float *out;
};

/* y = sigmoid(g) * s [+ base], g one logit per row (the gate of a shared expert). */
struct moe_gate_args {
  const float *logit;        /* (T) */
  struct moe_mat s, base, y; /* (T, H); base.p NULL: none */
};
struct moe_gate_bwd_args {
  struct moe_mat dy, s;
  const float *logit;
  struct moe_mat ds; /* may be s itself */
  float *dlogit;     /* (T) */
};

/* y[t] = w[token[t] - first], zeros for ids outside [first, first + rows of w). w is fp32 master.
 */
struct moe_embed_args {
  const float *w; /* (V_local, H) */
  int64_t rows, first;
  const int32_t *token; /* (T) */
  struct moe_mat y;     /* (T, H) */
};
struct moe_embed_bwd_args {
  struct moe_mat dy;
  const int32_t *token;
  int64_t rows, first;
  float *dw;        /* (V_local, H); always accumulates, token order */
  int32_t *scratch; /* embed_bwd_bytes(T, V_local) */
};

/* out[e] = sum over r of in[r][e]: counts of several segments or micro-batches together. */
struct moe_count_sum_args {
  const int32_t *in; /* (rows, E) */
  int64_t rows, experts;
  int32_t *out; /* (E) */
};

/* Cross entropy over a vocabulary shard, in two halves with a reduction over tp between them.
 * xent_stats: per row max, sum of exp(logit - max) and the label's logit (0 when the label lives in
 * another shard). A masked row is not read: 0, 1 and 0. */
struct moe_xent_args {
  struct moe_mat logits;     /* (R, V_local); cols: the shard's ids without padding columns */
  const int32_t *label;      /* (R), global ids, < 0: masked */
  int64_t first;             /* first id of the shard */
  float *max, *sum, *target; /* (R) */
};
/* loss[r] = log(sum) + max - target; dlogits = scale * (softmax - onehot); both 0 where masked.
 * grad false: dlogits is not touched. dlogits may be logits itself, or of another dtype. */
struct moe_xent_grad_args {
  struct moe_mat logits, dlogits;
  const int32_t *label;
  int64_t first;
  const float *max, *sum, *target;
  float scale;
  float *loss; /* (R); NULL: not wanted */
  bool grad;
};

/* Between the halves: what the shards of a row say together. */
struct moe_xent_merge_args {
  const float *parts; /* (n, 3, R): max, sum, target of every shard */
  int64_t n, rows;
  float *merged; /* (3, R) */
};

/* AdamW (Loshchilov & Hutter 2019) over n contiguous elements: w *= 1 - lr * weight_decay, then
 * w -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps). Gradients are first
 * multiplied by *grad_scale (device memory: loss scale and clipping). */
struct moe_adamw_args {
  float *w, *m, *v;
  const float *g;
  int64_t n;
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;            /* 1 for the first update */
  const float *grad_scale; /* NULL: 1 */
};

struct moe_kernels {
  const char *name; /* "cpu avx512bf16", ... */

  /* ---- device memory, streams, events ---- */
  void *(*mem_alloc)(moe_ctx *ctx, size_t bytes); /* zeroed, 64-byte aligned */
  void (*mem_release)(moe_ctx *ctx, void *p, size_t bytes);
  moe_status (*stream_create)(moe_ctx *ctx, struct moe_stream **out);
  void (*stream_destroy)(struct moe_stream *s);
  moe_status (*stream_sync)(struct moe_stream *s); /* waits; reports a fault of any op before */
  moe_status (*event_create)(moe_ctx *ctx, struct moe_event **out);
  void (*event_destroy)(struct moe_event *e);
  void (*event_record)(struct moe_stream *s, struct moe_event *e);
  void (*event_wait)(struct moe_stream *s, struct moe_event *e); /* s waits, not the host */
  /* Host to device, device to host, device to device; asynchronous. */
  void (*copy)(struct moe_stream *s, void *dst, const void *src, size_t bytes);

  /* ---- plain ---- */
  void (*fill)(struct moe_stream *s, void *dst, uint8_t byte, size_t bytes);
  void (*convert)(struct moe_stream *s, struct moe_mat dst, struct moe_mat src);
  void (*add)(struct moe_stream *s, struct moe_mat dst, struct moe_mat a, struct moe_mat b);
  void (*scale)(struct moe_stream *s, float *x, int64_t n, float factor);
  /* *out (device) [+]= sum of squares of n floats, accumulated in double, fixed order. */
  void (*sumsq)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate);
  /* *out (device) [+]= sum of n floats, in double. */
  void (*sum)(struct moe_stream *s, const float *x, int64_t n, double *out, bool accumulate);

  /* ---- matrix products ---- */
  size_t (*weight_bytes)(const struct moe_weight *w);
  void (*weight_prepare)(struct moe_stream *s, const struct moe_weight *w);
  void (*matmul)(struct moe_stream *s, const struct moe_matmul_args *a);      /* y = x W^T + b */
  void (*matmul_bwd)(struct moe_stream *s, const struct moe_matmul_args *a);  /* dx = dy W */
  void (*matmul_wgrad)(struct moe_stream *s, const struct moe_wgrad_args *a); /* dW = dy^T x */
  void (*bias_grad)(struct moe_stream *s, const struct moe_bias_grad_args *a);
  /* Highest FLOP/s of the arithmetic of the products of dtype, all threads, operands in registers;
   * takes about `seconds`. Blocks. */
  double (*peak)(struct moe_stream *s, moe_dtype dtype, double seconds);

  /* ---- layers' parts ---- */
  void (*rmsnorm_sum)(struct moe_stream *s, const struct moe_rmsnorm_sum_args *a);
  void (*rmsnorm)(struct moe_stream *s, const struct moe_rmsnorm_args *a);
  void (*rmsnorm_bwd)(struct moe_stream *s, const struct moe_rmsnorm_bwd_args *a);
  void (*rope)(struct moe_stream *s, const struct moe_rope_args *a);
  void (*attn)(struct moe_stream *s, const struct moe_attn_args *a);
  size_t (*attn_bwd_bytes)(const struct moe_attn_args *a);
  void (*attn_bwd)(struct moe_stream *s, const struct moe_attn_bwd_args *a);
  void (*attn_merge)(struct moe_stream *s, const struct moe_attn_merge_args *a);
  void (*swiglu)(struct moe_stream *s, const struct moe_swiglu_args *a);
  void (*swiglu_bwd)(struct moe_stream *s, const struct moe_swiglu_bwd_args *a);
  void (*router)(struct moe_stream *s, const struct moe_router_args *a);
  void (*router_bwd)(struct moe_stream *s, const struct moe_router_bwd_args *a);
  void (*count_sum)(struct moe_stream *s, const struct moe_count_sum_args *a);
  void (*route)(struct moe_stream *s, const struct moe_route_args *a);
  void (*choices)(struct moe_stream *s, const struct moe_choices_args *a);
  void (*gather)(struct moe_stream *s, const struct moe_gather_args *a);
  void (*chunks)(struct moe_stream *s, const struct moe_chunks_args *a);
  void (*combine)(struct moe_stream *s, const struct moe_combine_args *a);
  void (*prob_rows)(struct moe_stream *s, const struct moe_prob_rows_args *a);
  void (*gate)(struct moe_stream *s, const struct moe_gate_args *a);
  void (*gate_bwd)(struct moe_stream *s, const struct moe_gate_bwd_args *a);
  void (*embed)(struct moe_stream *s, const struct moe_embed_args *a);
  size_t (*embed_bwd_bytes)(int64_t tokens, int64_t rows);
  void (*embed_bwd)(struct moe_stream *s, const struct moe_embed_bwd_args *a);
  void (*xent_stats)(struct moe_stream *s, const struct moe_xent_args *a);
  void (*xent_merge)(struct moe_stream *s, const struct moe_xent_merge_args *a);
  void (*xent_grad)(struct moe_stream *s, const struct moe_xent_grad_args *a);
  void (*adamw)(struct moe_stream *s, const struct moe_adamw_args *a);
};

/* The CPU table for an instruction set by name ("generic", "avx2", "avx512", "avx512bf16"); NULL or
 * "": the best this processor has. MOE_UNSUPPORTED (with the list) when the processor lacks it. */
moe_status moe_kernels_cpu(moe_ctx *ctx, const char *isa, const struct moe_kernels **out);

#endif
