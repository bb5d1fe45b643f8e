#include "layers/embed.h"

#include "layers/param.h"
#include "layers/sequence.h"

struct moe_slot moe_vocab_slot(const moe_model_config *model, struct moe_coord tp,
                               const char *name) {
  const int64_t dim[2] = {model->vocab, model->hidden};
  struct moe_slot slot = moe_slot_make("", name, 2, dim);
  int64_t part = moe_div_up(model->vocab, tp.size);
  slot.init_std = (float)model->init_std;
  slot.start[0] = moe_min64(part * tp.rank, model->vocab);
  slot.count[0] = moe_min64(part, model->vocab - slot.start[0]);
  return slot;
}

moe_status moe_embed_params(struct moe_embed *e, const moe_model_config *model,
                            struct moe_place place, struct moe_params *params) {
  struct moe_slot slot = moe_vocab_slot(model, place.tp, "embed");
  slot.decay = MOE_DECAY_EMBEDDING;
  e->first = slot.start[0];
  e->rows = slot.count[0];
  e->hidden = model->hidden;
  e->tied = model->tie_embeddings != 0;
  return moe_param_declare(params, &slot, &e->w);
}

moe_status moe_embed_forward(const struct moe_embed *e, const struct moe_run *run,
                             const int32_t *token, struct moe_mat y) {
  size_t mark = moe_arena_mark(run->scratch);
  struct moe_embed_args args = {
      .w = moe_param_weight(run->memory, e->w), .rows = e->rows, .first = e->first, .token = token};
  MOE_TRY(moe_sequence_part(run, y, &args.y)); /* zeros for ids of other ranks */
  moe_trace_begin(run->trace, MOE_PART_EMBED);
  run->k->embed(run->stream, &args);
  moe_trace_end(run->trace);
  MOE_TRY(moe_sequence_scatter(run, args.y, y));
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}

moe_status moe_embed_backward(const struct moe_embed *e, const struct moe_run *run,
                              const int32_t *token, struct moe_mat dy) {
  size_t mark = moe_arena_mark(run->scratch);
  MOE_TRY(moe_sequence_gather(run, dy, &dy));
  struct moe_embed_bwd_args args = {.dy = dy,
                                    .token = token,
                                    .rows = e->rows,
                                    .first = e->first,
                                    .dw = moe_param_grad(run->memory, e->w)};
  args.scratch = moe_arena_get(run->scratch, run->k->embed_bwd_bytes(dy.rows, e->rows));
  if (args.scratch == NULL) return MOE_INTERNAL;
  moe_trace_begin(run->trace, MOE_PART_EMBED);
  if (!moe_run_accumulates(run) && !e->tied)
    run->k->fill(run->stream, args.dw, 0, (size_t)(e->rows * e->hidden) * sizeof(float));
  run->k->embed_bwd(run->stream, &args);
  moe_trace_end(run->trace);
  moe_arena_reset(run->scratch, mark);
  return MOE_OK;
}
