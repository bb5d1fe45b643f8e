#include "layers/head.h"

#include "layers/param.h"
#include "layers/sequence.h"

moe_status moe_head_params(struct moe_head *h, const moe_model_config *model,
                           const struct moe_embed *embed, struct moe_place place,
                           struct moe_params *params) {
  MOE_TRY(moe_param_norm(params, "", "norm", model->hidden, &h->norm.w));
  if (model->tie_embeddings && embed->w.elements) {
    h->out.w = embed->w;
    return MOE_OK;
  }
  struct moe_slot slot = moe_vocab_slot(model, place.tp, "head");
  return moe_param_declare(params, &slot, &h->out.w);
}

void moe_head_init(struct moe_head *h, const moe_model_config *model, struct moe_place place,
                   moe_dtype dtype, int64_t rows_hint) {
  struct moe_slot slot = moe_vocab_slot(model, place.tp, "head");
  h->first = slot.start[0];
  h->norm.inner = 1;
  h->norm.eps = (float)model->norm_eps;
  moe_linear_init(&h->out, MOE_PART_HEAD, dtype, 1, slot.count[0], model->hidden, rows_hint);
}

/* Rows of a chunk: about 16 MB of logits, 128 rows at least. */
static int64_t chunk_rows(const struct moe_head *h, int64_t rows) {
  int64_t fit = (4 << 20) / moe_max64(1, h->out.weight.out);
  return moe_min64(rows, moe_max64(128, fit / 64 * 64));
}

/* dlogits is logits itself in fp32, else a copy in the products' dtype. */
struct chunk {
  struct moe_mat logits, dlogits;
  float *stats; /* (3, rows): max, sum, target of my part of the vocabulary, then of all of it */
  float *all;   /* (tp, 3, rows) */
  float *loss;
};

static moe_status carve(const struct moe_head *h, const struct moe_run *run, int64_t rows,
                        struct chunk *c) {
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, rows, h->out.weight.out, &c->logits));
  MOE_GET(run->scratch, c->stats, 3 * rows);
  MOE_GET(run->scratch, c->all, 3 * rows * run->place.tp.size);
  MOE_GET(run->scratch, c->loss, rows);
  c->dlogits = c->logits;
  if (run->training && run->dtype != MOE_F32)
    MOE_TRY(moe_mat_get(run->scratch, run->dtype, rows, h->out.weight.out, &c->dlogits));
  return MOE_OK;
}

/* Statistics of the whole vocabulary from those of its parts, in the order of the ranks. */
static moe_status merge_stats(const struct moe_run *run, struct chunk *c, int64_t rows) {
  int64_t count[MOE_AXIS_MOST], offset[MOE_AXIS_MOST];
  int32_t tp = run->place.tp.size;
  if (tp == 1) return MOE_OK;
  moe_even_parts(tp, 3 * rows, count, offset);
  moe_trace_begin(run->trace, MOE_PART_COMM);
  MOE_TRY(moe_all_gather_v(run->groups->of[MOE_GROUP_TP], run->stream, c->stats, c->all, count,
                           offset, MOE_F32, NULL));
  moe_trace_end(run->trace);
  const struct moe_xent_merge_args args = {
      .parts = c->all, .n = tp, .rows = rows, .merged = c->stats};
  run->k->xent_merge(run->stream, &args);
  return MOE_OK;
}

/* One chunk: n (rows, H) normed input; dn (rows, H) its gradient when training, of the ranks of tp
 * a share each. */
static moe_status chunk_forward(const struct moe_head *h, const struct moe_run *run,
                                struct chunk *c, struct moe_mat n, const int32_t *label,
                                double *loss_sum, struct moe_mat dn, bool accumulate) {
  const struct moe_groups_rows whole = {0};
  float *max = c->stats, *sum = max + n.rows, *target = sum + n.rows;
  c->logits.rows = c->dlogits.rows = n.rows;
  moe_linear_forward(&h->out, run, n, whole, c->logits, false);
  const struct moe_xent_args stats = {.logits = c->logits,
                                      .label = label,
                                      .first = h->first,
                                      .max = max,
                                      .sum = sum,
                                      .target = target};
  const struct moe_xent_grad_args grad = {.logits = c->logits,
                                          .dlogits = c->dlogits,
                                          .label = label,
                                          .first = h->first,
                                          .max = max,
                                          .sum = sum,
                                          .target = target,
                                          .scale = run->loss_scale,
                                          .loss = c->loss,
                                          .grad = run->training};
  moe_trace_begin(run->trace, MOE_PART_HEAD);
  run->k->xent_stats(run->stream, &stats);
  MOE_TRY(merge_stats(run, c, n.rows));
  run->k->xent_grad(run->stream, &grad);
  if (run->place.tp.rank == 0) run->k->sum(run->stream, c->loss, n.rows, loss_sum, true);
  moe_trace_end(run->trace);
  if (!run->training) return MOE_OK;
  struct moe_run part = *run; /* later chunks add to the weight gradient of the first */
  part.micro = accumulate ? 1 : 0;
  moe_linear_backward_w(&h->out, &part, c->dlogits, n, whole);
  moe_linear_backward_x(&h->out, run, c->dlogits, whole, dn, false);
  return MOE_OK;
}

moe_status moe_head_forward(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                            const int32_t *label, double *loss_sum, struct moe_head_saved *saved) {
  const struct moe_mat none = {0};
  if (run->training) MOE_TRY(moe_mat_get(run->saved, run->dtype, x.rows, x.cols, &saved->dx));
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_mat n, dn = none;
  struct chunk c;
  float *rstd;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, x.cols, &n));
  MOE_GET(run->scratch, rstd, x.rows);
  moe_norm_forward(&h->norm, run, x, none, none, n, rstd);
  MOE_TRY(moe_sequence_gather(run, n, &n));
  if (run->training) MOE_TRY(moe_sequence_part(run, saved->dx, &dn));
  int64_t step = chunk_rows(h, n.rows);
  MOE_TRY(carve(h, run, step, &c));
  for (int64_t first = 0; first < n.rows; first += step) {
    int64_t rows = moe_min64(step, n.rows - first);
    MOE_TRY(chunk_forward(h, run, &c, moe_mat_rows(n, first, rows), label + first, loss_sum,
                          run->training ? moe_mat_rows(dn, first, rows) : none,
                          moe_run_accumulates(run) || first > 0));
  }
  if (run->training) {
    MOE_TRY(moe_sequence_scatter(run, dn, saved->dx));
    moe_norm_backward(&h->norm, run, saved->dx, x, rstd, none, saved->dx);
  }
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_head_logits(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                           int64_t first, int64_t rows, float *host) {
  const struct moe_mat none = {0};
  size_t mark = moe_arena_mark(run->scratch);
  int64_t step = chunk_rows(h, run->rows), vocab = h->out.weight.out;
  struct moe_mat n, logits;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, x.cols, &n));
  moe_norm_forward(&h->norm, run, x, none, none, n, NULL);
  MOE_TRY(moe_sequence_gather(run, n, &n));
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, step, vocab, &logits));
  for (int64_t at = 0; at < rows; at += step) {
    logits.rows = moe_min64(step, rows - at);
    moe_linear_forward(&h->out, run, moe_mat_rows(n, first + at, logits.rows),
                       (struct moe_groups_rows){0}, logits, false);
    run->k->copy(run->stream, host + at * vocab, logits.p,
                 (size_t)(logits.rows * vocab) * sizeof(float));
  }
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
