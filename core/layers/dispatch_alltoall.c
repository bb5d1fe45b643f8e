/* Rows to the ranks that hold their experts and back: all-to-all over ep, then every etp rank gets
 * the rows of all (they hold slices of the same experts); on the way back the slices' sums. */
#include "layers/dispatch_part.h"

/* Counts and offsets of a transfer of rows of `width` columns. */
static const int64_t *count(const struct moe_parts *p, int64_t width) {
  return width == 1 ? p->rows : p->count;
}
static const int64_t *offset(const struct moe_parts *p, int64_t width) {
  return width == 1 ? p->first : p->offset;
}

static bool sorted(const struct moe_dispatch *d, struct moe_mat m) {
  return moe_dispatch_sorts(d) && m.rows > 0;
}

/* The rows that this etp rank fetches over ep, of all that arrive. */
static struct moe_mat my_part(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                              struct moe_mat all) {
  int32_t me = moe_group_rank(run->groups->of[MOE_GROUP_ETP]);
  return moe_mat_rows(all, plan->host->etp.first[me], plan->host->etp.rows[me]);
}

moe_status moe_to_experts_start(const struct moe_run *run, const struct moe_dispatch_plan *plan,
                                struct moe_mat in, struct moe_mat arrived,
                                struct moe_request *request) {
  const struct moe_dispatch_host *h = plan->host;
  struct moe_mat mine = my_part(run, plan, arrived);
  int64_t w = in.cols;
  MOE_TRY_TRANSFER(
      run, moe_all_to_all_v(run->groups->of[MOE_GROUP_EP], run->stream, in.p, count(&h->send, w),
                            offset(&h->send, w), mine.p, count(&h->recv, w), offset(&h->recv, w),
                            in.dtype, request));
  return MOE_OK;
}

moe_status moe_to_experts_finish(const struct moe_dispatch *d, const struct moe_run *run,
                                 const struct moe_dispatch_plan *plan, struct moe_mat arrived,
                                 struct moe_request *request, struct moe_mat out) {
  const struct moe_dispatch_host *h = plan->host;
  struct moe_group etp = run->groups->of[MOE_GROUP_ETP];
  MOE_TRY_TRANSFER(run, moe_comm_wait(run->stream, request));
  if (moe_group_size(etp) > 1)
    MOE_TRY_TRANSFER(run, moe_all_gather_v(etp, run->stream, my_part(run, plan, arrived).p,
                                           arrived.p, count(&h->etp, arrived.cols),
                                           offset(&h->etp, arrived.cols), arrived.dtype, NULL));
  const struct moe_chunks_args sort = {arrived, out,
                                       moe_dispatch_members(d) * moe_dispatch_local(d),
                                       plan->sort_from, plan->sort_to};
  if (sorted(d, out)) run->k->chunks(run->stream, &sort);
  return MOE_OK;
}

moe_status moe_to_tokens(const struct moe_dispatch *d, const struct moe_run *run,
                         const struct moe_dispatch_plan *plan, struct moe_mat in,
                         struct moe_mat out) {
  const struct moe_dispatch_host *h = plan->host;
  struct moe_group etp = run->groups->of[MOE_GROUP_ETP];
  size_t mark = moe_arena_mark(run->scratch);
  int64_t w = in.cols;
  struct moe_mat back = in;
  if (sorted(d, in)) {
    MOE_TRY(moe_mat_get(run->scratch, in.dtype, in.rows, w, &back));
    const struct moe_chunks_args sort = {in, back, moe_dispatch_members(d) * moe_dispatch_local(d),
                                         plan->back_from, plan->back_to};
    run->k->chunks(run->stream, &sort);
  }
  struct moe_mat mine = my_part(run, plan, back);
  if (moe_group_size(etp) > 1)
    MOE_TRY_TRANSFER(run, moe_reduce_scatter_v(etp, run->stream, back.p, mine.p, count(&h->etp, w),
                                               offset(&h->etp, w), in.dtype, NULL));
  MOE_TRY_TRANSFER(run, moe_all_to_all_v(run->groups->of[MOE_GROUP_EP], run->stream, mine.p,
                                         count(&h->recv, w), offset(&h->recv, w), out.p,
                                         count(&h->send, w), offset(&h->send, w), in.dtype, NULL));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
