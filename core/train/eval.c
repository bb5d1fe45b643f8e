/* Forward passes without gradients: held-out loss, and logits. */
#include "train/trainer.h"

static moe_status eval_chunk(struct moe_trainer *t, const int32_t *token, const int32_t *label,
                             int64_t batch) {
  struct moe_run run = moe_trainer_run(t, batch, t->model->seq, 0);
  size_t bytes = (size_t)run.tokens * sizeof *token;
  run.trace = NULL;
  t->k->copy(t->stream, t->token, token, bytes);
  t->k->copy(t->stream, t->label, label, bytes);
  moe_trainer_refresh(t, &run);
  moe_arena_reset(run.saved, 0);
  return moe_model_forward(t->model, &run, t->token, t->label, t->sums + MOE_SUM_LOSS, &t->slot[0]);
}

moe_status moe_trainer_eval(moe_trainer *t, const int32_t *tokens_BS, const int32_t *labels_BS,
                            int64_t sequences, double *loss_sum, int64_t *loss_tokens) {
  int64_t seq = t->model->seq;
  *loss_sum = 0;
  *loss_tokens = 0;
  if (sequences <= 0) return MOE_OK;
  MOE_TRY(moe_trainer_check_batch(t, tokens_BS, labels_BS, sequences * seq, loss_tokens));
  t->k->fill(t->stream, t->sums, 0, sizeof t->sums_host);
  for (int64_t first = 0; first < sequences; first += t->model->micro_batch) {
    int64_t batch = moe_min64(t->model->micro_batch, sequences - first);
    MOE_TRY(eval_chunk(t, tokens_BS + first * seq, labels_BS + first * seq, batch));
  }
  t->k->copy(t->stream, t->sums_host, t->sums, sizeof t->sums_host);
  MOE_TRY(t->k->stream_sync(t->stream));
  *loss_sum = t->sums_host[MOE_SUM_LOSS];
  return MOE_OK;
}

moe_status moe_trainer_logits(moe_trainer *t, const int32_t *tokens, int32_t n, int32_t all,
                              float *logits) {
  if (n < 1 || n > t->model->seq)
    return moe_fail(t->ctx, MOE_INVALID, "logits: %d tokens, this trainer takes 1 .. %lld", n,
                    (long long)t->model->seq);
  int64_t unmasked;
  MOE_TRY(moe_trainer_check_batch(t, tokens, tokens, n, &unmasked));
  struct moe_run run = moe_trainer_run(t, 1, n, 0);
  struct moe_mat x;
  run.trace = NULL;
  t->k->copy(t->stream, t->token, tokens, (size_t)n * sizeof *tokens);
  moe_trainer_refresh(t, &run);
  moe_arena_reset(run.saved, 0);
  MOE_TRY(moe_model_hidden(t->model, &run, t->token, &t->slot[0], &x));
  if (!all) x = moe_mat_rows(x, n - 1, 1);
  MOE_TRY(moe_head_logits(&t->model->head, &run, x, logits));
  return t->k->stream_sync(t->stream);
}
