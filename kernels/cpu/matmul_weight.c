/* Weights packed once a step, for both directions. When that pays: README.md. */
#include "kernels/cpu/matmul.h"

size_t MOE_FN(weight_bytes)(const struct moe_weight *w) {
  mm_unit unit = mm_unit_of(w->dtype, moe_cpu_dot_bf16_pays());
  if (unit != MM_UNIT_PAIR) return 0;
  return (size_t)(w->groups * mm_weight_units(w, unit)) * sizeof(float);
}

struct prepare {
  const struct moe_weight *w;
  mm_unit unit;
  int64_t forward, backward; /* panels of a group */
};

static void prepare_panel(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const struct prepare *p = arg;
  const struct moe_weight *w = p->w;
  int64_t g = task / (p->forward + p->backward), i = task % (p->forward + p->backward);
  bool backward = i >= p->forward;
  if (backward) i -= p->forward;
  struct mm_side side = mm_weight_side(w, g, backward);
  struct mm_depth d = mm_depth_of(p->unit, side.depth);
  for (int64_t block = 0; block < d.count; block++)
    MOE_FN(mm_pack)(&side, p->unit, MM_NR, i * MM_NR, moe_min64(MM_NR, side.lines - i * MM_NR),
                    block * d.size, moe_min64(d.size, d.units - block * d.size),
                    mm_weight_panels(w, p->unit, g, backward) +
                        mm_packed_at(d, side.lines, block, i * MM_NR));
}

void MOE_FN(weight_prepare)(struct moe_stream *s, const struct moe_weight *w) {
  if (w->prepared == NULL) return;
  struct prepare p = {w, mm_unit_of(w->dtype, s->dot_bf16), moe_div_up(w->out, MM_NR),
                      moe_div_up(w->in, MM_NR)};
  moe_pool_run(s->pool, prepare_panel, &p, w->groups * (p.forward + p.backward));
}
