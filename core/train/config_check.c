#include "train/config_check.h"

#include <math.h>

#include "base/ctx.h"

/* A larger factor than this many times an even load is a typing error, a smaller one drops nearly
 * everything. */
static const double min_capacity = 0.01;

static double most_experts(const moe_model_config *model) {
  int32_t most = 2;
  for (int32_t i = 0; model->blocks != NULL && i < model->n_blocks; i++)
    if (model->blocks[i].experts > most) most = model->blocks[i].experts;
  return most;
}

void moe_check_dispatch(struct moe_text *errors, const moe_train_config *config) {
  const moe_dispatch_config *dispatch = &config->dispatch;
  double factor = dispatch->capacity_factor, most = most_experts(&config->model);
  moe_check_range(errors, "dispatch.kind", dispatch->kind, 0, MOE_DISPATCH_ALLGATHER);
  moe_check_range(errors, "dispatch.drop", dispatch->drop, 0, MOE_DROP_POSITION);
  if (factor != 0 && !(isfinite(factor) && factor >= min_capacity && factor <= most))
    moe_text_line(errors,
                  "dispatch.capacity_factor: %g is outside %g .. %g (1 is an even load, the number "
                  "of experts keeps every token); 0 is dropless",
                  factor, min_capacity, most);
  if (moe_check_range(errors, "dispatch.pad", dispatch->pad, 0, 1) && dispatch->pad && factor == 0)
    moe_text_line(errors, "dispatch.pad: there is no capacity to pad to; set capacity_factor");
  if (!moe_check_range(errors, "dispatch.capacity_scope", dispatch->capacity_scope, 0,
                       MOE_CAPACITY_SEQUENCE) ||
      dispatch->capacity_scope == MOE_CAPACITY_LOCAL)
    return;
  if (factor == 0)
    moe_text_line(errors, "dispatch.capacity_scope: there is no capacity; set capacity_factor");
  else if (dispatch->pad)
    moe_text_line(errors,
                  "dispatch.capacity_scope: a sequence's capacity does not fix what one rank "
                  "sends, so there is nothing to pad to; pad off, or scope local");
}

static void check_lr(struct moe_text *errors, const moe_lr_config *lr) {
  if (!moe_check_range(errors, "optimizer.lr.kind", lr->kind, 0, MOE_LR_WSD)) return;
  if (!isfinite(lr->peak) || lr->peak <= 0 || lr->peak > 10)
    moe_text_line(errors, "optimizer.lr.peak: %g must be above 0 and at most 10", lr->peak);
  else
    moe_check_number(errors, "optimizer.lr.min", lr->min, 0, lr->peak);
  bool warmup = moe_check_range(errors, "optimizer.lr.warmup", lr->warmup, 0, INT64_MAX);
  int64_t least = lr->kind == MOE_LR_CONSTANT ? 0 : 1;
  bool total = moe_check_range(errors, "optimizer.lr.total", lr->total, least, INT64_MAX);
  if (!warmup || !total || lr->total == 0) return;
  if (lr->warmup > lr->total)
    moe_text_line(errors, "optimizer.lr.warmup: %lld steps, but there are only %lld",
                  (long long)lr->warmup, (long long)lr->total);
  else if (lr->kind == MOE_LR_WSD && (lr->decay < 1 || lr->decay > lr->total - lr->warmup))
    moe_text_line(errors,
                  "optimizer.lr.decay: %lld steps; it may be 1 .. %lld (%lld steps, %lld of "
                  "them warm-up)",
                  (long long)lr->decay, (long long)(lr->total - lr->warmup), (long long)lr->total,
                  (long long)lr->warmup);
}

void moe_check_optimizer(struct moe_text *errors, const moe_optimizer_config *optimizer) {
  const int32_t classes = MOE_DECAY_MATRIX | MOE_DECAY_EMBEDDING | MOE_DECAY_NORM | MOE_DECAY_BIAS;
  check_lr(errors, &optimizer->lr);
  moe_check_number(errors, "optimizer.beta1", optimizer->beta1, 0, 0.999999);
  moe_check_number(errors, "optimizer.beta2", optimizer->beta2, 0, 0.999999999);
  moe_check_number(errors, "optimizer.eps", optimizer->eps, 1e-30, 1);
  moe_check_number(errors, "optimizer.weight_decay", optimizer->weight_decay, 0, 10);
  moe_check_range(errors, "optimizer.decay", optimizer->decay, 0, classes);
  moe_check_number(errors, "optimizer.clip", optimizer->clip, 0, 1e6);
  moe_check_range(errors, "optimizer.shard", optimizer->shard, 0, 1);
}

/* The error text of the context is bounded: whole lines only, and say when some are left out. */
static moe_status report(moe_ctx *ctx, struct moe_text *errors) {
  const size_t limit = MOE_ERROR_BYTES - 64;
  size_t n = errors->len;
  if (n > limit)
    for (n = limit; n > 0 && errors->s[n] != '\n';) n--;
  return moe_fail(ctx, MOE_INVALID, "%.*s%s", (int)n, errors->s,
                  n < errors->len ? "\n(more errors are left out)" : "");
}

moe_status moe_train_config_check(moe_ctx *ctx, const moe_train_config *config, int32_t world) {
  MOE_CHECK_SIZE(ctx, config);
  MOE_CHECK_SIZE(ctx, &config->model);
  MOE_CHECK_SIZE(ctx, &config->layout);
  MOE_CHECK_SIZE(ctx, &config->dispatch);
  MOE_CHECK_SIZE(ctx, &config->optimizer);
  MOE_CHECK_SIZE(ctx, &config->optimizer.lr);
  struct moe_text errors;
  struct moe_layout layout;
  moe_text_init(ctx, &errors);
  moe_check_model(&errors, &config->model);
  moe_layout_resolve(&config->layout, world, &layout, &errors);
  moe_check_split(&errors, config, &layout);
  moe_check_dispatch(&errors, config);
  moe_check_optimizer(&errors, &config->optimizer);
  if (config->dtype != MOE_F32 && config->dtype != MOE_BF16)
    moe_text_line(&errors, "dtype: %d; it may be f32 (%d) or bf16 (%d)", config->dtype, MOE_F32,
                  MOE_BF16);
  moe_status status = MOE_OK;
  if (errors.failed)
    status = MOE_MEMORY;
  else if (errors.len > 0)
    status = report(ctx, &errors);
  moe_text_destroy(&errors);
  return status;
}
