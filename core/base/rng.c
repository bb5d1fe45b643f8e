#include "base/rng.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct moe_rng_key moe_rng_key(uint64_t seed, const char *name) {
  uint64_t h = XXH3_64bits_withSeed(name, strlen(name), seed);
  return (struct moe_rng_key){{(uint32_t)h, (uint32_t)(h >> 32)}};
}

void moe_rng_words(struct moe_rng_key key, uint64_t index, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = key.k[0], k1 = key.k[1];
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

uint64_t moe_rng_u64(struct moe_rng_key key, uint64_t index) {
  uint32_t w[4];
  moe_rng_words(key, index, w);
  return (uint64_t)w[0] | (uint64_t)w[1] << 32;
}

double moe_rng_uniform(struct moe_rng_key key, uint64_t index) {
  return (double)(moe_rng_u64(key, index) >> 11) * 0x1p-53;
}

double moe_rng_normal(struct moe_rng_key key, uint64_t index) {
  uint32_t w[4];
  moe_rng_words(key, index >> 1, w); /* one counter serves an even and an odd element */
  double u = ((double)(((uint64_t)w[0] | (uint64_t)w[1] << 32) >> 11) + 0.5) * 0x1p-53;
  double v = (double)(((uint64_t)w[2] | (uint64_t)w[3] << 32) >> 11) * 0x1p-53;
  double r = sqrt(-2.0 * log(u)), angle = 6.283185307179586477 * v;
  return index & 1 ? r * sin(angle) : r * cos(angle);
}

/* A four-round Feistel network over the smallest even number of bits that holds n, walked until the
 * image lies inside [0, n). */
uint64_t moe_rng_permute(struct moe_rng_key key, uint64_t index, uint64_t n) {
  if (n < 2) return 0;
  unsigned half = 1;
  while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t x = index;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
      uint64_t next = left ^ (moe_rng_u64(key, (round << 40) ^ right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= n);
  return x;
}
