/* Context parallelism by a ring: at step i rank r holds the keys and values of rank r - i. */
#include "layers/attn_cp.h"

struct ring {
  struct moe_group cp;
  int32_t next, before; /* neighbours in the group */
  struct moe_request send, recv;
};

static struct ring ring_of(const struct moe_run *run) {
  struct moe_coord cp = run->place.cp;
  return (struct ring){.cp = run->groups->of[MOE_GROUP_CP],
                       .next = (cp.rank + 1) % cp.size,
                       .before = (cp.rank + cp.size - 1) % cp.size};
}

/* Starts to pass `from` on and to receive into `to`. */
static moe_status pass(const struct moe_run *run, struct ring *ring, struct moe_mat from,
                       struct moe_mat to) {
  int64_t n = from.rows * from.cols;
  moe_trace_begin(run->trace, MOE_PART_COMM);
  MOE_TRY(moe_send(ring->cp, run->stream, from.p, n, from.dtype, ring->next, &ring->send));
  MOE_TRY(moe_recv(ring->cp, run->stream, to.p, n, to.dtype, ring->before, &ring->recv));
  moe_trace_end(run->trace);
  return MOE_OK;
}

static moe_status arrived(const struct moe_run *run, struct ring *ring) {
  moe_trace_begin(run->trace, MOE_PART_COMM);
  MOE_TRY(moe_comm_wait(run->stream, &ring->send));
  MOE_TRY(moe_comm_wait(run->stream, &ring->recv));
  moe_trace_end(run->trace);
  return MOE_OK;
}

/* args over the block of kv that came from rank `from`. */
static struct moe_attn_args over(const struct moe_run *run, const struct moe_attn_args *args,
                                 struct moe_mat kv, int32_t from) {
  struct moe_attn_args a = *args;
  a.k = moe_mat_cols(kv, 0, args->k.cols);
  a.v = moe_mat_cols(kv, args->k.cols, args->k.cols);
  a.k_pos = run->cp_position + from * run->seq;
  return a;
}

static int32_t origin(const struct moe_run *run, int32_t step) {
  struct moe_coord cp = run->place.cp;
  return (cp.rank + cp.size - step) % cp.size;
}

static void swap(struct moe_mat *a, struct moe_mat *b) {
  struct moe_mat old = *a;
  *a = *b;
  *b = old;
}

/* The first block gives o and lse, later ones are merged in. */
static void attend(const struct moe_run *run, const struct moe_attn_args *args, struct moe_mat kv,
                   int32_t step, struct moe_mat sum, struct moe_mat o, float *lse) {
  struct moe_attn_args a = over(run, args, kv, origin(run, step));
  a.o = o;
  a.lse = step == 0 ? args->lse : lse;
  moe_trace_begin(run->trace, MOE_PART_ATTN);
  run->k->attn(run->stream, &a);
  const struct moe_attn_merge_args merge = {.o = sum,
                                            .lse = args->lse,
                                            .more = o,
                                            .more_lse = lse,
                                            .batch = args->batch,
                                            .seq = args->sq,
                                            .heads = args->heads,
                                            .head_dim = args->head_dim};
  if (step == 0)
    run->k->convert(run->stream, sum, o);
  else
    run->k->attn_merge(run->stream, &merge);
  moe_trace_end(run->trace);
}

moe_status moe_attn_ring_forward(const struct moe_run *run, const struct moe_attn_args *args) {
  struct ring ring = ring_of(run);
  struct moe_mat kv, other, sum, o;
  float *lse;
  MOE_TRY(moe_cp_pack_kv(run, args, &kv));
  MOE_TRY(moe_mat_get(run->scratch, kv.dtype, kv.rows, kv.cols, &other));
  MOE_TRY(moe_mat_get(run->scratch, args->o.dtype, args->o.rows, args->o.cols, &o));
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, args->o.rows, args->o.cols, &sum));
  MOE_GET(run->scratch, lse, args->o.rows * args->heads);
  for (int32_t step = 0; step < run->place.cp.size; step++) {
    bool last = step == run->place.cp.size - 1;
    if (!last) MOE_TRY(pass(run, &ring, kv, other));
    attend(run, args, kv, step, sum, o, lse);
    if (!last) MOE_TRY(arrived(run, &ring));
    swap(&kv, &other);
  }
  run->k->convert(run->stream, args->o, sum);
  return MOE_OK;
}

/* What backward has in its hands. Sums are fp32; those of a block go round with it. */
struct back {
  struct moe_mat kv, other, dkv, dother; /* blocks, and the sums of their gradients */
  struct moe_mat dq, part_q, part_kv;    /* sum over blocks; of the block at hand */
};

static moe_status carve(const struct moe_run *run, const struct moe_attn_bwd_args *args,
                        struct back *w) {
  struct moe_arena *arena = run->scratch;
  int64_t rows = run->rows, kv = 2 * args->fwd.k.cols, q = args->dq.cols;
  MOE_TRY(moe_cp_pack_kv(run, &args->fwd, &w->kv));
  MOE_TRY(moe_mat_get(arena, w->kv.dtype, rows, kv, &w->other));
  MOE_TRY(moe_mat_get(arena, MOE_F32, rows, kv, &w->dkv));
  MOE_TRY(moe_mat_get(arena, MOE_F32, rows, kv, &w->dother));
  MOE_TRY(moe_mat_get(arena, MOE_F32, rows, q, &w->dq));
  MOE_TRY(moe_mat_get(arena, args->dq.dtype, rows, q, &w->part_q));
  return moe_mat_get(arena, args->dk.dtype, rows, kv, &w->part_kv);
}

/* Adds to a sum; the first part is the sum. */
static void collect(const struct moe_run *run, struct moe_mat sum, struct moe_mat part,
                    bool first) {
  if (first)
    run->k->convert(run->stream, sum, part);
  else
    run->k->add(run->stream, sum, sum, part);
}

moe_status moe_attn_ring_backward(const struct moe_run *run, const struct moe_attn_bwd_args *args) {
  struct ring ring = ring_of(run), sums = ring;
  struct back w;
  int64_t cols = args->fwd.k.cols;
  int32_t cp = run->place.cp.size;
  MOE_TRY(carve(run, args, &w));
  for (int32_t step = 0; step < cp; step++) {
    struct moe_attn_bwd_args a = *args;
    if (step < cp - 1) MOE_TRY(pass(run, &ring, w.kv, w.other));
    a.fwd = over(run, &args->fwd, w.kv, origin(run, step));
    a.dq = w.part_q;
    a.dk = moe_mat_cols(w.part_kv, 0, cols);
    a.dv = moe_mat_cols(w.part_kv, cols, cols);
    MOE_TRY(moe_attn_backward_op(run, a));
    collect(run, w.dq, w.part_q, step == 0);
    if (step > 0) { /* waited for in the order they were started */
      MOE_TRY(arrived(run, &sums));
      swap(&w.dkv, &w.dother);
    }
    if (step < cp - 1) MOE_TRY(arrived(run, &ring));
    collect(run, w.dkv, w.part_kv, step == 0);
    MOE_TRY(pass(run, &sums, w.dkv, w.dother)); /* the last time: home */
    swap(&w.kv, &w.other);
  }
  MOE_TRY(arrived(run, &sums));
  run->k->convert(run->stream, args->dq, w.dq);
  run->k->convert(run->stream, args->dk, moe_mat_cols(w.dother, 0, cols));
  run->k->convert(run->stream, args->dv, moe_mat_cols(w.dother, cols, cols));
  return MOE_OK;
}
