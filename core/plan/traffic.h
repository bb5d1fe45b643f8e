/* Bytes that a rank sends in a step, by group and operation, from arithmetic alone: what
 * comm/comm.c counts, without running anything. Formulas stand beside what they are about; the rule
 * of each operation is that of moe_count (comm/comm.h): with g ranks, all-reduce of n elements
 * 2n(g-1)/g, all-gather of my n elements n(g-1), reduce-scatter and all-to-all what is others'.
 *
 * Invariant: nothing here calls the code it predicts. What is shared with it are definitions: the
 * sizes of groups, the slots and buckets of the packs, the capacity of an expert. */
#ifndef MOE_PLAN_TRAFFIC_H
#define MOE_PLAN_TRAFFIC_H

#include "mesh/groups.h"
#include "moelua/config.h"

struct moe_traffic {
  int64_t bytes[MOE_GROUPS][MOE_COMM_OPS];
};

/* Routing of every micro-batch and MoE layer: rows_WE[r * E + e] rows of the tokens of world rank r
 * go to expert e. NULL: as many to each, in whole rows. */
struct moe_traffic_routing {
  const int64_t *rows_WE;
};

/* ---- layers: traffic_layers.c ---- */

/* What is the same for all layers. All sizes are of one micro-batch on this rank. */
struct moe_traffic_run {
  const struct moe_layout *layout;
  int32_t rank;
  int32_t size[MOE_GROUPS]; /* ranks of each group */
  int32_t *ep, *etp;        /* [world]: room for the members of these groups */
  int32_t cp_kind;
  moe_dispatch_config dispatch;
  struct moe_traffic_routing routing;
  int64_t act;                         /* bytes of an activation's element */
  int64_t batch, seq, rows, tokens, H; /* as in struct moe_run */
  int64_t times;                       /* counted so often: micro-batches */
  struct moe_traffic *out;
};

/* n elements of `bytes` bytes each: all-reduced over a group, all-gathered or reduce-scattered in
 * parts of n. */
void moe_traffic_all_reduce(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                            int64_t bytes);
void moe_traffic_all_gather(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                            int64_t bytes);
void moe_traffic_reduce_scatter(struct moe_traffic_run *run, enum moe_group_kind kind, int64_t n,
                                int64_t bytes);

/* A block forward and backward; `moe`: where its MoE layer's part goes, run->out the rest. */
void moe_traffic_block(struct moe_traffic_run *run, const moe_block_config *block,
                       struct moe_traffic *moe);
void moe_traffic_embed(struct moe_traffic_run *run);
void moe_traffic_head(struct moe_traffic_run *run);

/* ---- the step: traffic.c ---- */

/* config has passed its check on the layout's world. step holds all, moe what of it is the MoE
 * layers' (moe_plan_traffic). */
moe_status moe_traffic_step(moe_ctx *ctx, const moe_train_config *config,
                            const struct moe_layout *layout, int32_t rank,
                            struct moe_traffic_routing routing, struct moe_traffic *step,
                            struct moe_traffic *moe);

#endif
