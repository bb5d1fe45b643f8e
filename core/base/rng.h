/* Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC11). A value is a pure function of (seed, name, index), so a weight has the same
 * value in every layout. */
#ifndef MOE_BASE_RNG_H
#define MOE_BASE_RNG_H

#include "base/base.h"

struct moe_rng_key {
  uint32_t k[2];
};

/* The key of a named stream. */
struct moe_rng_key moe_rng_key(uint64_t seed, const char *name);
/* Four 32-bit words of counter `index`. */
void moe_rng_words(struct moe_rng_key key, uint64_t index, uint32_t out[4]);
/* 64 random bits of element `index`. */
uint64_t moe_rng_u64(struct moe_rng_key key, uint64_t index);
/* Uniform in [0, 1). */
double moe_rng_uniform(struct moe_rng_key key, uint64_t index);
/* Standard normal of element `index` (Box-Muller). */
double moe_rng_normal(struct moe_rng_key key, uint64_t index);
/* Element `index` of a random permutation of [0, n): a keyed bijection, no table. */
uint64_t moe_rng_permute(struct moe_rng_key key, uint64_t index, uint64_t n);

#endif
