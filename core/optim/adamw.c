#include "optim/adamw.h"

struct range {
  int64_t first, last;
  double decay;
};

static void update(const struct moe_kernels *k, struct moe_stream *stream,
                   const struct moe_param_memory *memory, enum moe_family family, struct range r,
                   const moe_optimizer_config *config, double lr, int64_t step,
                   const float *grad_scale) {
  if (r.first >= r.last) return;
  const struct moe_adamw_args args = {.w = memory->weight[family] + r.first,
                                      .m = memory->exp_avg[family] + r.first,
                                      .v = memory->exp_avg_sq[family] + r.first,
                                      .g = memory->grad[family] + r.first,
                                      .n = r.last - r.first,
                                      .lr = (float)lr,
                                      .beta1 = (float)config->beta1,
                                      .beta2 = (float)config->beta2,
                                      .eps = (float)config->eps,
                                      .weight_decay = (float)r.decay,
                                      .step = step,
                                      .grad_scale = grad_scale};
  k->adamw(stream, &args);
}

void moe_adamw_step(const struct moe_kernels *k, struct moe_stream *stream,
                    const struct moe_pack *pack, const struct moe_param_memory *memory,
                    int64_t first, int64_t last, const moe_optimizer_config *config, double lr,
                    int64_t step, const float *grad_scale) {
  struct range r = {first, first, 0};
  for (int32_t i = 0; i < pack->slots; i++) {
    const struct moe_slot *slot = &pack->slot[i];
    int64_t a = moe_max64(slot->offset, first);
    int64_t b = moe_min64(slot->offset + slot->elements, last);
    if (slot->buffer || a >= b) continue;
    double decay = config->decay & (int32_t)slot->decay ? config->weight_decay : 0;
    bool follows = a - r.last < MOE_PACK_ALIGN && decay == r.decay; /* gaps hold zeros */
    if (!follows) {
      update(k, stream, memory, pack->family, r, config, lr, step, grad_scale);
      r = (struct range){a, b, decay};
    }
    r.last = b;
  }
  update(k, stream, memory, pack->family, r, config, lr, step, grad_scale);
}
