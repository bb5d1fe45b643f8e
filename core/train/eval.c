/* Forward passes without gradients: held-out loss, and logits. */
#include <string.h>

#include "base/alloc.h"
#include "train/trainer.h"

/* A forward pass through all stages, for whom it may concern at the end. */
struct pass {
  struct moe_trainer *t;
  const struct moe_run *run;
  bool head;              /* with the head: the loss */
  struct moe_mat at_head; /* without: its input, on the last stage */
};

static moe_status forward(void *arg, const struct moe_instr *i, int32_t slot, void *x, void *y) {
  struct pass *p = arg;
  struct moe_trainer *t = p->t;
  struct moe_mat in = moe_trainer_activation(t, p->run, x);
  struct moe_mat out = moe_trainer_activation(t, p->run, y);
  moe_arena_reset(p->run->saved, 0);
  if (p->head)
    return moe_model_forward(t->model, p->run, i->chunk, t->token, t->label, t->sums + MOE_SUM_LOSS,
                             in, &t->slot[slot], out);
  MOE_TRY(moe_model_hidden(t->model, p->run, i->chunk, t->token, in, &t->slot[slot], &out));
  p->at_head = out;
  return MOE_OK;
}

static moe_status run_pass(struct pass *p) {
  struct moe_pipe_job job = moe_trainer_job(p->t, p->run);
  job.forward = forward;
  job.arg = p;
  moe_trainer_refresh(p->t, p->run);
  return moe_pipe_once(&p->t->pipe, &job);
}

/* What the last stage has found out, on all stages. */
static moe_status tell_stages(struct moe_trainer *t, void *x, int64_t n, moe_dtype dtype) {
  struct moe_group pp = t->groups.of[MOE_GROUP_PP];
  int32_t last = moe_group_size(pp) - 1;
  return last > 0 ? moe_broadcast(pp, t->stream, x, n, dtype, last, NULL) : MOE_OK;
}

/* token NULL: nothing to do here, but experts may be spread over the dp ranks: a masked batch. */
static moe_status eval_batch(struct moe_trainer *t, const int32_t *token, const int32_t *label,
                             int64_t batch) {
  struct moe_run run = moe_trainer_run(t, batch, t->model->seq);
  struct pass pass = {.t = t, .run = &run, .head = true};
  size_t bytes = (size_t)run.rows * sizeof *token;
  run.trace = NULL;
  if (token) {
    moe_trainer_upload_part(t, t->token, token, batch, t->config.seq);
    moe_trainer_upload_part(t, t->label, label, batch, t->config.seq);
  } else {
    t->k->fill(t->stream, t->token, 0, bytes);
    t->k->fill(t->stream, t->label, 0xff, bytes); /* -1 */
  }
  return run_pass(&pass);
}

moe_status moe_trainer_eval(moe_trainer *t, const int32_t *tokens_BS, const int32_t *labels_BS,
                            int64_t sequences, double *loss_sum, int64_t *loss_tokens) {
  int64_t seq = t->config.seq;
  *loss_sum = 0;
  *loss_tokens = 0;
  if (sequences <= 0) return MOE_OK;
  MOE_TRY(moe_trainer_check_batch(t, tokens_BS, labels_BS, sequences * seq, loss_tokens));
  MOE_TRY(moe_trainer_set_positions(t, seq));
  t->k->fill(t->stream, t->sums, 0, sizeof t->sums_host);
  struct moe_coord dp = t->model->place.dp;
  for (int64_t first = 0, n; first < sequences; first += n) { /* a micro-batch for each dp rank */
    int64_t batch = moe_min64(t->model->micro_batch, sequences - first);
    int64_t mine = first + dp.rank * batch;
    bool mine_too = mine + batch <= sequences;
    n = moe_min64(dp.size, (sequences - first) / batch) * batch;
    MOE_TRY(eval_batch(t, mine_too ? tokens_BS + mine * seq : NULL,
                       mine_too ? labels_BS + mine * seq : NULL, batch));
  }
  MOE_TRY(moe_all_reduce(t->groups.of[MOE_GROUP_TP_CP_DP], t->stream, t->sums + MOE_SUM_LOSS, 1,
                         MOE_F64, MOE_SUM, NULL));
  MOE_TRY(tell_stages(t, t->sums + MOE_SUM_LOSS, 1, MOE_F64));
  t->k->copy(t->stream, t->sums_host, t->sums, sizeof t->sums_host);
  MOE_TRY(t->k->stream_sync(t->stream));
  *loss_sum = t->sums_host[MOE_SUM_LOSS];
  return MOE_OK;
}

/* logits (n, V) from what the ranks of tp-cp have of it: mine (rows, V local), rows being those of
 * `position` (of the whole sequence, to n). */
static moe_status join_logits(struct moe_trainer *t, const float *mine, const int32_t *position,
                              int64_t rows, int64_t first, int64_t n, float *logits) {
  const struct moe_head *h = &t->model->head;
  int64_t vocab = t->config.model.vocab, part = h->out.weight.out;
  memset(logits, 0, (size_t)(n * vocab) * sizeof *logits);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = position[r] - first;
    if (at >= 0 && at < n)
      memcpy(logits + at * vocab + h->first, mine + r * part, (size_t)part * sizeof *logits);
  }
  return moe_all_reduce(t->groups.of[MOE_GROUP_TP_CP], t->stream, logits, n * vocab, MOE_F32,
                        MOE_SUM, NULL);
}

/* Rows [*first, +*rows) of this rank hold the positions from `from` to n: all, or the last alone.
 */
static void wanted_rows(const struct moe_trainer *t, int64_t rows_here, int64_t from, int64_t n,
                        int64_t *first, int64_t *rows) {
  *first = 0;
  *rows = rows_here;
  if (from == 0) return;
  for (*rows = 0; *first < rows_here; ++*first) {
    if (t->position_host[*first] != n - 1) continue;
    *rows = 1;
    return;
  }
}

static moe_status head_logits(struct moe_trainer *t, const struct moe_run *run, struct moe_mat x,
                              int64_t from, int64_t n, float *logits) {
  const struct moe_head *h = &t->model->head;
  int64_t first, rows;
  wanted_rows(t, run->rows, from, n, &first, &rows);
  if (moe_group_size(t->groups.of[MOE_GROUP_TP_CP]) == 1) {
    MOE_TRY(moe_head_logits(h, run, x, first, moe_min64(rows, n), logits));
    return t->k->stream_sync(t->stream);
  }
  float *mine = moe_alloc_array(t->ctx, (size_t)(rows * h->out.weight.out) + 1, sizeof *mine);
  if (mine == NULL) return MOE_MEMORY;
  moe_status status = moe_head_logits(h, run, x, first, rows, mine);
  if (status == MOE_OK) status = t->k->stream_sync(t->stream);
  if (status == MOE_OK)
    status = join_logits(t, mine, t->position_host + first, rows, from, n - from, logits);
  moe_release(t->ctx, mine);
  return status;
}

moe_status moe_trainer_logits(moe_trainer *t, const int32_t *tokens, int32_t n, int32_t all,
                              float *logits) {
  if (n < 1 || n > t->config.seq)
    return moe_fail(t->ctx, MOE_INVALID, "logits: %d tokens, this trainer takes 1 .. %d", n,
                    t->config.seq);
  int64_t unmasked, step = moe_trainer_seq_step(t), whole = moe_div_up(n, step) * step;
  MOE_TRY(moe_trainer_check_batch(t, tokens, tokens, n, &unmasked));
  memcpy(t->padded, tokens, (size_t)n * sizeof *tokens);
  memset(t->padded + n, 0, (size_t)(whole - n) * sizeof *tokens); /* nothing before sees them */
  MOE_TRY(moe_trainer_set_positions(t, whole));
  struct moe_run run = moe_trainer_run(t, 1, whole / t->model->place.cp.size);
  struct pass pass = {.t = t, .run = &run};
  int64_t from = all ? 0 : n - 1;
  run.trace = NULL;
  moe_trainer_upload_part(t, t->token, t->padded, 1, whole);
  MOE_TRY(run_pass(&pass));
  if (t->model->has_head) MOE_TRY(head_logits(t, &run, pass.at_head, from, n, logits));
  return tell_stages(t, logits, (n - from) * t->config.model.vocab, MOE_F32);
}
