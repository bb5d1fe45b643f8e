/* Which ranks share a parameter. The one table that gradient sums, the gradient norm and ZeRO
 * follow; after backward nothing else decides who reduces what.
 *
 * The ranks of a family's group hold the same box of a slot and each has seen a part of what the
 * box was used for, so a gradient is the sum over the group. Sums are never divided: the loss is
 * scaled by the token count of the whole step, and an expert's gradient already has the tokens of
 * all ranks folded into its edp group.
 *
 * Beyond the family's group:
 *   copies   a kv head lies on `copies` neighbours in tp when tp exceeds the kv heads: summed over
 *            them too, counted in the norm by the first
 *   seconds  a tied weight lies on the first and the last stage of a pipeline: their gradients are
 *            summed before anything else (moe_trainer_sum_tied), and the first stage counts
 *   buffers  have no gradient; they ride along in the flat sums as zeros, or as values that nobody
 *            reads, and count nowhere */
#ifndef MOE_OPTIM_SHARING_H
#define MOE_OPTIM_SHARING_H

#include "mesh/groups.h"
#include "mesh/place.h"
#include "tensor/pack.h"

/* X(family, group) */
#define MOE_SHARING_MAP(X) \
  X(DENSE, DP_CP)          \
  X(REPLICATED, TP_CP_DP)  \
  X(EXPERT, EDP)

struct moe_sharing {
  enum moe_group_kind group; /* summed over */
  int32_t copies;            /* and over so many neighbours in tp; 1: none */
  bool counted;              /* this rank's share of the group's sum counts in the norm */
};

enum moe_group_kind moe_family_group(enum moe_family family);
struct moe_sharing moe_sharing_of(const struct moe_slot *slot, const struct moe_place *place);

#endif
