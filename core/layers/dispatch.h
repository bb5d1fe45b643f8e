/* The token dispatcher: from the router's choice to rows ordered by expert, and back. What routing
 * decided for one micro-batch is a plan; combine and backward consume it. Semantics:
 * core/README.md, "Dispatch".
 *
 * Tokens are a flat set of T rows, whatever the attention view made of them. Experts may live here
 * (no exchange), or be spread over the etp-ep group: then rows travel to them and back. Every rank
 * of the group calls the same functions in the same order, with rows or without. */
#ifndef MOE_LAYERS_DISPATCH_H
#define MOE_LAYERS_DISPATCH_H

#include "layers/run.h"

struct moe_dispatch {
  moe_dispatch_kind kind; /* ALLTOALL or ALLGATHER, where experts are spread */
  int64_t experts, topk;
  struct moe_coord etp, ep, tp, cp;
  double capacity_factor; /* 0: dropless */
  moe_drop_policy drop;
  bool pad;
  bool across; /* a capacity is of all tokens of tp-cp, which are several ranks */
};

/* Rows of each member of a group and where they begin; count and offset: the same in elements of
 * rows as wide as x. */
struct moe_parts {
  int64_t *rows, *first, *count, *offset;
};

/* What the host knows of a plan: exact sizes of all transfers. M = ETP*EP members, in the order of
 * the etp-ep group. */
struct moe_dispatch_host {
  int64_t hidden;
  int32_t *offsets;            /* (M, E + 1): where each member's rows of the experts begin */
  int32_t *table;              /* offset_L+1, then the orders of chunks, see plan */
  struct moe_parts pieces;     /* of the members: offsets */
  struct moe_parts send, recv; /* all-to-all, over ep */
  struct moe_parts etp;        /* all-to-all, over etp */
  struct moe_parts tokens;     /* all-gather: tokens of the members; count, offset: times H */
  struct moe_parts choices;    /* as tokens, times K */
  struct moe_parts peers;      /* a capacity across tp-cp: tokens of its members, times K */
  int32_t *order;              /* across: chunks of the sequences, see dispatch_capacity.c */
  int32_t mine;                /* T */
};

struct moe_dispatch_plan {
  struct moe_dispatch_host *host; /* of the layer's saved memory; NULL where nothing travels */
  /* Tokens and their rows: mine; with the all-gather kind those of all members that came to my
     experts. */
  int64_t tokens;
  int64_t sent;          /* rows they have (upper bound where rows may be dropped) */
  int32_t *row;          /* (tokens, K) */
  int32_t *token, *slot; /* (sent) */
  int32_t *offset;       /* (E + 1), or (L + 1) */
  /* my experts */
  int64_t rows;                  /* N */
  struct moe_groups_rows ranges; /* rows of each of them */
  float *prob;                   /* (N) */
  struct moe_mat x; /* what came here, kept for backward: rows (N, H), or tokens (tokens, H) */
  /* Between the order of arrival [ETP][EP][L] and expert-major [L][ETP][EP]; device. */
  int32_t *sort_from, *sort_to, *back_from, *back_to;
};

/* What a plan counts (device, one each): pairs of mine that were dropped; rows that experts here
 * get, padding not counted. Over all ranks, dropped + kept is what was routed. */
struct moe_dispatch_counts {
  int32_t *dropped, *kept;
};

/* An exchange under way. Its memory lies in scratch: nothing taken before may be given back. */
struct moe_dispatch_flight {
  struct moe_mat arrived; /* in order of arrival */
  float *arrived_prob;
  struct moe_request rows, prob;
};

/* Rows an expert may have: ceil(T*K/E * factor), at most T; 0 when dropless. */
int64_t moe_dispatch_capacity(const struct moe_dispatch *d, int64_t tokens);
/* Rows of a plan for T tokens, before they travel. */
int64_t moe_dispatch_rows(const struct moe_dispatch *d, int64_t tokens);
/* The kind that sends fewer bytes on this layout: core/README.md, "Dispatch", has the arithmetic.
 * Of the configuration alone, so all ranks choose alike. */
moe_dispatch_kind moe_dispatch_pick(const struct moe_dispatch *d);
/* From the configuration and this rank's place. */
struct moe_dispatch moe_dispatch_make(const moe_dispatch_config *config, int64_t experts,
                                      int64_t topk, struct moe_place place);

/* The host's part of a plan, for at most `batch` sequences and rows of `hidden` columns; *out NULL
 * where nothing travels. */
moe_status moe_dispatch_host_create(moe_ctx *ctx, const struct moe_dispatch *d, int64_t hidden,
                                    int64_t batch, struct moe_dispatch_host **out);

/* Makes the plan (kept in run->saved; plan->host is the caller's) from index, prob (T, K). Where
 * rows travel, waits for the counts of all members, unless padding fixes them. Members may have
 * different T, but for padding and a capacity across. */
moe_status moe_dispatch_plan_make(const struct moe_dispatch *d, const struct moe_run *run,
                                  const int32_t *index, const float *prob,
                                  struct moe_dispatch_counts counts,
                                  struct moe_dispatch_plan *plan);

/* x (T, H) and its probabilities (T, K) set out for the experts; finish gives rows (N, H) in the
 * plan's order and fills plan->prob. */
moe_status moe_dispatch_start(const struct moe_dispatch *d, const struct moe_run *run,
                              struct moe_dispatch_plan *plan, struct moe_mat x, const float *prob,
                              struct moe_dispatch_flight *flight);
moe_status moe_dispatch_finish(const struct moe_dispatch *d, const struct moe_run *run,
                               struct moe_dispatch_plan *plan, struct moe_mat x,
                               struct moe_dispatch_flight *flight, struct moe_mat *rows);
/* y (T, H) = base + sum of each token's rows; base.p may be NULL or y's. rows is undefined after.
 */
moe_status moe_combine(const struct moe_dispatch *d, const struct moe_run *run,
                       const struct moe_dispatch_plan *plan, struct moe_mat rows,
                       struct moe_mat base, struct moe_mat y);

/* Backward of combine: dy (T, H) travels as x did. */
moe_status moe_combine_back_start(const struct moe_dispatch *d, const struct moe_run *run,
                                  const struct moe_dispatch_plan *plan, struct moe_mat dy,
                                  struct moe_dispatch_flight *flight);
moe_status moe_combine_back_finish(const struct moe_dispatch *d, const struct moe_run *run,
                                   const struct moe_dispatch_plan *plan, struct moe_mat dy,
                                   struct moe_dispatch_flight *flight, struct moe_mat *drows);
/* The rows of x once more, for the weight gradients: kept, or gathered into scratch. */
moe_status moe_dispatch_again(const struct moe_dispatch *d, const struct moe_run *run,
                              const struct moe_dispatch_plan *plan, struct moe_mat x,
                              struct moe_mat *rows);
/* Backward of dispatch: dx (T, H) = base + sum of drows, dprob (T, K). drows and dprob_rows (N) are
 * undefined after. */
moe_status moe_dispatch_back(const struct moe_dispatch *d, const struct moe_run *run,
                             const struct moe_dispatch_plan *plan, struct moe_mat drows,
                             float *dprob_rows, struct moe_mat base, struct moe_mat dx,
                             float *dprob);

#endif
