/* One optimizer step: micro-batches forward and backward, gradient norm, the one look at the
 * results, update. */
#include <math.h>

#include "optim/lr.h"
#include "train/trainer.h"

moe_status moe_trainer_check_batch(struct moe_trainer *t, const int32_t *token,
                                   const int32_t *label, int64_t n, int64_t *unmasked) {
  int32_t vocab = t->config.model.vocab;
  *unmasked = 0;
  for (int64_t i = 0; i < n; i++) {
    if (token[i] < 0 || token[i] >= vocab)
      return moe_fail(t->ctx, MOE_INVALID, "token %lld is %d, the vocabulary has 0 .. %d",
                      (long long)i, token[i], vocab - 1);
    if (label[i] >= vocab)
      return moe_fail(t->ctx, MOE_INVALID, "label %lld is %d, the vocabulary has 0 .. %d",
                      (long long)i, label[i], vocab - 1);
    *unmasked += label[i] >= 0;
  }
  return MOE_OK;
}

/* What is left of the sums over ranks, and the squared norm. */
static moe_status sum_gradients(struct moe_trainer *t) {
  moe_trace_begin(&t->trace, MOE_PART_GRAD);
  moe_status status = moe_optim_finish(&t->optim);
  if (status == MOE_OK) status = moe_optim_square(&t->optim, t->sums + MOE_SUM_GRAD);
  moe_trace_end(&t->trace);
  return status;
}

/* The step's one transfer to the host: sums, statistics, router biases. */
static moe_status read_results(struct moe_trainer *t) {
  t->k->copy(t->stream, t->sums_host, t->sums, sizeof t->sums_host);
  if (t->stats.used) t->k->copy(t->stream, t->stats_host, t->stats.base, t->stats.used);
  float *bias = t->bias_host;
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    if (!b->is_moe || b->moe.router.bias.elements == 0) continue;
    struct moe_param p = b->moe.router.bias;
    t->k->copy(t->stream, bias, moe_param_weight(&t->memory, p),
               (size_t)p.elements * sizeof(float));
    bias += p.elements;
  }
  return t->k->stream_sync(t->stream);
}

static moe_status gradients(struct moe_trainer *t, const int32_t *token, const int32_t *label,
                            moe_step_metrics *out) {
  MOE_CHECK_SIZE(t->ctx, out);
  *out = (moe_step_metrics){.size = sizeof *out};
  double begin = moe_now();
  int64_t sequences = t->model->micros * t->model->micro_batch, n = sequences * t->config.seq;
  struct moe_group all = t->groups.of[MOE_GROUP_WORLD], dp = t->groups.of[MOE_GROUP_DP];
  moe_status status = moe_trainer_check_batch(t, token, label, n, &out->loss_tokens);
  MOE_TRY(moe_comm_agree(all, t->stream, status));
  status = moe_trainer_check_share(t, token, label, n);
  MOE_TRY(moe_comm_agree(all, t->stream, status));
  MOE_TRY(moe_all_reduce(dp, t->stream, &out->loss_tokens, 1, MOE_I64, MOE_SUM, NULL));
  moe_trace_reset(&t->trace);
  struct moe_run run = moe_trainer_run(t, t->model->micro_batch, t->model->seq);
  run.training = true;
  run.loss_scale = out->loss_tokens > 0 ? (float)(1.0 / (double)out->loss_tokens) : 0;
  MOE_TRY(moe_trainer_set_positions(t, t->config.seq));
  moe_trainer_upload_part(t, t->token, token, sequences, t->config.seq);
  moe_trainer_upload_part(t, t->label, label, sequences, t->config.seq);
  t->k->fill(t->stream, t->sums, 0, sizeof t->sums_host);
  moe_trainer_refresh(t, &run);
  MOE_TRY(moe_trainer_micro_batches(t, &run));
  MOE_TRY(sum_gradients(t));
  /* Only the last stage has a loss. */
  MOE_TRY(moe_all_reduce(all, t->stream, t->sums + MOE_SUM_LOSS, 1, MOE_F64, MOE_SUM, NULL));
  MOE_TRY(read_results(t));

  out->step = t->state.step;
  out->tokens = n * moe_group_size(dp);
  out->loss = out->loss_tokens > 0 ? t->sums_host[MOE_SUM_LOSS] / (double)out->loss_tokens : 0;
  out->grad_norm = sqrt(t->sums_host[MOE_SUM_GRAD]);
  MOE_TRY(moe_trainer_routing_metrics(t, out));
  out->seconds = moe_now() - begin;
  return MOE_OK;
}

static void fill_parts(const struct moe_trainer *t, moe_step_metrics *out) {
  for (int i = 0; i < MOE_PART_COUNT; i++) {
    out->part_seconds[i] = t->trace.seconds[i];
    out->part_flops[i] = t->trace.flops[i];
    out->flops += t->trace.flops[i];
  }
}

moe_status moe_trainer_gradients(moe_trainer *t, const int32_t *tokens_BS, const int32_t *labels_BS,
                                 moe_step_metrics *out) {
  MOE_TRY(gradients(t, tokens_BS, labels_BS, out));
  fill_parts(t, out);
  return MOE_OK;
}

static moe_status update(struct moe_trainer *t, const moe_step_metrics *m) {
  const moe_optimizer_config *config = &t->config.optimizer;
  float scale = 1;
  if (config->clip > 0 && m->grad_norm > config->clip)
    scale = (float)(config->clip / (m->grad_norm + 1e-6));
  moe_trace_begin(&t->trace, MOE_PART_OPTIM);
  t->k->copy(t->stream, t->grad_scale, &scale, sizeof scale);
  moe_status status = moe_optim_update(&t->optim, config, m->lr, t->state.step + 1, t->grad_scale);
  moe_trace_end(&t->trace);
  return status;
}

/* All ranks have the same sums, and come here together. */
static moe_status not_finite(struct moe_trainer *t, const moe_step_metrics *m) {
  moe_status status =
      moe_fail(t->ctx, MOE_NUMERIC,
               "step %lld: loss %g, aux loss %g, gradient norm %g; nothing was updated "
               "(a lower learning rate or a clip may help)",
               (long long)t->state.step + 1, m->loss, m->aux_loss, m->grad_norm);
  return moe_comm_agree(t->groups.of[MOE_GROUP_WORLD], t->stream, status);
}

moe_status moe_trainer_step(moe_trainer *t, const int32_t *tokens_BS, const int32_t *labels_BS,
                            moe_step_metrics *out) {
  double begin = moe_now();
  MOE_TRY(gradients(t, tokens_BS, labels_BS, out));
  if (!isfinite(out->loss) || !isfinite(out->grad_norm) || !isfinite(out->aux_loss))
    return not_finite(t, out);
  out->lr = moe_lr_value(&t->config.optimizer.lr, t->state.step + 1);
  MOE_TRY(update(t, out));
  MOE_TRY(moe_trainer_update_bias(t));
  MOE_TRY(t->k->stream_sync(t->stream));
  t->stale = true;
  t->state.step++;
  t->state.cursor += t->config.global_batch;
  out->step = t->state.step;
  fill_parts(t, out);
  out->seconds = moe_now() - begin;
  return MOE_OK;
}
