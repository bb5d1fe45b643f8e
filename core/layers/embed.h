/* Token embedding, rows split over tp. */
#ifndef MOE_LAYERS_EMBED_H
#define MOE_LAYERS_EMBED_H

#include "layers/run.h"

struct moe_embed {
  struct moe_param w;          /* (V, H) */
  int64_t first, rows, hidden; /* my ids: [first, first + rows) */
  bool tied;                   /* the head writes this gradient first */
};

/* My rows of a (V, H) matrix over tp: equal parts, the last ones shorter; nothing is padded. */
struct moe_slot moe_vocab_slot(const moe_model_config *model, struct moe_coord tp,
                               const char *name);
moe_status moe_embed_params(struct moe_embed *e, const moe_model_config *model,
                            struct moe_place place, struct moe_params *params);
/* y (T, H); token (rows), device. */
moe_status moe_embed_forward(const struct moe_embed *e, const struct moe_run *run,
                             const int32_t *token, struct moe_mat y);
moe_status moe_embed_backward(const struct moe_embed *e, const struct moe_run *run,
                              const int32_t *token, struct moe_mat dy);

#endif
