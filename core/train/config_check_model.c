#include <math.h>
#include <string.h>

#include "train/config_check.h"

enum { MAX_SIZE = 1 << 24, MAX_BLOCKS = 1 << 14 };

bool moe_check_range(struct moe_text *errors, const char *field, int64_t value, int64_t low,
                     int64_t high) {
  if (value >= low && value <= high) return true;
  moe_text_line(errors, "%s: %lld is outside %lld .. %lld", field, (long long)value, (long long)low,
                (long long)high);
  return false;
}

bool moe_check_number(struct moe_text *errors, const char *field, double value, double low,
                      double high) {
  if (isfinite(value) && value >= low && value <= high) return true;
  moe_text_line(errors, "%s: %g is outside %g .. %g", field, value, low, high);
  return false;
}

/* ---- one block ---- */

static void check_attention(struct moe_text *errors, const moe_block_config *b) {
  bool heads = moe_check_range(errors, "heads", b->heads, 1, MAX_SIZE);
  bool kv_heads = moe_check_range(errors, "kv_heads", b->kv_heads, 1, MAX_SIZE);
  if (heads && kv_heads && b->heads % b->kv_heads) {
    moe_text_line(errors,
                  "kv_heads: heads %d is not a multiple of kv_heads %d; kv_heads: ", b->heads,
                  b->kv_heads);
    moe_text_divisors(errors, b->heads, b->kv_heads);
  }
  if (moe_check_range(errors, "head_dim", b->head_dim, 2, 1 << 14) && b->head_dim % 2)
    moe_text_line(errors, "head_dim: %d is odd, but the rotary embedding turns pairs; %d or %d",
                  b->head_dim, b->head_dim - 1, b->head_dim + 1);
  moe_check_range(errors, "qkv_bias", b->qkv_bias, 0, 1);
  moe_check_range(errors, "qk_norm", b->qk_norm, 0, MOE_QK_NORM_ALL);
  if (b->window < 0)
    moe_text_line(errors, "window: %d is negative; 0 sees all tokens before", b->window);
  if (!isfinite(b->rope_theta) || b->rope_theta <= 1)
    moe_text_line(errors, "rope_theta: %g must be above 1 (1e4 and 1e6 are usual)", b->rope_theta);
}

static void check_topk(struct moe_text *errors, const moe_block_config *b) {
  if (!moe_check_range(errors, "experts", b->experts, 2, MAX_SIZE)) return;
  if (b->topk < 1 || b->topk > b->experts) {
    moe_text_line(errors, "topk: %d of %d experts; it may be 1 .. %d", b->topk, b->experts,
                  b->experts);
    return;
  }
  if (b->topk == 1 && b->renormalise)
    moe_text_line(errors,
                  "renormalise: with topk 1 the one probability is always p / p = 1, so the router "
                  "gets no gradient; renormalise off or topk 2");
  if (b->groups > 1 && b->experts % b->groups) {
    moe_text_line(errors, "groups: %d experts do not divide into %d groups; groups: ", b->experts,
                  b->groups);
    moe_text_divisors(errors, b->experts, b->groups);
  } else if (b->groups > 1 && b->topk_groups >= 1 && b->topk_groups <= b->groups &&
             b->topk > (int64_t)b->experts / b->groups * b->topk_groups) {
    moe_text_line(errors, "topk: %d, but topk_groups %d of %d experts each hold only %d", b->topk,
                  b->topk_groups, b->experts / b->groups, b->experts / b->groups * b->topk_groups);
  }
}

static void check_router(struct moe_text *errors, const moe_block_config *b) {
  check_topk(errors, b);
  moe_check_range(errors, "score", b->score, 0, MOE_SCORE_SIGMOID);
  moe_check_range(errors, "renormalise", b->renormalise, 0, 1);
  moe_check_range(errors, "expert_bias", b->expert_bias, 0, 1);
  if (b->groups < 0) moe_text_line(errors, "groups: %d is negative; 0 is off", b->groups);
  if (b->groups > 1) moe_check_range(errors, "topk_groups", b->topk_groups, 1, b->groups);
  if (b->score == MOE_SCORE_SOFTMAX && b->expert_bias)
    moe_text_line(errors, "expert_bias: needs sigmoid scores");
  if (b->score == MOE_SCORE_SOFTMAX && b->routed_scale != 1)
    moe_text_line(errors, "routed_scale: %g needs sigmoid scores; 1 with softmax", b->routed_scale);
  else if (!isfinite(b->routed_scale) || b->routed_scale <= 0)
    moe_text_line(errors, "routed_scale: %g must be above 0", b->routed_scale);
  moe_check_number(errors, "bias_rate", b->bias_rate, 0, 1);
  moe_check_number(errors, "aux_coef", b->aux_coef, 0, 100);
  moe_check_range(errors, "aux_scope", b->aux_scope, 0, MOE_AUX_GLOBAL);
  moe_check_number(errors, "z_coef", b->z_coef, 0, 100);
  moe_check_range(errors, "shared_ffn", b->shared_ffn, 0, MAX_SIZE);
  if (moe_check_range(errors, "shared_gate", b->shared_gate, 0, 1) && b->shared_gate &&
      b->shared_ffn == 0)
    moe_text_line(errors, "shared_gate: there is no shared expert to gate; set shared_ffn");
}

void moe_check_block(struct moe_text *errors, const moe_block_config *b) {
  check_attention(errors, b);
  moe_check_range(errors, "ffn", b->ffn, 1, MAX_SIZE);
  moe_check_range(errors, "recompute", b->recompute, 0, MOE_RECOMPUTE_BLOCK);
  if (!moe_check_range(errors, "ffn_kind", b->ffn_kind, 0, MOE_FFN_MOE)) return;
  if (b->ffn_kind == MOE_FFN_MOE)
    check_router(errors, b);
  else if (b->experts != 0)
    moe_text_line(errors, "experts: %d, but ffn_kind is dense", b->experts);
}

/* ---- all blocks ---- */

/* Adds lines, each with the blocks first..last before it. */
static void add_lines(struct moe_text *errors, const char *lines, int32_t first, int32_t last) {
  for (const char *line = lines; line != NULL;) {
    size_t n = strcspn(line, "\n");
    if (first == last)
      moe_text_line(errors, "model.blocks[%d].%.*s", first, (int)n, line);
    else
      moe_text_line(errors, "model.blocks[%d-%d].%.*s", first, last, (int)n, line);
    line = line[n] ? line + n + 1 : NULL;
  }
}

void moe_check_blocks(struct moe_text *errors, const moe_model_config *model,
                      moe_block_check_fn check, const void *arg) {
  struct moe_text run, lines; /* of the blocks first..i-1, and of block i */
  int32_t first = 0;
  moe_text_init(errors->ctx, &run);
  for (int32_t i = 0; i < model->n_blocks; i++) {
    moe_text_init(errors->ctx, &lines);
    check(&lines, &model->blocks[i], arg);
    errors->failed |= lines.failed;
    bool same = run.len == lines.len && (!run.len || !strcmp(run.s, lines.s));
    if (!same) {
      if (run.len) add_lines(errors, run.s, first, i - 1);
      moe_text_destroy(&run);
      run = lines;
      first = i;
    } else {
      moe_text_destroy(&lines);
    }
  }
  if (run.len) add_lines(errors, run.s, first, model->n_blocks - 1);
  moe_text_destroy(&run);
}

static void block_alone(struct moe_text *lines, const moe_block_config *block, const void *arg) {
  (void)arg;
  if (block->size != sizeof *block)
    moe_text_line(lines, "size: %zu, must be %zu (call moe_block_config_init first)", block->size,
                  sizeof *block);
  else
    moe_check_block(lines, block);
}

void moe_check_model(struct moe_text *errors, const moe_model_config *model) {
  moe_check_range(errors, "model.vocab", model->vocab, 2, MAX_SIZE);
  moe_check_range(errors, "model.hidden", model->hidden, 1, MAX_SIZE);
  moe_check_range(errors, "model.max_positions", model->max_positions, 1, INT32_MAX);
  moe_check_range(errors, "model.tie_embeddings", model->tie_embeddings, 0, 1);
  moe_check_number(errors, "model.norm_eps", model->norm_eps, 1e-12, 0.1);
  moe_check_number(errors, "model.init_std", model->init_std, 1e-6, 10);
  if (moe_check_range(errors, "model.n_blocks", model->n_blocks, 1, MAX_BLOCKS) &&
      model->blocks != NULL)
    moe_check_blocks(errors, model, block_alone, NULL);
  else if (model->n_blocks > 0 && model->blocks == NULL)
    moe_text_line(errors, "model.blocks: NULL, but n_blocks is %d", model->n_blocks);
}
