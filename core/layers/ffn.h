/* SwiGLU feed-forward: y = (silu(x Wg^T) * (x Wu^T)) Wo^T. Serves dense layers and the shared
 * expert (gate and up are one matrix, gate rows first). */
#ifndef MOE_LAYERS_FFN_H
#define MOE_LAYERS_FFN_H

#include "layers/linear.h"

struct moe_ffn {
  struct moe_linear in, out; /* (2F, H), (H, F), F local */
};

struct moe_ffn_saved {
  struct moe_mat gu; /* (T, 2F) */
};

/* Slots prefix + name + ".in" (2, F, H) and ".out" (H, F), split over F by tp. */
moe_status moe_ffn_params(struct moe_ffn *f, const moe_model_config *model, int64_t width,
                          struct moe_place place, const char *prefix, const char *name,
                          struct moe_params *params);
void moe_ffn_init(struct moe_ffn *f, moe_part part, int64_t hidden, int64_t width,
                  struct moe_place place, moe_dtype dtype, int64_t rows_hint);
moe_status moe_ffn_bind(struct moe_ffn *f, const struct moe_kernels *k,
                        const struct moe_param_memory *memory, struct moe_arena *prepared);
void moe_ffn_prepare(const struct moe_ffn *f, const struct moe_run *run);
moe_status moe_ffn_forward(const struct moe_ffn *f, const struct moe_run *run, struct moe_mat x,
                           struct moe_ffn_saved *saved, struct moe_mat y);
/* dx [+]= gradient of x. Consumes saved->gu. */
moe_status moe_ffn_backward(const struct moe_ffn *f, const struct moe_run *run,
                            const struct moe_ffn_saved *saved, struct moe_mat x, struct moe_mat dy,
                            struct moe_mat dx, bool accumulate);

#endif
