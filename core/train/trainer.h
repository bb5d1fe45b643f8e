/* Inside of a trainer. Invariant: weights, moments, `state` and router biases change only in
 * moe_trainer_step's update, in param_write, set_state and load; everything the steady loop needs
 * is allocated by moe_trainer_create. */
#ifndef MOE_TRAIN_TRAINER_H
#define MOE_TRAIN_TRAINER_H

#include "optim/optim.h"
#include "train/model.h"

struct moe_trainer {
  moe_ctx *ctx;
  moe_train_config config; /* model.blocks and layout.order: the model's copy and NULL */
  const struct moe_kernels *k;
  struct moe_stream *stream;
  struct moe_world *world; /* the context's */
  struct moe_layout layout;
  struct moe_groups groups;
  struct moe_model *model;
  struct moe_param_memory memory; /* moments: what optim.buckets says */
  struct moe_optim optim;
  struct moe_arena device; /* one allocation that the arenas below share */
  struct moe_arena prepared, stats, again, scratch, io;
  struct moe_pipe pipe;    /* this rank's list of instructions */
  struct moe_arena *saved; /* pipe.slots of them: micro-batches in flight */
  struct moe_model_saved *slot;
  /* device, in io */
  int32_t *token, *label; /* (global_batch / dp * S / cp) */
  int32_t *cp_position;   /* (cp, S / cp) */
  int32_t *all_position;  /* (S) */
  int32_t *position;      /* (micro_batch * S / cp), the same for each sequence */
  double *sums;           /* loss, squared gradient */
  float *grad_scale;
  /* host */
  char *stats_host; /* copy of the stats arena */
  float *bias_host; /* router biases, layer after layer */
  double *routing;  /* per MoE layer: E counts, E probability sums, four more; all ranks' */
  double sums_host[2];
  int32_t *position_host; /* as position, cp_position, all_position behind each other */
  int32_t positions;      /* tokens of the whole sequences that position is for */
  int32_t *padded;        /* (S): a sequence that is filled up */
  moe_trainer_state state;
  struct moe_group ends; /* the first and the last stage, where both have the embedding */
  bool stale;            /* weights changed since they were prepared */
  struct moe_trace trace;
};

enum { MOE_SUM_LOSS = 0, MOE_SUM_GRAD = 1 };

/* The bundle for `batch` sequences of `seq` tokens. */
struct moe_run moe_trainer_run(struct moe_trainer *t, int64_t batch, int64_t seq);
/* All micro-batches of a step, forward and backward over the pipeline. Collective. */
moe_status moe_trainer_micro_batches(struct moe_trainer *t, const struct moe_run *run);
/* What a run of the pipeline needs of its job beside the functions; n elements from run. */
struct moe_pipe_job moe_trainer_job(struct moe_trainer *t, const struct moe_run *run);
/* A (T, H) matrix at p, of run's size. */
struct moe_mat moe_trainer_activation(const struct moe_trainer *t, const struct moe_run *run,
                                      void *p);
/* Prepares weights that changed. */
void moe_trainer_refresh(struct moe_trainer *t, const struct moe_run *run);
/* MOE_INVALID on all of them when ranks of one share have different batches. Collective. */
moe_status moe_trainer_check_share(struct moe_trainer *t, const int32_t *token,
                                   const int32_t *label, int64_t n);
/* Tokens of a sequence must be a multiple of this: what tp and zig-zag cp divide. */
int32_t moe_trainer_seq_step(const struct moe_trainer *t);
/* Where the rows of this cp rank stand in sequences of `seq` tokens: chunks r and 2cp-1-r of 2cp
 * (core/README.md, "Context parallelism"). */
moe_status moe_trainer_set_positions(struct moe_trainer *t, int64_t seq);
/* Copies this cp rank's part of n sequences of `seq` tokens to the device, (n, seq / cp). */
void moe_trainer_upload_part(struct moe_trainer *t, int32_t *device, const int32_t *host, int64_t n,
                             int64_t seq);
/* Ids must lie in [0, V), labels below V; n of each. Counts unmasked labels. */
moe_status moe_trainer_check_batch(struct moe_trainer *t, const int32_t *token,
                                   const int32_t *label, int64_t n, int64_t *unmasked);
/* The host copy of a pointer into the stats arena. */
static inline const void *moe_trainer_host_stat(const struct moe_trainer *t, const void *device) {
  return t->stats_host + ((const char *)device - t->stats.base);
}
/* Metrics that come from routing statistics (host copies). Collective. */
moe_status moe_trainer_routing_metrics(struct moe_trainer *t, moe_step_metrics *out);
/* Doubles of `routing`. */
int64_t moe_trainer_routing_size(const struct moe_model *model);
/* Aux-loss-free balancing: bias += rate * sign(mean count - count). */
moe_status moe_trainer_update_bias(struct moe_trainer *t);

#endif
