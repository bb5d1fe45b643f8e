/* Sizes and FLOPs of a model by a dry run: the code that trains, on kernels that do nothing and
 * arenas that only count. */
#include "base/alloc.h"
#include "kernels/dry.h"
#include "train/model.h"

/* Stands for memory that is never followed; offsets from it are fine, from NULL they are not. */
static void *nowhere(void) { return (void *)(uintptr_t)MOE_ALIGN; }

static moe_status dry_run(const struct moe_model *m, const struct moe_run *run,
                          struct moe_model_saved *saved) {
  struct moe_mat x;
  if (m->has_embed && m->has_head) {
    MOE_TRY(moe_model_forward(m, run, nowhere(), nowhere(), nowhere(), saved));
    return moe_model_backward(m, run, nowhere(), saved);
  }
  /* A stage in the middle of a pipeline: its blocks, with what the ends do where they are. */
  MOE_TRY(moe_model_hidden(m, run, nowhere(), saved, &x));
  if (m->has_head)
    MOE_TRY(moe_head_forward(&m->head, run, x, nowhere(), nowhere(), &saved->head));
  else
    MOE_TRY(moe_mat_get(run->saved, run->dtype, x.rows, x.cols, &saved->head.dx));
  for (int32_t i = m->blocks - 1; i >= 0; i--)
    MOE_TRY(moe_block_backward(&m->block[i], run, &saved->block[i], saved->head.dx));
  return m->has_embed ? moe_embed_backward(&m->embed, run, nowhere(), saved->head.dx) : MOE_OK;
}

static moe_status measure(struct moe_model *m, const struct moe_kernels *real,
                          const struct moe_groups *groups, bool even, struct moe_model_size *out) {
  const struct moe_kernels dry = moe_kernels_dry(real);
  struct moe_param_memory nothing;
  struct moe_arena prepared, stats, saved, again, scratch;
  struct moe_trace trace;
  moe_arena_measure(m->ctx, "prepared weights", &prepared);
  moe_arena_measure(m->ctx, "statistics", &stats);
  moe_arena_measure(m->ctx, "saved activations", &saved);
  moe_arena_measure(m->ctx, "recomputed activations", &again);
  moe_arena_measure(m->ctx, "scratch", &scratch);
  moe_trace_reset(&trace);
  for (int f = 0; f < MOE_FAMILIES; f++)
    nothing.weight[f] = nothing.grad[f] = nothing.exp_avg[f] = nothing.exp_avg_sq[f] = nowhere();
  MOE_TRY(moe_model_bind(m, &dry, &nothing, &prepared, &stats));

  const struct moe_run run = {.ctx = m->ctx,
                              .k = &dry,
                              .saved = &saved,
                              .again = &again,
                              .scratch = &scratch,
                              .trace = &trace,
                              .memory = &nothing,
                              .place = m->place,
                              .groups = groups,
                              .dtype = m->dtype,
                              .batch = m->micro_batch,
                              .seq = m->seq,
                              .rows = m->micro_batch * m->seq,
                              .tokens = m->micro_batch * m->seq / m->place.tp.size,
                              .training = true,
                              .even = even,
                              .global_tokens = 1,
                              .loss_scale = 1};
  struct moe_model_saved keep;
  moe_status status = moe_model_saved_create(m, &keep);
  if (status == MOE_OK) status = dry_run(m, &run, &keep);
  moe_model_saved_destroy(m, &keep);
  MOE_TRY(status);
  *out = (struct moe_model_size){.prepared = prepared.peak,
                                 .stats = stats.peak,
                                 .saved = saved.peak,
                                 .again = again.peak,
                                 .scratch = scratch.peak};
  for (int i = 0; i < MOE_TRACE_PARTS; i++) out->flops[i] = trace.flops[i];
  return MOE_OK;
}

moe_status moe_model_measure(struct moe_model *m, const struct moe_kernels *real,
                             const struct moe_layout *layout, int32_t rank, bool even,
                             struct moe_model_size *out) {
  struct moe_world *world;
  struct moe_groups groups;
  MOE_TRY(moe_world_recording(m->ctx, rank, layout->world, &world));
  moe_status status = moe_groups_create(world, layout, &groups);
  if (status == MOE_OK) status = measure(m, real, &groups, even, out);
  moe_world_destroy(world);
  return status;
}
