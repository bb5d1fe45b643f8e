/* The host's arithmetic of a plan: from the counts of all members to the sizes of every transfer
 * and the orders of chunks. */
#include "base/alloc.h"
#include "layers/dispatch_part.h"

static int64_t *take(int64_t **from, int64_t n) {
  int64_t *p = *from;
  *from += n;
  return p;
}
static struct moe_parts parts(int64_t **from, int64_t n) {
  struct moe_parts p;
  p.rows = take(from, n);
  p.first = take(from, n);
  p.count = take(from, n);
  p.offset = take(from, n);
  return p;
}

int64_t moe_parts_lay_out(struct moe_parts *p, int64_t n, int64_t width) {
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    p->first[i] = at;
    p->count[i] = p->rows[i] * width;
    p->offset[i] = at * width;
    at += p->rows[i];
  }
  return at;
}

moe_status moe_dispatch_host_create(moe_ctx *ctx, const struct moe_dispatch *d, int64_t hidden,
                                    int64_t batch, struct moe_dispatch_host **out) {
  *out = NULL;
  if (!moe_dispatch_travels(d) && !d->across) return MOE_OK;
  int64_t members = moe_dispatch_members(d), chunks = members * moe_dispatch_local(d);
  int64_t peers = d->across ? (int64_t)d->tp.size * d->cp.size : 0;
  int64_t wide = 4 * (2 * (int64_t)d->ep.size + d->etp.size + 3 * members + peers);
  int64_t offsets = members * (d->experts + 1);
  int64_t table = moe_dispatch_local(d) + 1 + 2 * (2 * chunks + 1);
  int64_t order = d->across ? moe_dispatch_order_size(d, batch) : 0;
  size_t bytes = sizeof(struct moe_dispatch_host) + (size_t)wide * sizeof(int64_t) +
                 (size_t)(offsets + table + order) * sizeof(int32_t);
  struct moe_dispatch_host *h = moe_alloc(ctx, bytes);
  if (h == NULL) return MOE_MEMORY;
  int64_t *at = (int64_t *)(void *)(h + 1);
  h->hidden = hidden;
  h->send = parts(&at, d->ep.size);
  h->recv = parts(&at, d->ep.size);
  h->etp = parts(&at, d->etp.size);
  h->pieces = parts(&at, members);
  h->tokens = parts(&at, members);
  h->choices = parts(&at, members);
  h->peers = parts(&at, peers);
  h->offsets = (int32_t *)(void *)at;
  h->table = h->offsets + offsets;
  h->order = h->table + table;
  for (int64_t m = 0; m < members; m++) h->pieces.rows[m] = d->experts + 1;
  moe_parts_lay_out(&h->pieces, members, 1);
  *out = h;
  return MOE_OK;
}

bool moe_group_neighbours(struct moe_group all, struct moe_group axis) {
  const int32_t *a = all.comm->ranks, *b = axis.comm->ranks;
  return moe_group_size(axis) > 1 && a[1] - a[0] == b[1] - b[0];
}

/* How far members lie apart in the etp-ep group along each axis: the order string's order. */
struct strides {
  int64_t etp, ep;
};
static struct strides strides_of(const struct moe_dispatch *d, const struct moe_run *run) {
  const struct moe_group *of = run->groups->of;
  if (moe_group_neighbours(of[MOE_GROUP_ETP_EP], of[MOE_GROUP_ETP]))
    return (struct strides){1, d->etp.size};
  return (struct strides){d->ep.size, 1};
}

/* The counts of all members: exchanged, or known beforehand. */
static moe_status counts(const struct moe_dispatch *d, const struct moe_run *run,
                         struct moe_dispatch_plan *plan) {
  struct moe_dispatch_host *h = plan->host;
  struct moe_group g = run->groups->of[MOE_GROUP_ETP_EP];
  int64_t members = moe_dispatch_members(d), n = d->experts + 1;
  if (d->pad || moe_run_dry(run)) { /* an even load in a dry run */
    for (int64_t m = 0; m < members; m++)
      for (int64_t e = 0; e < n; e++)
        h->offsets[m * n + e] = (int32_t)(plan->sent * e / d->experts);
    if (d->pad) return MOE_OK;
  }
  size_t mark = moe_arena_mark(run->scratch);
  int32_t *all;
  MOE_GET(run->scratch, all, members * n);
  MOE_TRY_TRANSFER(run, moe_all_gather_v(g, run->stream, plan->offset, all, h->pieces.count,
                                         h->pieces.offset, MOE_I32, NULL));
  run->k->copy(run->stream, h->offsets, all, (size_t)(members * n) * sizeof *all);
  moe_arena_reset(run->scratch, mark);
  return run->k->stream_sync(run->stream);
}

static int64_t rows_between(const struct moe_dispatch *d, const struct moe_dispatch_host *h,
                            int64_t member, int64_t first, int64_t last) {
  const int32_t *offset = h->offsets + member * (d->experts + 1);
  return offset[last] - offset[first];
}

int64_t moe_dispatch_most_rows(const struct moe_dispatch *d, int64_t tokens) {
  int64_t local = moe_dispatch_local(d), most = tokens * moe_min64(d->topk, local);
  if (d->capacity_factor <= 0 || d->across) return most;
  return moe_min64(most, local * moe_dispatch_capacity(d, tokens));
}

static void splits(const struct moe_dispatch *d, const struct moe_run *run,
                   struct moe_dispatch_plan *plan) {
  struct moe_dispatch_host *h = plan->host;
  struct strides s = strides_of(d, run);
  int64_t L = moe_dispatch_local(d), first = moe_part_start(d->experts, d->ep);
  int64_t me = d->etp.rank * s.etp + d->ep.rank * s.ep;
  bool worst = moe_run_dry(run) && !run->even && !d->pad;
  for (int64_t j = 0; j < d->ep.size; j++)
    h->send.rows[j] = rows_between(d, h, me, j * L, (j + 1) * L);
  for (int64_t i = 0; i < d->etp.size; i++) {
    h->etp.rows[i] = 0;
    for (int64_t j = 0; j < d->ep.size; j++) {
      int64_t n = rows_between(d, h, i * s.etp + j * s.ep, first, first + L);
      if (worst) n = moe_dispatch_most_rows(d, run->tokens);
      h->etp.rows[i] += n;
      if (i == d->etp.rank) h->recv.rows[j] = n;
    }
  }
  plan->sent = moe_parts_lay_out(&h->send, d->ep.size, h->hidden);
  moe_parts_lay_out(&h->recv, d->ep.size, h->hidden);
  plan->rows = moe_parts_lay_out(&h->etp, d->etp.size, h->hidden);
}

/* Orders of the chunks: `back` holds them as they arrive, `sort` by expert. */
static void orders(const struct moe_dispatch *d, const struct moe_run *run,
                   struct moe_dispatch_host *h) {
  struct strides s = strides_of(d, run);
  int64_t L = moe_dispatch_local(d), first = moe_part_start(d->experts, d->ep);
  int64_t M = moe_dispatch_members(d), n = M * L;
  int32_t *offset = h->table, *sort_from = offset + L + 1, *sort_to = sort_from + n;
  int32_t *back_from = sort_to + n + 1, *back_to = back_from + n;
  back_to[0] = sort_to[0] = offset[0] = 0;
  for (int64_t c = 0; c < n; c++) {
    int64_t i = c / L / d->ep.size, j = c / L % d->ep.size, l = first + c % L;
    back_to[c + 1] = back_to[c] + (int32_t)rows_between(d, h, i * s.etp + j * s.ep, l, l + 1);
  }
  for (int64_t c = 0; c < n; c++) {
    int64_t l = c / M, arrived = c % M * L + l;
    sort_from[c] = back_to[arrived];
    sort_to[c + 1] = sort_to[c] + back_to[arrived + 1] - back_to[arrived];
    back_from[arrived] = sort_to[c];
    if (c % M == M - 1) offset[l + 1] = sort_to[c + 1];
  }
}

moe_status moe_dispatch_splits(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_plan *plan) {
  int64_t L = moe_dispatch_local(d), n = moe_dispatch_members(d) * L;
  int64_t size = L + 1 + 2 * (2 * n + 1);
  int32_t *table;
  MOE_TRY(counts(d, run, plan));
  splits(d, run, plan);
  if (!moe_run_dry(run)) orders(d, run, plan->host);
  MOE_GET(run->saved, table, size);
  run->k->copy(run->stream, table, plan->host->table, (size_t)size * sizeof *table);
  plan->ranges = (struct moe_groups_rows){table, plan->host->table};
  plan->sort_from = table + L + 1;
  plan->sort_to = plan->sort_from + n;
  plan->back_from = plan->sort_to + n + 1;
  plan->back_to = plan->back_from + n;
  return MOE_OK;
}
