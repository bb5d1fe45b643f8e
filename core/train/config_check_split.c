#include "train/config_check.h"

#include "mesh/place.h"

/* "name: size is not a multiple of axis degree; axis: valid values" */
static void divides(struct moe_text *lines, const char *name, int32_t size, const char *axis,
                    int32_t degree) {
  if (size < 1 || degree < 1 || size % degree == 0) return;
  moe_text_line(lines, "%s: %d / %s %d is not whole; %s: ", name, size, axis, degree, axis);
  moe_text_divisors(lines, size, degree);
  moe_text_add(lines, ", or %s: ", name);
  moe_text_multiples(lines, degree, size);
}

/* Heads are what all-to-all exchanges for rows. */
static void check_cp_heads(struct moe_text *lines, const moe_block_config *block, int32_t tp,
                           int32_t cp) {
  int32_t heads = block->heads / tp, kv_heads = block->kv_heads / tp;
  if (heads % cp == 0 && kv_heads > 0 && kv_heads % cp == 0) return;
  moe_text_line(lines,
                "kv_heads: %d (heads %d) / tp %d do not divide by cp %d, which layout.cp_kind "
                "\"alltoall\" needs; take \"ring\" or \"allgather\"",
                block->kv_heads, block->heads, tp, cp);
}

struct split {
  const struct moe_layout *layout;
  int32_t cp_kind;
};

static void block_split(struct moe_text *lines, const moe_block_config *block, const void *arg) {
  const struct split *split = arg;
  const struct moe_layout *layout = split->layout;
  const int32_t *attn = layout->size[MOE_VIEW_ATTN], *moe = layout->size[MOE_VIEW_MOE];
  divides(lines, "heads", block->heads, "tp", attn[MOE_AXIS_TP]);
  int32_t tp = attn[MOE_AXIS_TP];
  if (block->kv_heads >= 1 && tp % block->kv_heads) /* else each is copied to tp / kv_heads ranks */
    divides(lines, "kv_heads", block->kv_heads, "tp", tp);
  if (attn[MOE_AXIS_CP] > 1 && split->cp_kind == MOE_CP_ALLTOALL)
    check_cp_heads(lines, block, tp, attn[MOE_AXIS_CP]);
  if (block->ffn_kind != MOE_FFN_MOE) {
    divides(lines, "ffn", block->ffn, "tp", attn[MOE_AXIS_TP]);
    return;
  }
  divides(lines, "experts", block->experts, "ep", moe[MOE_AXIS_EP]);
  divides(lines, "ffn", block->ffn, "etp", moe[MOE_AXIS_TP]);
  divides(lines, "shared_ffn", block->shared_ffn, "tp", attn[MOE_AXIS_TP]);
}

/* The user's list of blocks per virtual stage. */
static void check_stage_list(struct moe_text *errors, int32_t blocks, const moe_layout_config *l,
                             int64_t stages) {
  int64_t sum = 0;
  int32_t most = 0;
  if (l->n_blocks < 0 || l->blocks == NULL || l->n_blocks != stages) {
    moe_text_line(errors, "layout.blocks: %d numbers, but pp * chunks = %lld stages",
                  l->blocks ? l->n_blocks : 0, (long long)stages);
    return;
  }
  for (int32_t i = 0; i < l->n_blocks; i++) {
    if (l->blocks[i] < 0 || l->blocks[i] > blocks) {
      moe_text_line(errors, "layout.blocks: %d for stage %d is outside 0 .. %d", l->blocks[i], i,
                    blocks);
      return;
    }
    sum += l->blocks[i];
    if (l->blocks[i] > l->blocks[most]) most = i;
  }
  if (sum == blocks) return;
  moe_text_line(errors, "layout.blocks: they add up to %lld, the model has %d blocks",
                (long long)sum, blocks);
  int64_t fits = l->blocks[most] + blocks - sum;
  if (fits >= 0)
    moe_text_add(errors, "; e.g. %lld instead of %d for stage %d", (long long)fits, l->blocks[most],
                 most);
}

static void check_stages(struct moe_text *errors, int32_t blocks, const moe_layout_config *l,
                         int32_t pp, int32_t chunks) {
  if (chunks > 1 && pp == 1) {
    moe_text_line(errors, "layout.chunks: %d virtual stages need pp above 1", chunks);
    return;
  }
  if (moe_check_range(errors, "layout.group", l->group, 0, 1 << 20) && l->group > 0 && chunks == 1)
    moe_text_line(errors, "layout.group: %d, but there is one chunk; it needs chunks above 1",
                  l->group);
  int64_t stages = (int64_t)pp * chunks;
  if (blocks < 1) return;
  if (l->n_blocks != 0) {
    check_stage_list(errors, blocks, l, stages);
    return;
  }
  if (blocks % stages == 0) return;
  moe_text_line(errors,
                "layout.pp: %d blocks / (pp %d * chunks %d = %lld) is not whole; pp * chunks: ",
                blocks, pp, chunks, (long long)stages);
  moe_text_divisors(errors, blocks, stages);
  moe_text_add(errors, ", or list layout.blocks");
}

/* With cp the sequence is cut in 2*cp pieces (zig-zag), each split over tp. */
static void check_seq(struct moe_text *errors, const moe_train_config *config, int32_t tp,
                      int32_t cp) {
  int32_t seq = config->seq, positions = config->model.max_positions;
  if (!moe_check_range(errors, "seq", seq, 1, INT32_MAX / 2)) return;
  if (positions > 0 && seq > positions)
    moe_text_line(errors, "seq: %d tokens, but model.max_positions is %d", seq, positions);
  int64_t pair = tp % 2 ? 2 * (int64_t)tp : tp; /* lcm(2, tp) */
  int64_t step = cp > 1 ? cp * pair : tp;
  if (seq % step == 0) return;
  if (cp > 1)
    moe_text_line(errors, "seq: %d is not a multiple of cp %d * lcm(2, tp %d) = %lld; ", seq, cp,
                  tp, (long long)step);
  else
    moe_text_line(errors, "seq: %d is not a multiple of tp %d; ", seq, tp);
  moe_text_multiples(errors, step, seq);
}

static void check_batch(struct moe_text *errors, const moe_train_config *config, int32_t dp) {
  bool micro = moe_check_range(errors, "micro_batch", config->micro_batch, 1, 1 << 20);
  bool global = moe_check_range(errors, "global_batch", config->global_batch, 1, 1 << 28);
  int64_t step = (int64_t)config->micro_batch * dp;
  if (!micro || !global || config->global_batch % step == 0) return;
  moe_text_line(errors, "global_batch: %d is not a multiple of micro_batch %d * dp %d = %lld; ",
                config->global_batch, config->micro_batch, dp, (long long)step);
  moe_text_multiples(errors, step, config->global_batch);
}

void moe_check_split(struct moe_text *errors, const moe_train_config *config,
                     const struct moe_layout *layout) {
  const int32_t *attn = layout->size[MOE_VIEW_ATTN];
  const moe_model_config *model = &config->model;
  check_stages(errors, model->n_blocks, &config->layout, attn[MOE_AXIS_PP], layout->chunks);
  moe_check_range(errors, "layout.tp", attn[MOE_AXIS_TP], 1, MOE_AXIS_MOST);
  moe_check_range(errors, "layout.cp", attn[MOE_AXIS_CP], 1, MOE_AXIS_MOST);
  const struct split split = {layout, config->layout.cp_kind};
  moe_check_range(errors, "layout.cp_kind", split.cp_kind, 0, MOE_CP_ALLTOALL);
  if (model->n_blocks > 0 && model->blocks != NULL)
    moe_check_blocks(errors, model, block_split, &split);
  check_seq(errors, config, attn[MOE_AXIS_TP], attn[MOE_AXIS_CP]);
  check_batch(errors, config, attn[MOE_AXIS_DP]);
}
