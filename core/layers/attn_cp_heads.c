/* Context parallelism by an exchange of rows for heads: each rank gets all rows of a cp-th of the
 * heads, (B*S, n/cp) of (rows, n), in the order of the sequence, and gives the result back. */
#include "layers/attn_cp.h"

enum { PARTS_MOST = 5 };

/* Matrices of heads that cross together. Of `one` (rows, n) the columns [m*n/cp, +n/cp) are of
 * member m; `all` are columns of one matrix (B*S, sum of n/cp). */
struct crossing {
  int32_t parts;
  struct moe_mat one[PARTS_MOST], all[PARTS_MOST];
  struct moe_mat whole; /* all of `all` */
  int64_t cols;         /* of it */
};

static moe_status crossing_make(const struct moe_run *run, struct crossing *c) {
  int32_t cp = run->place.cp.size;
  c->cols = 0;
  for (int32_t i = 0; i < c->parts; i++) c->cols += c->one[i].cols / cp;
  MOE_TRY(moe_mat_get(run->scratch, c->one[0].dtype, run->rows * cp, c->cols, &c->whole));
  int64_t at = 0;
  for (int32_t i = 0; i < c->parts; at += c->one[i].cols / cp, i++)
    c->all[i] = moe_mat_cols(c->whole, at, c->one[i].cols / cp);
  return MOE_OK;
}

/* Copies `one` to member blocks (cp, rows, cols), or back. */
static void pack(const struct moe_run *run, const struct crossing *c, struct moe_mat blocks,
                 bool back) {
  int32_t cp = run->place.cp.size;
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  for (int32_t m = 0; m < cp; m++) {
    struct moe_mat block = moe_mat_rows(blocks, m * run->rows, run->rows);
    int64_t at = 0;
    for (int32_t i = 0; i < c->parts; i++) {
      int64_t n = c->one[i].cols / cp;
      struct moe_mat mine = moe_mat_cols(c->one[i], m * n, n), there = moe_mat_cols(block, at, n);
      run->k->convert(run->stream, back ? mine : there, back ? there : mine);
      at += n;
    }
  }
  moe_trace_end(run->trace);
}

/* Rows of one piece of sequence b: of my blocks, and in the whole. */
static void places(const struct moe_run *run, const struct crossing *c, int64_t b, int piece,
                   int64_t *count, int64_t *block, int64_t *whole) {
  int32_t cp = run->place.cp.size;
  int64_t half = run->seq / 2;
  for (int32_t m = 0; m < cp; m++) {
    count[m] = half * c->cols;
    block[m] = (m * run->rows + b * run->seq + piece * half) * c->cols;
    whole[m] = (b * run->seq * cp + moe_cp_piece_row(run, m, piece)) * c->cols;
  }
}

static moe_status exchange(const struct moe_run *run, const struct crossing *c, bool back) {
  int64_t count[MOE_AXIS_MOST], block[MOE_AXIS_MOST], whole[MOE_AXIS_MOST];
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat blocks;
  MOE_TRY(
      moe_mat_get(run->scratch, c->whole.dtype, run->rows * run->place.cp.size, c->cols, &blocks));
  if (!back) pack(run, c, blocks, false);
  moe_trace_begin(run->trace, MOE_PART_COMM);
  for (int64_t b = 0; b < run->batch; b++)
    for (int piece = 0; piece < 2; piece++) {
      places(run, c, b, piece, count, block, whole);
      MOE_TRY(moe_all_to_all_v(run->groups->of[MOE_GROUP_CP], run->stream,
                               back ? c->whole.p : blocks.p, count, back ? whole : block,
                               back ? blocks.p : c->whole.p, count, back ? block : whole,
                               blocks.dtype, NULL));
    }
  moe_trace_end(run->trace);
  if (back) pack(run, c, blocks, true);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

/* The op on a cp-th of the heads and all rows. lse stays as it is: (B, A/cp, S). */
static struct moe_attn_args share(const struct moe_run *run, const struct moe_attn_args *args,
                                  const struct crossing *in, struct moe_mat o) {
  struct moe_attn_args a = *args;
  int32_t cp = run->place.cp.size;
  a.q = in->all[0], a.k = in->all[1], a.v = in->all[2], a.o = o;
  a.heads /= cp;
  a.kv_heads /= cp;
  a.sq = a.sk = run->seq * cp;
  a.q_pos = a.k_pos = run->all_position;
  return a;
}

moe_status moe_attn_heads_forward(const struct moe_run *run, const struct moe_attn_args *args) {
  struct crossing in = {.parts = 3, .one = {args->q, args->k, args->v}};
  struct crossing out = {.parts = 1, .one = {args->o}};
  MOE_TRY(crossing_make(run, &in));
  MOE_TRY(crossing_make(run, &out));
  MOE_TRY(exchange(run, &in, false));
  struct moe_attn_args mine = share(run, args, &in, out.all[0]);
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  run->k->attn(run->stream, &mine);
  moe_trace_end(run->trace);
  return exchange(run, &out, true);
}

moe_status moe_attn_heads_backward(const struct moe_run *run,
                                   const struct moe_attn_bwd_args *args) {
  const struct moe_attn_args *f = &args->fwd;
  struct crossing in = {.parts = 5, .one = {f->q, f->k, f->v, f->o, args->d_o}};
  struct crossing out = {.parts = 3, .one = {args->dq, args->dk, args->dv}};
  MOE_TRY(crossing_make(run, &in));
  MOE_TRY(crossing_make(run, &out));
  MOE_TRY(exchange(run, &in, false));
  struct moe_attn_bwd_args mine = {.fwd = share(run, f, &in, in.all[3]),
                                   .d_o = in.all[4],
                                   .dq = out.all[0],
                                   .dk = out.all[1],
                                   .dv = out.all[2]};
  MOE_TRY(moe_attn_backward_op(run, mine));
  return exchange(run, &out, true);
}
