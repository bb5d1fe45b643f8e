/* What the layers of one micro-batch exchange. */
#include "layers/dispatch.h"
#include "plan/traffic.h"

static void add(struct moe_traffic_run *run, enum moe_group_kind kind, enum moe_comm_op op,
                int64_t n, int64_t bytes) {
  run->out->bytes[kind][op] += run->times * n * bytes;
}

void moe_traffic_all_reduce(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                            int64_t bytes) {
  int64_t g = run->size[kind];
  add(run, kind, MOE_COMM_ALL_REDUCE, 2 * n * (g - 1) / g, bytes);
}

void moe_traffic_all_gather(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                            int64_t bytes) {
  add(run, kind, MOE_COMM_ALL_GATHER, (run->size[kind] - 1) * n, bytes);
}

void moe_traffic_reduce_scatter(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                                int64_t bytes) {
  add(run, kind, MOE_COMM_REDUCE_SCATTER, (run->size[kind] - 1) * n, bytes);
}

/* ---- sequence parallelism (Korthikanti et al. 2022): parts of T rows around a layer that tp
 * splits ---- */

static void gather(struct moe_traffic_run *run) {
  moe_traffic_all_gather(run, MOE_GROUP_TP, run->tokens * run->H, run->act);
}
static void scatter(struct moe_traffic_run *run) {
  moe_traffic_reduce_scatter(run, MOE_GROUP_TP, run->tokens * run->H, run->act);
}

void moe_traffic_embed(struct moe_traffic_run *run) {
  scatter(run); /* rows of which each rank has its part of the vocabulary */
  gather(run);  /* their gradient */
}

void moe_traffic_head(struct moe_traffic_run *run) {
  gather(run);
  moe_traffic_all_gather(run, MOE_GROUP_TP, 3 * run->rows, 4); /* max, sum, label's logit */
  scatter(run);                                                /* the gradient, with forward */
}

/* ---- attention ---- */

/* Columns of q, and of k or v, on this rank. */
struct heads {
  int64_t q, kv;
};
static struct heads heads_of(const struct moe_traffic_run *run, const moe_block_config *b) {
  int64_t tp = run->size[MOE_GROUP_TP], D = b->head_dim;
  return (struct heads){b->heads / tp * D, moe_max64(1, b->kv_heads / tp) * D};
}

/* Round a ring: my block of k and v goes cp - 1 hops; in backward it goes again, and the fp32 sum
 * of its gradient cp hops, the last one home. */
static void ring(struct moe_traffic_run *run, struct heads h, bool backward) {
  int64_t cp = run->size[MOE_GROUP_CP], block = run->rows * 2 * h.kv;
  add(run, MOE_GROUP_CP, MOE_COMM_SEND, (cp - 1) * block, run->act);
  if (backward) add(run, MOE_GROUP_CP, MOE_COMM_SEND, cp * block, 4);
}

/* Heads for rows: q, k, v out and o back; in backward q, k, v, o, do out and dq, dk, dv back. All
 * ranks' rows of my cp-th of the columns, less my own. */
static void exchange(struct moe_traffic_run *run, struct heads h, bool backward) {
  int64_t cp = run->size[MOE_GROUP_CP], q = h.q / cp, kv = h.kv / cp;
  int64_t cols = backward ? 3 * q + 2 * kv + q + 2 * kv : q + 2 * kv + q;
  add(run, MOE_GROUP_CP, MOE_COMM_ALL_TO_ALL, (cp - 1) * run->rows * cols, run->act);
}

static void other_keys(struct moe_traffic_run *run, struct heads h, bool backward) {
  if (run->size[MOE_GROUP_CP] == 1) return;
  if (run->cp_kind == MOE_CP_RING) {
    ring(run, h, backward);
  } else if (run->cp_kind == MOE_CP_ALLTOALL) {
    exchange(run, h, backward);
  } else {
    moe_traffic_all_gather(run, MOE_GROUP_CP, run->rows * 2 * h.kv, run->act);
    if (backward) moe_traffic_reduce_scatter(run, MOE_GROUP_CP, run->rows * 2 * h.kv, run->act);
  }
}

/* Forward gathers x and scatters y; backward gathers dy and x once more, and scatters dx. Norms
 * over all heads sum a square a row over tp, for q and for k. */
static void attention(struct moe_traffic_run *run, const moe_block_config *b, bool backward) {
  gather(run);
  if (backward) gather(run);
  for (int i = 0; i < 2 && b->qk_norm == MOE_QK_NORM_ALL; i++)
    moe_traffic_all_reduce(run, MOE_GROUP_TP, run->rows, 4);
  other_keys(run, heads_of(run, b), backward);
  scatter(run);
}

/* Dense ffn and shared expert; as attention. */
static void ffn(struct moe_traffic_run *run, bool backward) {
  gather(run);
  if (backward) gather(run);
  scatter(run);
}

/* ---- the MoE layer ---- */

/* Rows of a rank's tokens for experts [first, last). */
static int64_t rows_for(const struct moe_traffic_run *run, const struct moe_dispatch *d,
                        int32_t rank, int64_t first, int64_t last) {
  const int64_t *rows = run->routing.rows_WE, E = d->experts;
  if (rows == NULL) {
    int64_t sent = moe_dispatch_rows(d, run->tokens);
    return sent * last / E - sent * first / E;
  }
  int64_t n = 0;
  for (int64_t e = first; e < last; e++) n += rows[rank * E + e];
  return n;
}

/* Experts [first, last) of an ep coordinate. */
struct range {
  int64_t first, last;
};
static struct range experts_of(const struct moe_traffic_run *run, const struct moe_dispatch *d,
                               int32_t rank) {
  struct moe_coord ep = moe_place_of(run->layout, rank).ep;
  int64_t first = moe_part_start(d->experts, ep);
  return (struct range){first, first + moe_part_count(d->experts, ep)};
}

/* Rows that reach a rank over ep, its own among them. */
static int64_t arriving(const struct moe_traffic_run *run, const struct moe_dispatch *d,
                        int32_t rank) {
  struct range mine = experts_of(run, d, rank);
  int32_t n = moe_group_members(run->layout, MOE_GROUP_EP, rank, run->ep);
  int64_t rows = 0;
  for (int32_t i = 0; i < n; i++) rows += rows_for(run, d, run->ep[i], mine.first, mine.last);
  return rows;
}

/* What one rank's part of an exchange is, in rows. */
struct rows {
  int64_t out;    /* my tokens' rows for experts of others: sent over ep */
  int64_t in;     /* that came here over ep from others, and go back */
  int64_t here;   /* that came here over ep, from all: each other etp rank gets them */
  int64_t others; /* that came to the other etp ranks: whose sums over etp I give them */
};
static struct rows rows_of(const struct moe_traffic_run *run, const struct moe_dispatch *d) {
  struct range mine = experts_of(run, d, run->rank);
  int64_t own = rows_for(run, d, run->rank, mine.first, mine.last);
  struct rows r = {.out = rows_for(run, d, run->rank, 0, d->experts) - own,
                   .here = arriving(run, d, run->rank)};
  r.in = r.here - own;
  int32_t n = moe_group_members(run->layout, MOE_GROUP_ETP, run->rank, run->etp);
  for (int32_t i = 0; i < n; i++)
    if (run->etp[i] != run->rank) r.others += arriving(run, d, run->etp[i]);
  return r;
}

/* Rows of `width` bytes to the experts: all-to-all, then every etp rank has all of them. */
static void to_experts(struct moe_traffic_run *run, struct rows r, int64_t width) {
  add(run, MOE_GROUP_EP, MOE_COMM_ALL_TO_ALL, r.out, width);
  moe_traffic_all_gather(run, MOE_GROUP_ETP, r.here, width);
}
/* And back. */
static void to_tokens(struct moe_traffic_run *run, struct rows r, int64_t width) {
  if (run->size[MOE_GROUP_ETP] > 1)
    add(run, MOE_GROUP_ETP, MOE_COMM_REDUCE_SCATTER, r.others, width);
  add(run, MOE_GROUP_EP, MOE_COMM_ALL_TO_ALL, r.in, width);
}

/* Forward: counts (unless padding makes them known), rows and probabilities there, results back.
 * Backward: dy there, dx and the gradients of the probabilities back. */
static void exchanged(struct moe_traffic_run *run, const struct moe_dispatch *d, bool backward) {
  struct rows r = rows_of(run, d);
  int64_t row = run->H * run->act, prob = 4;
  if (!backward && !d->pad) moe_traffic_all_gather(run, MOE_GROUP_ETP_EP, d->experts + 1, 4);
  to_experts(run, r, row);
  if (!backward) to_experts(run, r, prob);
  to_tokens(run, r, row);
  if (backward) to_tokens(run, r, prob);
}

/* The all-gather kind, whatever routing says: forward how many tokens there are (unless padding
 * tells), choices and probabilities, tokens, and the sums back; backward dy, and the sums of dx and
 * of the probabilities' gradients. */
static void gathered(struct moe_traffic_run *run, const struct moe_dispatch *d, bool backward) {
  int64_t tokens = run->tokens * run->H, choices = run->tokens * d->topk;
  if (!backward && !d->pad) moe_traffic_all_gather(run, MOE_GROUP_ETP_EP, 1, 4);
  if (!backward) moe_traffic_all_gather(run, MOE_GROUP_ETP_EP, choices, 4 + 4);
  moe_traffic_all_gather(run, MOE_GROUP_ETP_EP, tokens, run->act);
  moe_traffic_reduce_scatter(run, MOE_GROUP_ETP_EP, tokens, run->act);
  if (backward) moe_traffic_reduce_scatter(run, MOE_GROUP_ETP_EP, choices, 4);
}

/* A capacity across the sequence's ranks takes the choices and probabilities of all of them. */
static void dispatch(struct moe_traffic_run *run, const moe_block_config *b, bool backward) {
  const struct moe_dispatch d =
      moe_dispatch_make(&run->dispatch, b->experts, b->topk, moe_place_of(run->layout, run->rank));
  if (d.across && !backward)
    moe_traffic_all_gather(run, MOE_GROUP_TP_CP, run->tokens * d.topk, 4 + 4);
  if (run->size[MOE_GROUP_ETP_EP] == 1) return;
  if (d.kind == MOE_DISPATCH_ALLGATHER)
    gathered(run, &d, backward);
  else
    exchanged(run, &d, backward);
}

/* Counts of an aux loss whose scope tp-cp cut, int32 an expert; one scope a sequence or all. */
static void aux_counts(struct moe_traffic_run *run, const moe_block_config *b) {
  if (b->aux_coef == 0 || b->aux_scope == MOE_AUX_GLOBAL) return;
  int64_t scopes = b->aux_scope == MOE_AUX_SEQUENCE ? run->batch : 1;
  moe_traffic_all_reduce(run, MOE_GROUP_TP_CP, scopes * b->experts, 4);
}

static void feed_forward(struct moe_traffic_run *run, const moe_block_config *b,
                         struct moe_traffic *moe, bool backward) {
  struct moe_traffic *rest = run->out;
  if (b->ffn_kind == MOE_FFN_DENSE) {
    ffn(run, backward);
    return;
  }
  run->out = moe;
  dispatch(run, b, backward);
  if (b->shared_ffn > 0) ffn(run, backward);
  if (backward) aux_counts(run, b);
  run->out = rest;
}

void moe_traffic_block(struct moe_traffic_run *run, const moe_block_config *block,
                       struct moe_traffic *moe) {
  int forwards = block->recompute == MOE_RECOMPUTE_NONE ? 1 : 2;
  for (int i = 0; i < forwards; i++) {
    if (i == 0 || block->recompute == MOE_RECOMPUTE_BLOCK) attention(run, block, false);
    feed_forward(run, block, moe, false);
  }
  feed_forward(run, block, moe, true);
  attention(run, block, true);
}
