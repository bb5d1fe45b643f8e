/* Vectors of the instruction set this file is compiled for, by GCC/Clang vector extensions:
 * MOE_VW floats. Arithmetic uses the ordinary operators; a * b + c contracts to FMA. */
#ifndef MOE_KERNELS_SIMD_H
#define MOE_KERNELS_SIMD_H

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu.h"

#if defined(__AVX512F__)
#define MOE_VW 16
#elif defined(__AVX2__)
#define MOE_VW 8
#else
#define MOE_VW 4
#endif

/* For bodies that take the dtype as a constant. */
#define MOE_INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * MOE_VW)));
typedef int32_t vi __attribute__((vector_size(4 * MOE_VW)));
typedef uint32_t vu __attribute__((vector_size(4 * MOE_VW)));
typedef uint16_t vh __attribute__((vector_size(2 * MOE_VW)));

static inline vf vf_set(float x) { return x - (vf){0}; }
static inline vf vf_load(const float *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
/* First n < MOE_VW lanes, zeros above. */
static inline vf vf_load_n(const float *p, int64_t n) {
  vf v = {0};
  memcpy(&v, p, (size_t)n * 4);
  return v;
}
static inline void vf_store_n(float *p, vf v, int64_t n) { memcpy(p, &v, (size_t)n * 4); }

static inline float moe_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t moe_f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline vf vf_from_bf16(vh h) {
  vu u = __builtin_convertvector(h, vu) << 16;
  return (vf)u;
}
static inline vh vf_to_bf16(vf v) {
#if defined(__AVX512BF16__)
  return (vh)_mm512_cvtneps_pbh((__m512)v); /* fp32 denormals become 0 */
#endif
  vu u = (vu)v;
  vu r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  vu nan = (vu)(v != v);
  r = (r & ~nan) | ((u >> 16 | 0x40) & nan);
  return __builtin_convertvector(r, vh);
}

/* Loads and stores of an activation of either dtype, element index i of p. */
static inline vf vx_load(const void *p, moe_dtype dtype, int64_t i) {
  if (dtype == MOE_F32) return vf_load((const float *)p + i);
  vh h;
  memcpy(&h, (const uint16_t *)p + i, sizeof h);
  return vf_from_bf16(h);
}
static inline vf vx_load_n(const void *p, moe_dtype dtype, int64_t i, int64_t n) {
  if (dtype == MOE_F32) return vf_load_n((const float *)p + i, n);
  vh h = {0};
  memcpy(&h, (const uint16_t *)p + i, (size_t)n * 2);
  return vf_from_bf16(h);
}
/* As vx_load; when only n < MOE_VW elements are there, `other` in the lanes above. */
static inline vf vx_load_or(const void *p, moe_dtype dtype, int64_t i, int64_t n, float other) {
  if (n >= MOE_VW) return vx_load(p, dtype, i);
  vf v = vx_load_n(p, dtype, i, n);
  for (int64_t j = n; j < MOE_VW; j++) v[j] = other;
  return v;
}
static inline void vx_store(void *p, moe_dtype dtype, int64_t i, vf v) {
  if (dtype == MOE_F32) {
    vf_store((float *)p + i, v);
  } else {
    vh h = vf_to_bf16(v);
    memcpy((uint16_t *)p + i, &h, sizeof h);
  }
}
static inline void vx_store_n(void *p, moe_dtype dtype, int64_t i, vf v, int64_t n) {
  if (dtype == MOE_F32) {
    vf_store_n((float *)p + i, v, n);
  } else {
    vh h = vf_to_bf16(v);
    memcpy((uint16_t *)p + i, &h, (size_t)n * 2);
  }
}
static inline float mx_get(const void *p, moe_dtype dtype, int64_t i) {
  return dtype == MOE_F32 ? ((const float *)p)[i] : moe_bf16_to_f32(((const uint16_t *)p)[i]);
}
static inline void mx_set(void *p, moe_dtype dtype, int64_t i, float v) {
  if (dtype == MOE_F32)
    ((float *)p)[i] = v;
  else
    ((uint16_t *)p)[i] = moe_f32_to_bf16(v);
}
static inline void *mat_row(const struct moe_mat *m, int64_t r) {
  return (char *)m->p + (size_t)r * (size_t)m->ld * moe_dtype_bytes(m->dtype);
}

/* Lanes summed in a fixed tree. */
static inline float vf_sum(vf v) {
  float a[MOE_VW];
  memcpy(a, &v, sizeof a);
  for (int w = MOE_VW / 2; w > 0; w /= 2)
    for (int i = 0; i < w; i++) a[i] += a[i + w];
  return a[0];
}
/* a > b ? a : b in each lane: b where either is NaN. */
static inline vf vf_max(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  vi m = a > b;
  return (vf)(((vi)a & m) | ((vi)b & ~m));
#endif
}
static inline vf vf_min(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
  vi m = a < b;
  return (vf)(((vi)a & m) | ((vi)b & ~m));
#endif
}
static inline vf vf_sqrt(vf v) {
#if defined(__AVX512F__)
  return (vf)_mm512_sqrt_ps((__m512)v);
#elif defined(__AVX2__)
  return (vf)_mm256_sqrt_ps((__m256)v);
#elif defined(__SSE2__)
  return (vf)_mm_sqrt_ps((__m128)v);
#else
  for (int i = 0; i < MOE_VW; i++) v[i] = sqrtf(v[i]);
  return v;
#endif
}
static inline float vf_hmax(vf v) {
  float a[MOE_VW], m;
  memcpy(a, &v, sizeof a);
  m = a[0];
  for (int i = 1; i < MOE_VW; i++) m = a[i] > m ? a[i] : m;
  return m;
}

/* exp(x): n = round(x / ln 2) and a degree-6 polynomial on the rest (Cephes expf coefficients),
 * within 2 ulp for x in [-87.3, 88.7]; 0 below, about 3e38 above. NaN gives NaN. */
static inline vf vf_exp(vf x) {
  const vf lo = vf_set(-87.336544f), hi = vf_set(88.72283f);
  vf y = vf_min(hi, vf_max(lo, x)); /* in this order a NaN stays */
  const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  vf n = (y * vf_set(1.44269504088896341f) + magic) - magic;
  vf r = y - n * vf_set(0.693359375f);
  r = r - n * vf_set(-2.12194440e-4f);
  vf p = vf_set(1.9875691500e-4f);
  p = p * r + vf_set(1.3981999507e-3f);
  p = p * r + vf_set(8.3334519073e-3f);
  p = p * r + vf_set(4.1665795894e-2f);
  p = p * r + vf_set(1.6666665459e-1f);
  p = p * r + vf_set(5.0000001201e-1f);
  p = p * (r * r) + r + vf_set(1.0f);
#if defined(__AVX512F__)
  __mmask16 over = _mm512_cmp_ps_mask((__m512)x, (__m512)lo, _CMP_NLT_UQ);
  return (vf)_mm512_maskz_scalef_ps(over, (__m512)p, (__m512)n);
#else
  /* 2^n in two factors: n reaches 128, where one alone would overflow. */
  vi k = __builtin_convertvector(n, vi), h = k >> 1;
  vf a = (vf)((h + 127) << 23), b = (vf)((k - h + 127) << 23);
  vi under = x < lo;
  return (vf)((vi)(p * a * b) & ~under);
#endif
}
/* 1 / (1 + exp(-x)), within 4 ulp; at least 2e-39. */
static inline vf vf_sigmoid(vf x) {
  vf d = vf_set(1.0f) + vf_exp(-x);
#if defined(__AVX512F__)
  vf r = (vf)_mm512_rcp14_ps((__m512)d); /* and one Newton step: d is finite and not 0 */
  return r + r * (vf_set(1.0f) - d * r);
#else
  return vf_set(1.0f) / d;
#endif
}

#endif
