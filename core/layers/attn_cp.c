#include "layers/attn_cp.h"

int64_t moe_cp_piece_row(const struct moe_run *run, int32_t member, int piece) {
  int32_t number = piece == 0 ? member : 2 * run->place.cp.size - 1 - member;
  return number * (run->seq / 2);
}

moe_status moe_cp_pack_kv(const struct moe_run *run, const struct moe_attn_args *args,
                          struct moe_mat *kv) {
  int64_t cols = args->k.cols;
  MOE_TRY(moe_mat_get(run->scratch, args->k.dtype, args->k.rows, 2 * cols, kv));
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  run->k->convert(run->stream, moe_mat_cols(*kv, 0, cols), args->k);
  run->k->convert(run->stream, moe_mat_cols(*kv, cols, cols), args->v);
  moe_trace_end(run->trace);
  return MOE_OK;
}

moe_status moe_attn_backward_op(const struct moe_run *run, struct moe_attn_bwd_args args) {
  size_t mark = moe_arena_mark(run->scratch);
  args.scratch = moe_arena_get(run->scratch, run->k->attn_bwd_bytes(&args.fwd));
  if (args.scratch == NULL) return MOE_INTERNAL;
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  run->k->attn_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_attn_cp_forward(const struct moe_run *run, int32_t kind,
                               const struct moe_attn_args *args) {
  size_t mark = moe_arena_mark(run->scratch);
  moe_status status = MOE_OK;
  if (run->place.cp.size == 1) {
    moe_trace_begin(run->trace, MOE_PART_ATTN);
    run->k->attn(run->stream, args);
    moe_trace_end(run->trace);
  } else if (kind == MOE_CP_RING) {
    status = moe_attn_ring_forward(run, args);
  } else if (kind == MOE_CP_ALLGATHER) {
    status = moe_attn_gather_forward(run, args);
  } else {
    status = moe_attn_heads_forward(run, args);
  }
  moe_arena_reset(run->scratch, mark);
  return status;
}

moe_status moe_attn_cp_backward(const struct moe_run *run, int32_t kind,
                                const struct moe_attn_bwd_args *args) {
  size_t mark = moe_arena_mark(run->scratch);
  moe_status status;
  if (run->place.cp.size == 1)
    status = moe_attn_backward_op(run, *args);
  else if (kind == MOE_CP_RING)
    status = moe_attn_ring_backward(run, args);
  else if (kind == MOE_CP_ALLGATHER)
    status = moe_attn_gather_backward(run, args);
  else
    status = moe_attn_heads_backward(run, args);
  moe_arena_reset(run->scratch, mark);
  return status;
}
