/* Packing of operands into panels, converting to the product's precision on the way. */
#include "kernels/cpu/matmul.h"

#define INLINE static inline __attribute__((always_inline))

/* MOE_VW contiguous elements from p, the first n of them, as fp32. */
INLINE vf load_elements(const void *p, moe_dtype dtype, int64_t at, int64_t n) {
  if (n <= 0) return (vf){0};
  if (dtype == MOE_F32) {
    const float *f = (const float *)p + at;
    return n >= MOE_VW ? vf_load(f) : mm_load_n(f, n);
  }
  const uint16_t *h = (const uint16_t *)p + at;
  return n >= MOE_VW ? vx_load(h, MOE_BF16, 0) : vf_from_bf16(mm_load_h(h, n));
}
INLINE vf to_bf16_values(vf v) {
#if defined(__AVX512BF16__)
  return vf_from_bf16((vh)_mm512_cvtneps_pbh((__m512)v));
#else
  return vf_from_bf16(vf_to_bf16(v));
#endif
}
INLINE vf load_single(const void *p, moe_dtype dtype, mm_unit unit, int64_t at, int64_t n) {
  vf v = load_elements(p, dtype, at, n);
  return unit == MM_UNIT_ROUND && dtype == MOE_F32 ? to_bf16_values(v) : v;
}

#if defined(__AVX512BF16__)
/* 16 pairs from 32 contiguous elements, the first n of them. */
INLINE vf load_pairs_along(const void *p, moe_dtype dtype, int64_t at, int64_t n) {
  if (n <= 0) return (vf){0};
  if (dtype == MOE_F32) {
    vf lo = load_elements(p, dtype, at, n), hi = load_elements(p, dtype, at + 16, n - 16);
    return (vf)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo);
  }
  __mmask32 mask = n >= 32 ? 0xffffffffu : (1u << n) - 1;
  return (vf)_mm512_maskz_loadu_epi16(mask, (const uint16_t *)p + at);
}
INLINE vu half_words(const void *p, moe_dtype dtype, int64_t at, int64_t n) {
  if (n <= 0) return (vu){0};
  if (dtype == MOE_F32)
    return (vu)_mm512_cvtepu16_epi32(
        (__m256i)_mm512_cvtneps_pbh((__m512)load_elements(p, dtype, at, n)));
  return (vu)load_elements(p, dtype, at, n) >> 16;
}
/* 16 pairs (element at, element at + ld) for the first n of 16 neighbours; second false: (., 0). */
INLINE vf load_pairs_across(const void *p, moe_dtype dtype, int64_t at, int64_t ld, bool second,
                            int64_t n) {
  vu lo = half_words(p, dtype, at, n), hi = half_words(p, dtype, at + ld, second ? n : 0);
  return (vf)(lo | hi << 16);
}
#endif

#if MOE_VW == 16
#define EVEN_HALF 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ODD_HALF 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
enum { TRANSPOSE_STEPS = 4 };
#elif MOE_VW == 8
#define EVEN_HALF 0, 8, 1, 9, 2, 10, 3, 11
#define ODD_HALF 4, 12, 5, 13, 6, 14, 7, 15
enum { TRANSPOSE_STEPS = 3 };
#else
#define EVEN_HALF 0, 4, 1, 5
#define ODD_HALF 2, 6, 3, 7
enum { TRANSPOSE_STEPS = 2 };
#endif

/* r as a square matrix, transposed by log2(MOE_VW) perfect shuffles. */
INLINE void transpose(vf r[MOE_VW]) {
  vf t[MOE_VW];
#pragma GCC unroll 4
  for (int step = 0; step < TRANSPOSE_STEPS; step++) {
#pragma GCC unroll 16
    for (int i = 0; i < MOE_VW / 2; i++) {
      t[2 * i] = __builtin_shufflevector(r[i], r[i + MOE_VW / 2], EVEN_HALF);
      t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + MOE_VW / 2], ODD_HALF);
    }
#pragma GCC unroll 16
    for (int i = 0; i < MOE_VW; i++) r[i] = t[i];
  }
}

/* Units [u, u + MOE_VW) of one line, zeros past the depth. */
INLINE vf load_line(const struct mm_side *s, moe_dtype dtype, mm_unit unit, int64_t line,
                    int64_t u) {
#if defined(__AVX512BF16__)
  if (unit == MM_UNIT_PAIR)
    return load_pairs_along(s->p, dtype, line * s->ld + 2 * u, s->depth - 2 * u);
#endif
  return load_single(s->p, dtype, unit, line * s->ld + u, s->depth - u);
}

INLINE void pack_by_depth(const struct mm_side *s, moe_dtype dtype, mm_unit unit, int64_t width,
                          int64_t line, int64_t n, int64_t u0, int64_t units, float *panel) {
  for (int64_t h = 0; h < width; h += MOE_VW) {
    int64_t row[MOE_VW]; /* the last line stands for those past n: no branch, and nobody reads it */
    for (int i = 0; i < MOE_VW; i++) row[i] = line + moe_min64(h + i, n - 1);
    for (int64_t u = 0; u < units; u += MOE_VW) {
      vf r[MOE_VW];
#pragma GCC unroll 16
      for (int i = 0; i < MOE_VW; i++) r[i] = load_line(s, dtype, unit, row[i], u0 + u);
      transpose(r);
      float *out = panel + u * width + h;
      if (units - u >= MOE_VW) {
#pragma GCC unroll 16
        for (int i = 0; i < MOE_VW; i++) vf_store(out + i * width, r[i]);
      } else {
        for (int64_t i = 0; i < units - u; i++) vf_store(out + i * width, r[i]);
      }
    }
  }
}

INLINE void pack_by_line(const struct mm_side *s, moe_dtype dtype, mm_unit unit, int64_t width,
                         int64_t line, int64_t n, int64_t u0, int64_t units, float *panel) {
  for (int64_t u = 0; u < units; u++)
    for (int64_t h = 0; h < width; h += MOE_VW) {
      int64_t lines = n - h;
      vf v;
#if defined(__AVX512BF16__)
      int64_t k = 2 * (u0 + u);
      if (unit == MM_UNIT_PAIR)
        v = load_pairs_across(s->p, dtype, k * s->ld + line + h, s->ld, k + 1 < s->depth, lines);
      else
#endif
        v = load_single(s->p, dtype, unit, (u0 + u) * s->ld + line + h, lines);
      vf_store(panel + u * width + h, v);
    }
}

INLINE void pack(const struct mm_side *s, moe_dtype dtype, mm_unit unit, int64_t width,
                 int64_t line, int64_t n, int64_t u, int64_t units, float *panel) {
  if (s->by_depth)
    pack_by_depth(s, dtype, unit, width, line, n, u, units, panel);
  else
    pack_by_line(s, dtype, unit, width, line, n, u, units, panel);
}

#define PANEL(side_dtype, unit_kind)                                                        \
  if (side->dtype == side_dtype && unit == unit_kind) {                                     \
    if (width == MM_NR)                                                                     \
      pack(side, side_dtype, unit_kind, MM_NR, line, n, u, units, panel);                   \
    else                                                                                    \
      pack(side, side_dtype, unit_kind, MM_AS, line, n, u, units, panel);                   \
    return;                                                                                 \
  }

void MOE_FN(mm_pack)(const struct mm_side *side, mm_unit unit, int64_t width, int64_t line,
                     int64_t n, int64_t u, int64_t units, float *panel) {
  PANEL(MOE_F32, MM_UNIT_F32)
  PANEL(MOE_BF16, MM_UNIT_F32)
  PANEL(MOE_F32, MM_UNIT_ROUND)
  PANEL(MOE_BF16, MM_UNIT_ROUND)
#if defined(__AVX512BF16__)
  PANEL(MOE_F32, MM_UNIT_PAIR)
  PANEL(MOE_BF16, MM_UNIT_PAIR)
#endif
}
