/* Context parallelism by gathering keys and values: (B*S, 2*G*D) in the order of the sequence. */
#include "layers/attn_cp.h"

/* Piece `piece` of every member in sequence b of a whole matrix with `cols` columns, in elements.
 */
static void places(const struct moe_run *run, int64_t b, int piece, int64_t cols, int64_t *count,
                   int64_t *offset) {
  int32_t cp = run->place.cp.size;
  for (int32_t m = 0; m < cp; m++) {
    count[m] = run->seq / 2 * cols;
    offset[m] = (b * run->seq * cp + moe_cp_piece_row(run, m, piece)) * cols;
  }
}

/* Between my rows and all of them: gathered, or the sum of all ranks' scattered. */
static moe_status exchange(const struct moe_run *run, bool back, struct moe_mat mine,
                           struct moe_mat all) {
  int64_t count[MOE_AXIS_MOST], offset[MOE_AXIS_MOST];
  struct moe_group cp = run->groups->of[MOE_GROUP_CP];
  moe_trace_begin(run->trace, MOE_PART_COMM);
  for (int64_t i = 0; i < 2 * run->batch; i++) {
    places(run, i / 2, (int)(i % 2), mine.cols, count, offset);
    void *part = moe_mat_rows(mine, i * (run->seq / 2), 0).p;
    if (back)
      MOE_TRY(moe_reduce_scatter_v(cp, run->stream, all.p, part, count, offset, mine.dtype, NULL));
    else
      MOE_TRY(moe_all_gather_v(cp, run->stream, part, all.p, count, offset, mine.dtype, NULL));
  }
  moe_trace_end(run->trace);
  return MOE_OK;
}

/* args over the keys of all ranks. */
static moe_status whole(const struct moe_run *run, const struct moe_attn_args *args,
                        struct moe_attn_args *out) {
  struct moe_mat mine, all;
  int64_t cp = run->place.cp.size, cols = args->k.cols;
  MOE_TRY(moe_mat_get(run->scratch, args->k.dtype, run->rows * cp, 2 * cols, &all));
  size_t mark = moe_arena_mark(run->scratch);
  MOE_TRY(moe_cp_pack_kv(run, args, &mine));
  MOE_TRY(exchange(run, false, mine, all));
  moe_arena_reset(run->scratch, mark);
  *out = *args;
  out->k = moe_mat_cols(all, 0, cols);
  out->v = moe_mat_cols(all, cols, cols);
  out->sk = run->seq * cp;
  out->k_pos = run->all_position;
  return MOE_OK;
}

moe_status moe_attn_gather_forward(const struct moe_run *run, const struct moe_attn_args *args) {
  struct moe_attn_args all;
  MOE_TRY(whole(run, args, &all));
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  run->k->attn(run->stream, &all);
  moe_trace_end(run->trace);
  return MOE_OK;
}

moe_status moe_attn_gather_backward(const struct moe_run *run,
                                    const struct moe_attn_bwd_args *args) {
  struct moe_attn_bwd_args all = *args;
  struct moe_mat d, mine;
  int64_t cols = args->fwd.k.cols;
  MOE_TRY(whole(run, &args->fwd, &all.fwd));
  MOE_TRY(moe_mat_get(run->scratch, args->dk.dtype, all.fwd.k.rows, 2 * cols, &d));
  MOE_TRY(moe_mat_get(run->scratch, args->dk.dtype, run->rows, 2 * cols, &mine));
  all.dk = moe_mat_cols(d, 0, cols);
  all.dv = moe_mat_cols(d, cols, cols);
  MOE_TRY(moe_attn_backward_op(run, all));
  MOE_TRY(exchange(run, true, mine, d));
  run->k->convert(run->stream, args->dk, moe_mat_cols(mine, 0, cols));
  run->k->convert(run->stream, args->dv, moe_mat_cols(mine, cols, cols));
  return MOE_OK;
}
