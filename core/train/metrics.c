/* What routing did in a step, from the statistics the layers kept. */
#include <math.h>

#include "train/trainer.h"

const char *moe_part_name(int32_t part) {
  static const char *const names[] = {
#define NAME(name, text) text,
      MOE_PART_MAP(NAME)
#undef NAME
  };
  return part >= 0 && part < MOE_PART_COUNT ? names[part] : "unknown";
}

/* One layer's entries of `routing`: counts_E, probs_E, then these. */
enum { AUX, Z, DROPPED, KEPT, SCALARS };

static int64_t layer_size(const struct moe_layer *m) { return 2 * m->stats.experts + SCALARS; }

int64_t moe_trainer_routing_size(const struct moe_model *model) {
  int64_t n = 0;
  for (int32_t i = 0; i < model->blocks; i++)
    if (model->block[i].is_moe) n += 2 * model->block[i].moe.router.experts + SCALARS;
  return n;
}

/* Auxiliary loss of this rank's scopes that are not the whole step: their mean. */
static double scopes_aux(const struct moe_layer *m, const int32_t *count, const float *prob,
                         int64_t scopes, double tokens) {
  int64_t experts = m->stats.experts;
  double sum = 0;
  for (int64_t i = 0; i < scopes; i++) {
    double count_prob = 0;
    for (int64_t e = 0; e < experts; e++)
      count_prob += (double)count[i * experts + e] * (double)prob[i * experts + e];
    sum += moe_router_aux_loss(&m->router, count_prob, tokens);
  }
  return sum / (double)scopes;
}

/* This rank's part: what is summed over tp-cp-dp. Counts that tp-cp share are its first rank's. */
static void layer_sums(const struct moe_trainer *t, const struct moe_layer *m, double *out) {
  const struct moe_moe_stats *s = &m->stats;
  const int32_t *count = moe_trainer_host_stat(t, s->count);
  const float *prob = moe_trainer_host_stat(t, s->prob_sum);
  const int32_t *dropped = moe_trainer_host_stat(t, s->dropped);
  const int32_t *kept = moe_trainer_host_stat(t, s->kept);
  const double *z = moe_trainer_host_stat(t, s->z_sum);
  struct moe_place place = t->model->place;
  int64_t micros = t->model->micros, spread = place.tp.size * place.cp.size;
  int64_t tokens = t->model->micro_batch * t->model->seq / place.tp.size;
  bool first = !moe_router_shares_counts(&m->router) || place.tp.rank + place.cp.rank == 0;
  for (int64_t e = 0; e < s->experts; e++) {
    double c = 0, p = 0;
    for (int64_t i = 0; i < micros * s->segments; i++) {
      c += count[i * s->experts + e];
      p += (double)prob[i * s->experts + e];
    }
    out[e] = first ? c : 0;
    out[s->experts + e] = p;
  }
  double *scalar = out + 2 * s->experts;
  scalar[AUX] = scopes_aux(m, count, prob, micros * s->segments,
                           (double)(tokens * spread) / (double)s->segments);
  scalar[Z] = moe_router_z_loss(&m->router, z, micros, tokens);
  scalar[DROPPED] = scalar[KEPT] = 0;
  for (int64_t i = 0; i < micros; i++) {
    scalar[DROPPED] += dropped[i];
    scalar[KEPT] += kept[i];
  }
}

/* in: sums over tp-cp-dp, each rank with the same number of tokens. */
static void layer_metrics(const struct moe_layer *m, const double *in, struct moe_place place,
                          double global_tokens, moe_step_metrics *out) {
  int64_t experts = m->stats.experts;
  const double *scalar = in + 2 * experts;
  double all = 0, most = 0, product = 0;
  for (int64_t e = 0; e < experts; e++) {
    all += in[e];
    most = in[e] > most ? in[e] : most;
    product += in[e] * in[experts + e];
  }
  double load = all > 0 ? most * (double)experts / all : 0;
  if (load > out->load_max) out->load_max = load;
  out->routed += (int64_t)all;
  out->dropped += (int64_t)scalar[DROPPED];
  out->z_loss += scalar[Z] / (place.tp.size * place.cp.size * place.dp.size);
  out->aux_loss += m->router.aux_scope == MOE_AUX_GLOBAL
                       ? moe_router_aux_loss(&m->router, product, global_tokens)
                       : scalar[AUX] / place.dp.size;
}

/* Every pair is accounted for: what the routers counted less what experts got and what a capacity
 * dropped. */
static double lost_pairs(const struct moe_layer *m, const double *in) {
  const double *scalar = in + 2 * m->stats.experts;
  double routed = 0;
  for (int64_t e = 0; e < m->stats.experts; e++) routed += in[e];
  return fabs(routed - scalar[KEPT] - scalar[DROPPED]);
}

/* Layers are spread over the pipeline; a stage without MoE layers joins all the same. */
static moe_status over_stages(struct moe_trainer *t, double lost, moe_step_metrics *m) {
  struct moe_group pp = t->groups.of[MOE_GROUP_PP];
  double sum[] = {m->aux_loss, m->z_loss, (double)m->routed, (double)m->dropped, lost};
  MOE_TRY(moe_all_reduce(pp, t->stream, sum, (int64_t)MOE_COUNTOF(sum), MOE_F64, MOE_SUM, NULL));
  MOE_TRY(moe_all_reduce(pp, t->stream, &m->load_max, 1, MOE_F64, MOE_MAX, NULL));
  m->aux_loss = sum[0];
  m->z_loss = sum[1];
  m->routed = (int64_t)sum[2];
  m->dropped = (int64_t)sum[3];
  if (sum[4] != 0)
    return moe_fail(t->ctx, MOE_INTERNAL,
                    "of %lld pairs routed, %.0f were neither dropped nor given to one expert",
                    (long long)m->routed, sum[4]);
  return MOE_OK;
}

moe_status moe_trainer_routing_metrics(struct moe_trainer *t, moe_step_metrics *out) {
  struct moe_group g = t->groups.of[MOE_GROUP_TP_CP_DP];
  double *at = t->routing, lost = 0;
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    if (!b->is_moe) continue;
    layer_sums(t, &b->moe, at);
    at += layer_size(&b->moe);
  }
  MOE_TRY(moe_all_reduce(g, t->stream, t->routing, at - t->routing, MOE_F64, MOE_SUM, NULL));
  at = t->routing;
  double tokens = (double)t->config.global_batch * (double)t->config.seq;
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    if (!b->is_moe) continue;
    layer_metrics(&b->moe, at, t->model->place, tokens, out);
    lost += lost_pairs(&b->moe, at);
    at += layer_size(&b->moe);
  }
  return over_stages(t, lost, out);
}

moe_status moe_trainer_update_bias(struct moe_trainer *t) {
  float *bias = t->bias_host;
  const double *count = t->routing;
  for (int32_t i = 0; i < t->model->blocks; i++) {
    const struct moe_block *b = &t->model->block[i];
    struct moe_param p = b->moe.router.bias;
    if (!b->is_moe) continue;
    const double *counts_E = count;
    count += layer_size(&b->moe);
    if (p.elements == 0) continue;
    double rate = t->model->config.blocks[t->model->number[i]].bias_rate, all = 0;
    for (int64_t e = 0; e < p.elements; e++) all += counts_E[e];
    for (int64_t e = 0; e < p.elements; e++) {
      double short_of = all / (double)p.elements - counts_E[e];
      bias[e] += (float)(short_of > 0 ? rate : short_of < 0 ? -rate : 0);
    }
    t->k->copy(t->stream, moe_param_weight(&t->memory, p), bias,
               (size_t)p.elements * sizeof(float));
    bias += p.elements;
  }
  return MOE_OK;
}
