/* Sizes and FLOPs of a model by a dry run: the code that trains, on kernels that do nothing and
 * arenas that only count. */
#include "base/alloc.h"
#include "kernels/dry.h"
#include "train/model.h"

/* Stands for memory that is never followed; offsets from it are fine, from NULL they are not. */
static void *nowhere(void) { return (void *)(uintptr_t)MOE_ALIGN; }

/* Every chunk forward and backward, in an arena of its own: its peak is that of the largest. */
static moe_status dry_run(const struct moe_model *m, const struct moe_run *run,
                          struct moe_model_saved *saved) {
  struct moe_mat there = moe_mat_of(nowhere(), run->dtype, run->tokens, m->config.hidden);
  for (int32_t c = 0; c < m->shape.chunks; c++) {
    moe_arena_reset(run->saved, 0);
    MOE_TRY(moe_model_forward(m, run, c, nowhere(), nowhere(), nowhere(), there, saved, there));
    MOE_TRY(moe_model_backward(m, run, c, nowhere(), saved, there));
  }
  return MOE_OK;
}

static size_t transfer_bytes(const struct moe_model *m, const struct moe_run *run) {
  size_t bytes = (size_t)(run->tokens * m->config.hidden) * moe_dtype_bytes(run->dtype);
  return m->shape.pp > 1 ? moe_round_up(bytes, MOE_ALIGN) : 0;
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
                                 .transfer = transfer_bytes(m, &run),
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
