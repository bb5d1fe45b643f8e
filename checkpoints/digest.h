/* The digest of a tensor, whichever slices it is stored in. The last dim of the whole tensor is cut
 * into segments of 32 elements, counted from 0 (the last one may be shorter). Digest of a box: the
 * sum modulo 2^64, over every run of elements that one row of the box and one segment share, of
 *   XXH3_64(the run's fp32 little-endian bytes, seed = index of its first element in the whole,
 *           row-major tensor).
 * Invariant: digests of disjoint boxes that cut no segment add up to the digest of their union, so
 * each rank computes the part of its slice. */
#ifndef MOE_CHECKPOINTS_DIGEST_H
#define MOE_CHECKPOINTS_DIGEST_H

#include "checkpoints/box.h"

enum { MOE_DIGEST_SEGMENT = 32 };

/* values: the box's elements, contiguous. dim: shape of the whole tensor. */
uint64_t moe_digest_box(const int64_t *dim, const struct moe_box *box, const float *values);
/* The box's ends in the last dim are ends of segments: its digest adds up. */
bool moe_digest_adds(const int64_t *dim, const struct moe_box *box);

#endif
