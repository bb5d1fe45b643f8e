#include "layers/sequence.h"

static bool alone(const struct moe_run *run) { return run->place.tp.size == 1; }

moe_status moe_sequence_part(const struct moe_run *run, struct moe_mat y, struct moe_mat *part) {
  *part = y;
  if (alone(run)) return MOE_OK;
  return moe_mat_get(run->scratch, y.dtype, y.rows * run->place.tp.size, y.cols, part);
}

moe_status moe_sequence_gather(const struct moe_run *run, struct moe_mat x, struct moe_mat *full) {
  int64_t count[MOE_AXIS_MOST], offset[MOE_AXIS_MOST];
  MOE_TRY(moe_sequence_part(run, x, full));
  if (alone(run)) return MOE_OK;
  moe_even_parts(run->place.tp.size, x.rows / run->batch * x.cols, count, offset);
  struct moe_group tp = run->groups->of[MOE_GROUP_TP];
  moe_trace_begin(run->trace, MOE_PART_COMM);
  for (int64_t b = 0; b < run->batch; b++)
    MOE_TRY(moe_all_gather_v(tp, run->stream, moe_mat_rows(x, b * (x.rows / run->batch), 0).p,
                             moe_mat_rows(*full, b * run->seq, 0).p, count, offset, x.dtype, NULL));
  moe_trace_end(run->trace);
  return MOE_OK;
}

moe_status moe_sequence_scatter(const struct moe_run *run, struct moe_mat part, struct moe_mat y) {
  int64_t count[MOE_AXIS_MOST], offset[MOE_AXIS_MOST];
  if (alone(run)) return MOE_OK;
  moe_even_parts(run->place.tp.size, y.rows / run->batch * y.cols, count, offset);
  struct moe_group tp = run->groups->of[MOE_GROUP_TP];
  moe_trace_begin(run->trace, MOE_PART_COMM);
  for (int64_t b = 0; b < run->batch; b++)
    MOE_TRY(moe_reduce_scatter_v(tp, run->stream, moe_mat_rows(part, b * run->seq, 0).p,
                                 moe_mat_rows(y, b * (y.rows / run->batch), 0).p, count, offset,
                                 y.dtype, NULL));
  moe_trace_end(run->trace);
  return MOE_OK;
}
