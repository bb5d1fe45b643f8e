/* What moving rows to their experts costs, against plain copies and raw transfers of the same
 * bytes. Rounds of all measurements in turn, so that they meet the same neighbours; the medians. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ctx.h"
#include "base/rng.h"
#include "layers/dispatch_part.h"
#include "moelua/train.h"

enum { WARMUP = 3, ROUNDS = 15 };
enum { PERMUTE, COPY, DISPATCH, EXCHANGE, MEASURES };

struct bench {
  moe_ctx *ctx;
  moe_dispatch_bench *b;
  struct moe_groups groups;
  struct moe_dispatch here, d; /* experts on this rank; spread over all */
  struct moe_dispatch_host *host;
  struct moe_arena saved, scratch;
  struct moe_run run;
  int32_t *index, *count;
  float *prob;
  struct moe_mat x, y;
  double seconds[MEASURES][ROUNDS];
};

static size_t row_bytes(const struct bench *t) {
  return (size_t)t->x.cols * moe_dtype_bytes(t->x.dtype);
}

/* K different experts a token, evenly spread. */
static moe_status fill(struct bench *t) {
  int64_t n = t->run.tokens, K = t->b->topk;
  struct moe_rng_key key = moe_rng_key((uint64_t)t->ctx->world->rank, "choices");
  MOE_GET(&t->saved, t->index, n * K);
  MOE_GET(&t->saved, t->prob, n * K);
  MOE_GET(&t->saved, t->count, 2);
  MOE_TRY(moe_mat_get(&t->saved, t->run.dtype, n, t->b->hidden, &t->x));
  MOE_TRY(moe_mat_get(&t->saved, t->run.dtype, n, t->b->hidden, &t->y));
  memset(t->x.p, 0, (size_t)n * row_bytes(t));
  memset(t->y.p, 0, (size_t)n * row_bytes(t));
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < K; k++) {
      uint64_t first = moe_rng_u64(key, (uint64_t)i) % (uint64_t)t->b->experts;
      int64_t step = moe_max64(1, t->b->experts / K);
      t->index[i * K + k] = (int32_t)(((int64_t)first + k * step) % t->b->experts);
      t->prob[i * K + k] = 1.0f / (float)K;
    }
  return MOE_OK;
}

/* All of a forward pass but the experts: rows out and home. */
static moe_status there_and_back(struct bench *t, const struct moe_dispatch *d, bool plan_too,
                                 double *seconds) {
  struct moe_dispatch_plan plan = {.host = d->ep.size > 1 ? t->host : NULL};
  struct moe_dispatch_flight flight = {0};
  const struct moe_dispatch_counts counts = {t->count, t->count + 1};
  struct moe_mat rows;
  size_t saved = moe_arena_mark(&t->saved), scratch = moe_arena_mark(&t->scratch);
  double begin = moe_now();
  MOE_TRY(moe_dispatch_plan_make(d, &t->run, t->index, t->prob, counts, &plan));
  if (!plan_too) begin = moe_now();
  MOE_TRY(moe_dispatch_start(d, &t->run, &plan, t->x, t->prob, &flight));
  MOE_TRY(moe_dispatch_finish(d, &t->run, &plan, t->x, &flight, &rows));
  MOE_TRY(moe_combine(d, &t->run, &plan, rows, (struct moe_mat){0}, t->y));
  MOE_TRY(t->run.k->stream_sync(t->run.stream));
  *seconds = moe_now() - begin;
  moe_arena_reset(&t->saved, saved);
  moe_arena_reset(&t->scratch, scratch);
  return MOE_OK;
}

static void copy_rows(struct bench *t, void *to, const void *from, int64_t rows) {
  t->run.k->copy(t->run.stream, to, from, (size_t)rows * row_bytes(t));
}

/* As many bytes read and written as permute (T to N rows) and combine (N to T) touch at least. */
static moe_status plain_copy(struct bench *t, double *seconds) {
  int64_t n = t->run.tokens * t->b->topk, half = (n + t->run.tokens) / 2;
  size_t mark = moe_arena_mark(&t->scratch);
  struct moe_mat from, to;
  MOE_TRY(moe_mat_get(&t->scratch, t->run.dtype, n, t->x.cols, &from));
  MOE_TRY(moe_mat_get(&t->scratch, t->run.dtype, n, t->x.cols, &to));
  double begin = moe_now();
  copy_rows(t, to.p, from.p, n);
  copy_rows(t, from.p, to.p, half);
  MOE_TRY(t->run.k->stream_sync(t->run.stream));
  *seconds = moe_now() - begin;
  moe_arena_reset(&t->scratch, mark);
  return MOE_OK;
}

/* The rows of an even load all-to-all there and back, with a copy for each time rows change their
 * order: by expert, by rank, and both once more. */
static moe_status raw_exchange(struct bench *t, double *seconds) {
  struct moe_group g = t->groups.of[MOE_GROUP_EP];
  int64_t n = t->run.tokens * t->b->topk, members = moe_group_size(g);
  struct moe_parts *p = &t->host->send;
  size_t mark = moe_arena_mark(&t->scratch);
  struct moe_mat from, to;
  MOE_TRY(moe_mat_get(&t->scratch, t->run.dtype, n, t->x.cols, &from));
  MOE_TRY(moe_mat_get(&t->scratch, t->run.dtype, n, t->x.cols, &to));
  for (int64_t m = 0; m < members; m++) p->rows[m] = n * (m + 1) / members - n * m / members;
  moe_parts_lay_out(p, members, t->x.cols);
  for (int64_t m = 0; m < members; m++) t->host->recv.rows[m] = p->rows[moe_group_rank(g)];
  moe_parts_lay_out(&t->host->recv, members, t->x.cols);
  const struct moe_parts *q = &t->host->recv;
  double begin = moe_now();
  copy_rows(t, from.p, to.p, n);
  MOE_TRY(moe_all_to_all_v(g, t->run.stream, from.p, p->count, p->offset, to.p, q->count, q->offset,
                           t->run.dtype, NULL));
  copy_rows(t, from.p, to.p, n);
  copy_rows(t, to.p, from.p, n);
  MOE_TRY(moe_all_to_all_v(g, t->run.stream, to.p, q->count, q->offset, from.p, p->count, p->offset,
                           t->run.dtype, NULL));
  copy_rows(t, to.p, from.p, (n + t->run.tokens) / 2);
  MOE_TRY(t->run.k->stream_sync(t->run.stream));
  *seconds = moe_now() - begin;
  moe_arena_reset(&t->scratch, mark);
  return MOE_OK;
}

static moe_status rounds(struct bench *t) {
  for (int i = -WARMUP; i < ROUNDS; i++) {
    double s[MEASURES] = {0};
    MOE_TRY(there_and_back(t, &t->here, false, &s[PERMUTE]));
    MOE_TRY(plain_copy(t, &s[COPY]));
    MOE_TRY(moe_barrier(t->groups.of[MOE_GROUP_WORLD], t->run.stream));
    if (t->host) MOE_TRY(there_and_back(t, &t->d, true, &s[DISPATCH]));
    MOE_TRY(moe_barrier(t->groups.of[MOE_GROUP_WORLD], t->run.stream));
    if (t->host) MOE_TRY(raw_exchange(t, &s[EXCHANGE]));
    for (int m = 0; m < MEASURES && i >= 0; m++) t->seconds[m][i] = s[m];
  }
  return MOE_OK;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *x) {
  qsort(x, ROUNDS, sizeof *x, by_value);
  return x[ROUNDS / 2];
}

static moe_status measure(struct bench *t) {
  moe_dispatch_bench *b = t->b;
  struct moe_layout layout;
  struct moe_world *world;
  MOE_TRY(moe_ctx_world(t->ctx, &world));
  const moe_layout_config config = {.size = sizeof config, .chunks = 1, .ep = world->size};
  const moe_dispatch_config dispatch = {.size = sizeof dispatch, .kind = MOE_DISPATCH_ALLTOALL};
  const struct moe_coord one = {1, 0};
  MOE_TRY(moe_layout_make(t->ctx, &config, world->size, &layout));
  MOE_TRY(moe_groups_create(world, &layout, &t->groups));
  t->run.place = moe_place_of(&layout, world->rank);
  t->d = moe_dispatch_make(&dispatch, b->experts, b->topk, t->run.place);
  t->here = moe_dispatch_make(&dispatch, b->experts, b->topk,
                              (struct moe_place){one, one, one, one, one, one, one});
  MOE_TRY(moe_dispatch_host_create(t->ctx, &t->d, b->hidden, 1, &t->host));
  /* Every rank's rows may come here; a few buffers of them, of which an even load takes a part. */
  size_t room = (size_t)(b->tokens * (b->topk + 1) * world->size) * (size_t)b->hidden * 8;
  MOE_TRY(moe_arena_create(t->ctx, "bench", room + (64 << 20), &t->saved));
  MOE_TRY(moe_arena_create(t->ctx, "bench scratch", 4 * room + (64 << 20), &t->scratch));
  t->run.groups = &t->groups;
  MOE_TRY(t->run.k->stream_create(t->ctx, &t->run.stream));
  MOE_TRY(fill(t));
  return rounds(t);
}

moe_status moe_bench_dispatch(moe_ctx *ctx, moe_dispatch_bench *b) {
  MOE_CHECK_SIZE(ctx, b);
  if (b->dtype != MOE_F32 && b->dtype != MOE_BF16)
    return moe_fail(ctx, MOE_INVALID, "dispatch of dtype %d: must be MOE_F32 or MOE_BF16",
                    b->dtype);
  if (b->tokens < 1 || b->hidden < 2 || b->topk < 1 || b->topk > b->experts ||
      b->topk > MOE_TOPK_MAX || b->experts > MOE_EXPERTS_MAX)
    return moe_fail(ctx, MOE_INVALID, "dispatch: tokens %d, hidden %d, topk %d of %d experts",
                    b->tokens, b->hidden, b->topk, b->experts);
  struct bench *t = moe_alloc(ctx, sizeof *t);
  if (t == NULL) return MOE_MEMORY;
  t->ctx = ctx;
  t->b = b;
  t->run = (struct moe_run){.ctx = ctx,
                            .saved = &t->saved,
                            .scratch = &t->scratch,
                            .dtype = (moe_dtype)b->dtype,
                            .batch = 1,
                            .tokens = b->tokens};
  moe_status status = moe_kernels_cpu(ctx, ctx->isa, &t->run.k);
  if (status == MOE_OK) status = measure(t);
  b->permute_seconds = median(t->seconds[PERMUTE]);
  b->copy_seconds = median(t->seconds[COPY]);
  b->dispatch_seconds = median(t->seconds[DISPATCH]);
  b->exchange_seconds = median(t->seconds[EXCHANGE]);
  if (t->run.stream) t->run.k->stream_destroy(t->run.stream);
  moe_release(ctx, t->host);
  moe_arena_destroy(&t->saved);
  moe_arena_destroy(&t->scratch);
  moe_release(ctx, t);
  return status;
}
