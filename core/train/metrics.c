/* What routing did in a step, from the statistics the layers kept. */
#include "train/trainer.h"

const char *moe_part_name(int32_t part) {
  static const char *const names[] = {
#define NAME(name, text) text,
      MOE_PART_MAP(NAME)
#undef NAME
  };
  return part >= 0 && part < MOE_PART_COUNT ? names[part] : "unknown";
}

/* Tokens of expert e in the step. */
static int64_t expert_count(const struct moe_trainer *t, const struct moe_moe_stats *s, int64_t e) {
  const int32_t *count = moe_trainer_host_stat(t, s->count);
  int64_t sum = 0;
  for (int64_t i = 0; i < t->model->micros * s->segments; i++) sum += count[i * s->experts + e];
  return sum;
}

static void layer_metrics(const struct moe_trainer *t, const struct moe_layer *m,
                          moe_step_metrics *out) {
  const struct moe_moe_stats *s = &m->stats;
  int64_t micros = t->model->micros, tokens = t->model->micro_batch * t->model->seq, all = 0,
          most = 0;
  for (int64_t e = 0; e < s->experts; e++) {
    int64_t n = expert_count(t, s, e);
    all += n;
    most = moe_max64(most, n);
  }
  if (all > 0) {
    double load = (double)most * (double)s->experts / (double)all;
    if (load > out->load_max) out->load_max = load;
  }
  const int32_t *dropped = moe_trainer_host_stat(t, s->dropped);
  for (int64_t i = 0; i < micros; i++) out->dropped += dropped[i];
  out->routed += all;
  out->aux_loss +=
      moe_router_aux_loss(&m->router, moe_trainer_host_stat(t, s->count),
                          moe_trainer_host_stat(t, s->prob_sum), micros, s->segments, tokens);
  out->z_loss += moe_router_z_loss(&m->router, moe_trainer_host_stat(t, s->z_sum), micros, tokens);
}

void moe_trainer_routing_metrics(const struct moe_trainer *t, moe_step_metrics *out) {
  for (int32_t i = 0; i < t->model->blocks; i++)
    if (t->model->block[i].is_moe) layer_metrics(t, &t->model->block[i].moe, out);
}

moe_status moe_trainer_update_bias(struct moe_trainer *t) {
  float *bias = t->bias_host;
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    struct moe_param p = b->moe.router.bias;
    if (!b->is_moe || p.elements == 0) continue;
    double rate = t->model->config.blocks[t->model->first_block + i].bias_rate, all = 0;
    for (int64_t e = 0; e < p.elements; e++) all += (double)expert_count(t, &b->moe.stats, e);
    for (int64_t e = 0; e < p.elements; e++) {
      double short_of = all / (double)p.elements - (double)expert_count(t, &b->moe.stats, e);
      bias[e] += (float)(short_of > 0 ? rate : short_of < 0 ? -rate : 0);
    }
    t->k->copy(t->stream, moe_param_weight(&t->memory, p), bias,
               (size_t)p.elements * sizeof(float));
    bias += p.elements;
  }
  return MOE_OK;
}
