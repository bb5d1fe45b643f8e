/* Which pairs stay within a capacity, where that is decided before rows are made: for the
 * all-gather kind, and for a capacity of all tokens of tp-cp. Those are put in the order of the
 * sequences, as one process has them: ties and `position` go by it. */
#include "layers/dispatch_part.h"

/* Rows of the micro-batch, gathered (member after member) and in order. A cp rank has pieces c and
 * 2cp-1-c of every sequence, one behind the other, and a tp rank an even part of that. */
struct shape {
  int64_t batch, tokens;        /* T */
  int64_t part;                 /* rows of a sequence on a rank */
  int64_t pieces, piece;        /* of a sequence; rows of one */
  int64_t stride_tp, stride_cp; /* of members */
};

static struct shape shape_of(const struct moe_dispatch *d, const struct moe_run *run) {
  const struct moe_group *of = run->groups->of;
  struct shape s = {.batch = run->batch, .tokens = run->tokens};
  s.part = run->tokens / run->batch;
  s.pieces = d->cp.size > 1 ? 2 * d->cp.size : 1;
  s.piece = s.part * d->tp.size * d->cp.size / s.pieces;
  bool tp_first = moe_group_neighbours(of[MOE_GROUP_TP_CP], of[MOE_GROUP_TP]);
  s.stride_tp = tp_first ? 1 : d->cp.size;
  s.stride_cp = tp_first ? d->tp.size : 1;
  return s;
}

/* Where piece p begins among the rows of its cp rank, and which rank that is. */
static int64_t owner(const struct moe_dispatch *d, int64_t p) {
  return p < d->cp.size ? p : 2 * d->cp.size - 1 - p;
}
static int64_t begin(const struct moe_dispatch *d, const struct shape *s, int64_t p) {
  return p < d->cp.size ? 0 : s->piece;
}

struct chunks {
  int32_t *from, *to;
  int64_t n;
};

/* From gathered rows to rows in order. */
static void into_order(const struct moe_dispatch *d, const struct shape *s, struct chunks *c) {
  int32_t at = 0;
  for (int64_t i = 0; i < s->batch * s->pieces; i++) {
    int64_t b = i / s->pieces, p = i % s->pieces;
    for (int64_t l = 0; l < s->piece;) {
      int64_t j = begin(d, s, p) + l, n = moe_min64(s->part - j % s->part, s->piece - l);
      int64_t member = j / s->part * s->stride_tp + owner(d, p) * s->stride_cp;
      c->from[c->n] = (int32_t)(member * s->tokens + b * s->part + j % s->part);
      c->to[c->n++] = at;
      at += (int32_t)n;
      l += n;
    }
  }
  c->to[c->n] = at;
}

/* From rows in order to this rank's. */
static void out_of_order(const struct moe_dispatch *d, const struct shape *s, struct chunks *c) {
  int64_t whole = s->pieces * s->piece;
  int32_t at = 0;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t i = 0; i < s->part;) {
      int64_t j = d->tp.rank * s->part + i;
      bool second = d->cp.size > 1 && j >= s->piece;
      int64_t p = second ? 2 * d->cp.size - 1 - d->cp.rank : d->cp.rank;
      int64_t n = moe_min64(s->part - i, begin(d, s, p) + s->piece - j);
      c->from[c->n] = (int32_t)(b * whole + p * s->piece + j - begin(d, s, p));
      c->to[c->n++] = at;
      at += (int32_t)n;
      i += n;
    }
  c->to[c->n] = at;
}

static int64_t most_in(const struct moe_dispatch *d, int64_t batch) {
  return batch * 2 * d->cp.size * (d->tp.size + 1);
}
int64_t moe_dispatch_order_size(const struct moe_dispatch *d, int64_t batch) {
  return 2 * most_in(d, batch) + 1 + 2 * (2 * batch) + 1;
}

/* Both orders, on the device. */
static moe_status orders(const struct moe_dispatch *d, const struct moe_run *run,
                         struct moe_dispatch_host *host, struct chunks *in, struct chunks *out) {
  struct shape s = shape_of(d, run);
  int64_t most = most_in(d, run->batch), size = moe_dispatch_order_size(d, run->batch);
  int32_t *table;
  in->from = host->order, in->to = in->from + most, in->n = 0;
  out->from = in->to + most + 1, out->to = out->from + 2 * run->batch, out->n = 0;
  into_order(d, &s, in);
  out_of_order(d, &s, out);
  MOE_GET(run->scratch, table, size);
  run->k->copy(run->stream, table, host->order, (size_t)size * sizeof *table);
  struct chunks *both[] = {in, out};
  for (int i = 0; i < 2; i++) {
    both[i]->from = table + (both[i]->from - host->order);
    both[i]->to = table + (both[i]->to - host->order);
  }
  return MOE_OK;
}

static void move(const struct moe_run *run, int64_t cols, const void *in, int64_t rows_in,
                 struct chunks order, void *out, int64_t rows_out) {
  const struct moe_chunks_args args = {
      .in = moe_mat_of((void *)(uintptr_t)in, MOE_F32, rows_in, cols), /* or int32 */
      .out = moe_mat_of(out, MOE_F32, rows_out, cols),
      .chunks = order.n,
      .from = order.from,
      .to = order.to};
  run->k->chunks(run->stream, &args);
}

/* row (tokens, K) of these choices: -1 where dropped. */
static moe_status drop(const struct moe_dispatch *d, const struct moe_run *run, int64_t tokens,
                       const int32_t *index, const float *prob, int32_t *row) {
  int64_t capacity = moe_dispatch_capacity(d, tokens);
  struct moe_route_args args = {.tokens = tokens,
                                .experts = d->experts,
                                .topk = d->topk,
                                .capacity = capacity,
                                .drop = d->drop,
                                .index = index,
                                .prob = prob,
                                .row = row,
                                .rows_max = moe_min64(tokens * d->topk, d->experts * capacity)};
  MOE_GET(run->scratch, args.token, args.rows_max);
  MOE_GET(run->scratch, args.slot, args.rows_max);
  MOE_GET(run->scratch, args.offset, d->experts + 1);
  MOE_GET(run->scratch, args.dropped, 1);
  run->k->route(run->stream, &args);
  return MOE_OK;
}

static moe_status across(const struct moe_dispatch *d, const struct moe_run *run,
                         struct moe_dispatch_host *host, const int32_t *index, const float *prob,
                         int32_t *row) {
  int64_t members = (int64_t)d->tp.size * d->cp.size, K = d->topk, all = members * run->tokens;
  struct moe_group g = run->groups->of[MOE_GROUP_TP_CP];
  int32_t *gathered, *index_all, *row_all;
  float *prob_all;
  struct chunks in, out;
  for (int64_t m = 0; m < members; m++) host->peers.rows[m] = run->tokens;
  moe_parts_lay_out(&host->peers, members, K);
  MOE_TRY(orders(d, run, host, &in, &out));
  MOE_GET(run->scratch, gathered, all * K);
  MOE_GET(run->scratch, index_all, all * K);
  MOE_GET(run->scratch, prob_all, all * K);
  MOE_GET(run->scratch, row_all, all * K);
  MOE_TRY_TRANSFER(run, moe_all_gather_v(g, run->stream, index, gathered, host->peers.count,
                                         host->peers.offset, MOE_I32, NULL));
  move(run, K, gathered, all, in, index_all, all);
  MOE_TRY_TRANSFER(run, moe_all_gather_v(g, run->stream, prob, gathered, host->peers.count,
                                         host->peers.offset, MOE_F32, NULL));
  move(run, K, gathered, all, in, prob_all, all);
  MOE_TRY(drop(d, run, all, index_all, prob_all, row_all));
  move(run, K, row_all, all, out, row, run->tokens);
  return MOE_OK;
}

moe_status moe_dispatch_choose(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_host *host, const int32_t *index,
                               const float *prob, int32_t *dropped, int32_t *out) {
  size_t mark = moe_arena_mark(run->scratch);
  int32_t *row;
  MOE_GET(run->scratch, row, run->tokens * d->topk);
  if (d->across)
    MOE_TRY(across(d, run, host, index, prob, row));
  else
    MOE_TRY(drop(d, run, run->tokens, index, prob, row));
  const struct moe_choices_args args = {run->tokens * d->topk, row, index, out, dropped};
  run->k->choices(run->stream, &args);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
