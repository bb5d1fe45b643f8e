#include "optim/adamw.h"

/* Slots behind each other with one weight decay. */
struct range {
  struct moe_held at;
  double decay;
};

static void update(const struct moe_kernels *k, struct moe_stream *stream,
                   const struct moe_param_memory *memory, enum moe_family family, struct range r,
                   const moe_optimizer_config *config, double lr, int64_t step,
                   const float *grad_scale) {
  if (r.at.first >= r.at.last) return;
  const struct moe_adamw_args args = {.w = memory->weight[family] + r.at.first,
                                      .m = memory->exp_avg[family] + r.at.moment,
                                      .v = memory->exp_avg_sq[family] + r.at.moment,
                                      .g = memory->grad[family] + r.at.first,
                                      .n = r.at.last - r.at.first,
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
                    struct moe_held part, const moe_optimizer_config *config, double lr,
                    int64_t step, const float *grad_scale) {
  struct range r = {{0}, 0};
  for (int32_t i = moe_pack_slot_at(pack, part.first); i < pack->slots; i++) {
    const struct moe_slot *slot = &pack->slot[i];
    int64_t a = moe_max64(slot->offset, part.first);
    int64_t b = moe_min64(slot->offset + slot->elements, part.last);
    if (slot->offset >= part.last) break;
    if (slot->buffer || a >= b) continue;
    double decay = config->decay & (int32_t)slot->decay ? config->weight_decay : 0;
    if (a != r.at.last || decay != r.decay) {
      update(k, stream, memory, pack->family, r, config, lr, step, grad_scale);
      r = (struct range){{a, b, part.moment + a - part.first}, decay};
    }
    r.at.last = b;
  }
  update(k, stream, memory, pack->family, r, config, lr, step, grad_scale);
}
