/* The router: fp32 logits, scores, top-k, the load-balancing and z losses. The aux loss of a layer
 * is coef * E / (K N^2) * sum_e (sum_t p_te) * count_e over the N tokens of its scope (Fedus et al.
 * 2021, eq. 4-6, for top-k); every scope enters with its share of the step's tokens, so the
 * gradient of a token does not depend on how a batch is cut. */
#ifndef MOE_LAYERS_ROUTER_H
#define MOE_LAYERS_ROUTER_H

#include "layers/linear.h"
#include "layers/stats.h"

struct moe_router {
  struct moe_linear gate; /* (E, H), fp32 */
  struct moe_param bias;  /* (E) buffer; elements 0: none */
  int64_t experts, topk, groups, topk_groups;
  moe_score_kind score;
  bool renormalise;
  float scale;
  double aux_coef, z_coef;
  moe_aux_scope aux_scope;
};

struct moe_router_saved {
  float *scores;  /* (T, E) */
  float *logits;  /* (T, E) when backward wants them, else NULL */
  int32_t *index; /* (T, K) */
  float *prob;    /* (T, K) */
  float *lse;     /* (T) */
};

moe_status moe_router_params(struct moe_router *r, const moe_model_config *model,
                             const moe_block_config *block, const char *prefix,
                             struct moe_params *params);
void moe_router_init(struct moe_router *r, const moe_model_config *model,
                     const moe_block_config *block, int64_t rows_hint);
moe_status moe_router_forward(const struct moe_router *r, const struct moe_run *run,
                              const struct moe_moe_stats *stats, struct moe_mat x,
                              struct moe_router_saved *saved);
/* dprob (T, K): gradient of the chosen probabilities. dx += the router's share. */
moe_status moe_router_backward(const struct moe_router *r, const struct moe_run *run,
                               const struct moe_moe_stats *stats,
                               const struct moe_router_saved *saved, struct moe_mat x,
                               const float *dprob, struct moe_mat dx);
/* The aux loss's scope is cut over tp-cp: backward sums the counts over these ranks, in place. */
bool moe_router_shares_counts(const struct moe_router *r);
/* The auxiliary loss of one scope of `tokens` tokens; count_prob: sum over experts of how often
 * they were chosen times the sum of their probabilities. */
double moe_router_aux_loss(const struct moe_router *r, double count_prob, double tokens);
/* Of one step, from host copies of its statistics; tokens: of one micro-batch. */
double moe_router_z_loss(const struct moe_router *r, const double *z_sum, int64_t micros,
                         int64_t tokens);

#endif
