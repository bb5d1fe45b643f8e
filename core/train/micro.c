/* The micro-batches of a step: what the pipeline's instructions mean for the model. */
#include "train/trainer.h"

/* Hangs from a job while it runs. */
struct step {
  struct moe_trainer *t;
  struct moe_run run;
  bool counted;       /* counts of the whole step are there */
  int32_t last_chunk; /* whose gradients are final next */
};

struct moe_mat moe_trainer_activation(const struct moe_trainer *t, const struct moe_run *run,
                                      void *p) {
  return moe_mat_of(p, run->dtype, run->tokens, t->model->config.hidden);
}

struct moe_pipe_job moe_trainer_job(struct moe_trainer *t, const struct moe_run *run) {
  return (struct moe_pipe_job){.group = t->groups.of[MOE_GROUP_PP],
                               .stream = t->stream,
                               .trace = run->trace,
                               .n = run->tokens * t->model->config.hidden,
                               .dtype = run->dtype};
}

/* The bundle for an instruction's micro-batch. */
static const struct moe_run *run_of(struct step *s, const struct moe_instr *i, int32_t slot) {
  s->run.micro = i->micro;
  s->run.saved = &s->t->saved[slot];
  return &s->run;
}

static moe_status forward(void *arg, const struct moe_instr *i, int32_t slot, void *x, void *y) {
  struct step *s = arg;
  struct moe_trainer *t = s->t;
  const struct moe_run *run = run_of(s, i, slot);
  int64_t first = i->micro * run->rows;
  moe_arena_reset(run->saved, 0);
  return moe_model_forward(t->model, run, i->chunk, t->token + first, t->label + first,
                           t->sums + MOE_SUM_LOSS, moe_trainer_activation(t, run, x),
                           &t->slot[slot], moe_trainer_activation(t, run, y));
}

/* Counts of the whole step, where an aux loss spans it: all forwards are done. */
static moe_status total_counts(struct moe_trainer *t) {
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    if (!b->is_moe || b->moe.router.aux_scope != MOE_AUX_GLOBAL) continue;
    const struct moe_moe_stats *s = &b->moe.stats;
    const struct moe_count_sum_args args = {.in = s->count,
                                            .rows = t->model->micros * s->segments,
                                            .experts = s->experts,
                                            .out = s->total};
    t->k->count_sum(t->stream, &args);
    MOE_TRY(moe_all_reduce(t->groups.of[MOE_GROUP_TP_CP_DP], t->stream, s->total, s->experts,
                           MOE_I32, MOE_SUM, NULL));
  }
  return MOE_OK;
}

/* Gradients are summed over the ranks while backward goes on. */
static moe_status gradients_final(void *arg, int32_t block) {
  struct moe_trainer *t = arg;
  moe_trace_begin(&t->trace, MOE_PART_GRAD);
  moe_status status = moe_optim_ready(&t->optim, block);
  moe_trace_end(&t->trace);
  return status;
}

/* Sums start from the model's end on: a chunk whose later one is not done waits for the end. */
static bool is_final(struct step *s, const struct moe_instr *i) {
  if (i->micro != s->t->model->micros - 1 || i->chunk != s->last_chunk) return false;
  s->last_chunk--;
  return true;
}

static moe_status backward(void *arg, const struct moe_instr *i, int32_t slot, void *d) {
  struct step *s = arg;
  struct moe_trainer *t = s->t;
  const struct moe_run *run = run_of(s, i, slot);
  if (t->model->global_aux && !s->counted) MOE_TRY(total_counts(t));
  s->counted = true;
  s->run.final = is_final(s, i) ? gradients_final : NULL;
  s->run.final_arg = t;
  return moe_model_backward(t->model, run, i->chunk, t->token + i->micro * run->rows,
                            &t->slot[slot], moe_trainer_activation(t, run, d));
}

/* The gradient of tied weights on both ends of the pipeline, before it is summed over anything
 * else. */
static moe_status sum_tied(struct moe_trainer *t) {
  struct moe_param w = t->model->embed.w;
  if (!t->model->shares_embed) return MOE_OK;
  moe_trace_begin(&t->trace, MOE_PART_GRAD);
  moe_status status = moe_all_reduce(t->ends, t->stream, moe_param_grad(&t->memory, w), w.elements,
                                     MOE_F32, MOE_SUM, NULL);
  moe_trace_end(&t->trace);
  return status;
}

moe_status moe_trainer_micro_batches(struct moe_trainer *t, const struct moe_run *run) {
  struct step step = {.t = t, .run = *run, .last_chunk = t->model->shape.chunks - 1};
  struct moe_pipe_job job = moe_trainer_job(t, run);
  job.forward = forward;
  job.backward = backward;
  job.arg = &step;
  MOE_TRY(moe_pipe_run(&t->pipe, &job));
  return sum_tied(t);
}
