/* The micro-kernel: MM_MR x MM_NR accumulators in registers. */
#include "kernels/cpu/matmul.h"

#define INLINE static inline __attribute__((always_inline))

/* c + a * b, a one unit for all lanes. */
INLINE vf multiply_add(mm_unit unit, const float *a, vf b, vf c) {
#if defined(__AVX512BF16__)
  if (unit == MM_UNIT_PAIR) {
    int32_t pair;
    memcpy(&pair, a, 4);
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
  }
#endif
  (void)unit;
  return vf_set(*a) * b + c;
}

INLINE void put(float *c, vf v, int64_t n, bool add) {
  if (n == MOE_VW)
    vf_store(c, add ? vf_load(c) + v : v);
  else
    mm_store_n(c, add ? mm_load_n(c, n) + v : v, n);
}

INLINE void tile(mm_unit unit, int mr, int64_t units, const float *a, const float *b, float *c,
                 int64_t ldc, int64_t cols, bool add) {
  vf lo[MM_MR], hi[MM_MR];
#pragma GCC unroll 14
  for (int i = 0; i < mr; i++) lo[i] = hi[i] = (vf){0};
#pragma GCC unroll 14
  for (int i = 0; i < mr; i++) {
    __builtin_prefetch(c + i * ldc, 1);
    __builtin_prefetch(c + i * ldc + MOE_VW, 1);
  }
  for (int64_t u = 0; u < units; u++, a += MM_AS, b += MM_NR) {
    vf b0 = vf_load(b), b1 = vf_load(b + MOE_VW);
    __builtin_prefetch(a + 16 * MM_AS);
#pragma GCC unroll 14
    for (int i = 0; i < mr; i++) {
      lo[i] = multiply_add(unit, a + i, b0, lo[i]);
      hi[i] = multiply_add(unit, a + i, b1, hi[i]);
    }
  }
  int64_t n0 = cols < MOE_VW ? cols : MOE_VW, n1 = cols - n0;
#pragma GCC unroll 14
  for (int i = 0; i < mr; i++) {
    put(c + i * ldc, lo[i], n0, add);
    if (n1 > 0) put(c + i * ldc + MOE_VW, hi[i], n1, add);
  }
}

#define ROWS(unit, mr) \
  case mr: tile(unit, mr, units, a, b, c, ldc, cols, add); return;
#define ROWS6(unit) \
  ROWS(unit, 1) ROWS(unit, 2) ROWS(unit, 3) ROWS(unit, 4) ROWS(unit, 5) ROWS(unit, 6)
#define ROWS8(unit) \
  ROWS(unit, 7) ROWS(unit, 8) ROWS(unit, 9) ROWS(unit, 10) \
  ROWS(unit, 11) ROWS(unit, 12) ROWS(unit, 13) ROWS(unit, 14)

#if MOE_VW == 16
#define ALL_ROWS(unit) ROWS6(unit) ROWS8(unit)
#else
#define ALL_ROWS(unit) ROWS6(unit)
#endif

void MOE_FN(mm_kernel)(mm_unit unit, int64_t mr, int64_t units, const float *a, const float *b,
                       float *c, int64_t ldc, int64_t cols, bool add) {
#if defined(__AVX512BF16__)
  if (unit == MM_UNIT_PAIR) {
    switch (mr) { ALL_ROWS(MM_UNIT_PAIR) }
    return;
  }
#endif
  (void)unit;
  switch (mr) { ALL_ROWS(MM_UNIT_F32) }
}
