#include "layers/head.h"

#include "layers/param.h"

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
  float *max, *sum, *target, *loss;
};

static moe_status carve(const struct moe_head *h, const struct moe_run *run, int64_t rows,
                        struct chunk *c) {
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, rows, h->out.weight.out, &c->logits));
  MOE_GET(run->scratch, c->max, rows);
  MOE_GET(run->scratch, c->sum, rows);
  MOE_GET(run->scratch, c->target, rows);
  MOE_GET(run->scratch, c->loss, rows);
  c->dlogits = c->logits;
  if (run->training && run->dtype != MOE_F32)
    MOE_TRY(moe_mat_get(run->scratch, run->dtype, rows, h->out.weight.out, &c->dlogits));
  return MOE_OK;
}

/* One chunk: n (rows, H) normed input; dn (rows, H) its gradient when training. */
static void chunk_forward(const struct moe_head *h, const struct moe_run *run, struct chunk *c,
                          struct moe_mat n, const int32_t *label, double *loss_sum,
                          struct moe_mat dn, bool accumulate) {
  const struct moe_groups_rows whole = {0};
  c->logits.rows = c->dlogits.rows = n.rows;
  moe_linear_forward(&h->out, run, n, whole, c->logits, false);
  const struct moe_xent_args stats = {.logits = c->logits,
                                      .label = label,
                                      .first = h->first,
                                      .max = c->max,
                                      .sum = c->sum,
                                      .target = c->target};
  const struct moe_xent_grad_args grad = {.logits = c->logits,
                                          .dlogits = c->dlogits,
                                          .label = label,
                                          .first = h->first,
                                          .max = c->max,
                                          .sum = c->sum,
                                          .target = c->target,
                                          .scale = run->loss_scale,
                                          .loss = c->loss,
                                          .grad = run->training};
  moe_trace_begin(run->trace, MOE_PART_HEAD);
  run->k->xent_stats(run->stream, &stats);
  run->k->xent_grad(run->stream, &grad);
  run->k->sum(run->stream, c->loss, n.rows, loss_sum, true);
  moe_trace_end(run->trace);
  if (!run->training) return;
  struct moe_run part = *run; /* later chunks add to the weight gradient of the first */
  part.micro = accumulate ? 1 : 0;
  moe_linear_backward_w(&h->out, &part, c->dlogits, n, whole);
  moe_linear_backward_x(&h->out, run, c->dlogits, whole, dn, false);
}

moe_status moe_head_forward(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                            const int32_t *label, double *loss_sum, struct moe_head_saved *saved) {
  const struct moe_mat none = {0};
  if (run->training) MOE_TRY(moe_mat_get(run->saved, run->dtype, x.rows, x.cols, &saved->dx));
  size_t mark = moe_arena_mark(run->scratch);
  int64_t step = chunk_rows(h, x.rows);
  struct moe_mat n;
  struct chunk c;
  float *rstd;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, x.cols, &n));
  MOE_GET(run->scratch, rstd, x.rows);
  MOE_TRY(carve(h, run, step, &c));
  moe_norm_forward(&h->norm, run, x, none, none, n, rstd);
  for (int64_t first = 0; first < x.rows; first += step) {
    int64_t rows = moe_min64(step, x.rows - first);
    struct moe_mat dn = run->training ? moe_mat_rows(saved->dx, first, rows) : none;
    chunk_forward(h, run, &c, moe_mat_rows(n, first, rows), label + first, loss_sum, dn,
                  moe_run_accumulates(run) || first > 0);
  }
  if (run->training) moe_norm_backward(&h->norm, run, saved->dx, x, rstd, none, saved->dx);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_head_logits(const struct moe_head *h, const struct moe_run *run, struct moe_mat x,
                           float *host) {
  const struct moe_mat none = {0};
  size_t mark = moe_arena_mark(run->scratch);
  int64_t step = chunk_rows(h, x.rows), vocab = h->out.weight.out;
  struct moe_mat n, logits;
  MOE_TRY(moe_mat_get(run->scratch, run->dtype, x.rows, x.cols, &n));
  MOE_TRY(moe_mat_get(run->scratch, MOE_F32, step, vocab, &logits));
  moe_norm_forward(&h->norm, run, x, none, none, n, NULL);
  for (int64_t first = 0; first < x.rows; first += step) {
    logits.rows = moe_min64(step, x.rows - first);
    moe_linear_forward(&h->out, run, moe_mat_rows(n, first, logits.rows),
                       (struct moe_groups_rows){0}, logits, false);
    run->k->copy(run->stream, host + first * vocab, logits.p,
                 (size_t)(logits.rows * vocab) * sizeof(float));
  }
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
