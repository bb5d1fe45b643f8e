/* Buckets: pieces of the packs in the order in which backward finishes their gradients: head,
 * blocks from the last to the first, embedding. A bucket is reduced by one transfer and is divided
 * evenly among the ranks that share it (optim/sharing.h): a rank's part is what it counts in the
 * norm and, with ZeRO, what it keeps moments for and updates.
 *
 * Invariant: the buckets of a family cover its pack once; ranks that share a pack have the same
 * buckets; `ready` never grows along the list. */
#ifndef MOE_OPTIM_BUCKETS_H
#define MOE_OPTIM_BUCKETS_H

#include "mesh/place.h"
#include "tensor/pack.h"

/* Elements: fewer are joined with what is ready next; more are cut (reductions beyond 16 MB fault
 * in temporary buffers of MPI). */
enum { MOE_BUCKET_LEAST = 1 << 20, MOE_BUCKET_MOST = 4 << 20 };

struct moe_bucket {
  enum moe_family family;
  int32_t ready;         /* final after the backward of this block; -1: of the embedding */
  int64_t first, last;   /* elements of the pack */
  int64_t *part, *count; /* of each sharing rank: begins part[m] after first, count[m] elements */
  int64_t moment;        /* where this rank's moments of the bucket begin */
};

/* A run of elements of a pack on this rank, and where its moments begin. */
struct moe_held {
  int64_t first, last, moment;
};

struct moe_buckets {
  moe_ctx *ctx;
  struct moe_bucket *bucket;
  int32_t buckets;
  struct moe_coord share[MOE_FAMILIES]; /* ranks that share the family, and my place */
  bool zero[MOE_FAMILIES];              /* moments of my parts only */
  int64_t moments[MOE_FAMILIES];        /* elements of each moment on this rank */
  int64_t *parts;                       /* all part and count arrays */
};

/* first_slot[b][family]: slots of the pack before block b of this stage; entry `blocks` is the
 * head's. */
moe_status moe_buckets_create(moe_ctx *ctx, const struct moe_params *params,
                              const int32_t (*first_slot)[MOE_FAMILIES], int32_t blocks,
                              const struct moe_coord share[MOE_FAMILIES], bool zero,
                              struct moe_buckets *out);
void moe_buckets_destroy(struct moe_buckets *buckets);
/* This rank's part of a bucket. */
struct moe_held moe_bucket_part(const struct moe_buckets *buckets, const struct moe_bucket *bucket);
/* What this rank has moments for and updates: its part with ZeRO, else all of the bucket. */
struct moe_held moe_bucket_held(const struct moe_buckets *buckets, const struct moe_bucket *bucket);
/* Runs of a slot's elements that this rank has moments for, one a bucket: *at begins as 0. False
 * when there are no more. */
bool moe_buckets_next(const struct moe_buckets *buckets, const struct moe_slot *slot, int32_t *at,
                      struct moe_held *out);

#endif
