/* Packs: one flat allocation of parameters (gradients, moments) with named slots. Invariant: slots
 * lie in declaration order without overlap; the layout of a parameter pack serves its gradient and
 * optimizer packs too, so element i means the same parameter in all of them. After backward nothing
 * knows layers: gradient sync, clipping, ZeRO, checkpoints and resharding see only slots. */
#ifndef MOE_TENSOR_PACK_H
#define MOE_TENSOR_PACK_H

#include "base/base.h"
#include "base/rng.h"
#include "kernels/kernels.h"

enum { MOE_SLOT_DIMS = 4, MOE_SLOT_NAME = 96 };

/* How the ranks share a parameter, each family a pack; a property of the layout's rules, not of its
 * degrees. Dense: the attention view, split over tp. Replicated: the attention view, the same on
 * all tp ranks, each of which sees only its part of the sequence or of the heads. Expert: the MoE
 * view. optim/sharing.h has what follows from it. */
enum moe_family { MOE_FAMILY_DENSE, MOE_FAMILY_REPLICATED, MOE_FAMILY_EXPERT, MOE_FAMILIES };

enum moe_init { MOE_INIT_NORMAL, MOE_INIT_ONES, MOE_INIT_ZEROS };

/* One logical tensor and the box of it that this rank owns. */
struct moe_slot {
  char name[MOE_SLOT_NAME]; /* global: expert and layer numbers are those of the whole model */
  int32_t dims;
  int64_t dim[MOE_SLOT_DIMS];   /* global shape */
  int64_t start[MOE_SLOT_DIMS]; /* my box */
  int64_t count[MOE_SLOT_DIMS];
  enum moe_family family;
  moe_decay_class decay;
  enum moe_init init;
  float init_std;
  bool replicated;  /* of the replicated family; a shorter word for layers */
  int32_t copies;   /* neighbours in tp that hold this same box (kv heads where tp exceeds them),
                       each seeing its part of the query heads; 0 or 1: none do */
  bool second;      /* the copy of a tied weight on the pipeline's last stage: counts nowhere */
  bool buffer;      /* no gradient, no optimizer state (router bias) */
  bool join;        /* follows the slot before without a gap: q, k, v read as one matrix */
  int64_t offset;   /* of my box in the pack, elements */
  int64_t elements; /* of my box */
};

/* The slots of one family, and their total. */
struct moe_pack {
  moe_ctx *ctx;
  enum moe_family family;
  struct moe_slot *slot;
  int32_t slots, room;
  int64_t elements; /* padded to a multiple of MOE_PACK_PAD */
};

enum { MOE_PACK_ALIGN = 16, MOE_PACK_PAD = 64 };

void moe_pack_init(moe_ctx *ctx, enum moe_family family, struct moe_pack *out);
void moe_pack_destroy(struct moe_pack *pack);
/* Copies *slot in, sets its offset and elements. A name twice, a box outside the tensor or a bad
 * join is MOE_INTERNAL. *index (may be NULL) gets its place. */
moe_status moe_pack_add(struct moe_pack *pack, const struct moe_slot *slot, int32_t *index);
/* NULL when there is none. */
const struct moe_slot *moe_pack_find(const struct moe_pack *pack, const char *name);
/* The first slot that ends behind element `at`; `slots` when there is none. */
int32_t moe_pack_slot_at(const struct moe_pack *pack, int64_t at);
/* Fills host memory `values` (pack.elements floats) with initial weights of seed: a function of
 * (seed, name, global index) alone, so the same in every layout. Gaps get 0. */
void moe_pack_fill_initial(const struct moe_pack *pack, uint64_t seed, float *values);

/* Where layers declare their parameters: each goes to the pack of its family. */
struct moe_params {
  struct moe_pack pack[MOE_FAMILIES];
};
void moe_params_init(moe_ctx *ctx, struct moe_params *out);
void moe_params_destroy(struct moe_params *params);

/* A declared parameter: its place, for the layer that declared it. elements 0: not declared. */
struct moe_param {
  enum moe_family family;
  int64_t offset, elements;
};

/* The memory behind the packs of one model on this rank: device pointers per family. */
struct moe_param_memory {
  float *weight[MOE_FAMILIES], *grad[MOE_FAMILIES], *exp_avg[MOE_FAMILIES],
      *exp_avg_sq[MOE_FAMILIES];
};
static inline float *moe_param_weight(const struct moe_param_memory *m, struct moe_param p) {
  return p.elements ? m->weight[p.family] + p.offset : NULL;
}
static inline float *moe_param_grad(const struct moe_param_memory *m, struct moe_param p) {
  return p.elements ? m->grad[p.family] + p.offset : NULL;
}

#endif
