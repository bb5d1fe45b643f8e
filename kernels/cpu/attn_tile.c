/* Packing and products of attention tiles. */
#include "kernels/cpu/attn_tile.h"

#define INLINE static inline __attribute__((always_inline))

/* acc + x * b for one unit x against a vector of units. */
INLINE vf multiply_add(bool pairs, vf acc, uint32_t x, vf b) {
#if defined(__AVX512BF16__)
  if (pairs)
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)b);
#endif
  (void)pairs;
  float f;
  memcpy(&f, &x, 4);
  return acc + vf_set(f) * b;
}

/* One register block: MR rows, nv (1 or 2) vectors. */
INLINE void block(bool pairs, int nv, const struct attn_product *p, const uint32_t *a,
                  const uint32_t *b, float *c, const float *row_scale) {
  vf acc[ATTN_MR][2];
#pragma GCC unroll 8
  for (int i = 0; i < ATTN_MR; i++)
    for (int j = 0; j < nv; j++) {
      acc[i][j] = p->add ? vf_load(c + i * p->ldc + j * MOE_VW) : (vf){0};
      if (row_scale) acc[i][j] *= vf_set(row_scale[i]);
    }
  for (int64_t k = p->k; k > 0; k--, a += p->a_k, b += p->ldb) {
    vf b0 = vf_load((const float *)b), b1 = nv > 1 ? vf_load((const float *)b + MOE_VW) : b0;
#pragma GCC unroll 8
    for (int i = 0; i < ATTN_MR; i++) {
      acc[i][0] = multiply_add(pairs, acc[i][0], a[i * p->a_row], b0);
      if (nv > 1) acc[i][1] = multiply_add(pairs, acc[i][1], a[i * p->a_row], b1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ATTN_MR; i++)
    for (int j = 0; j < nv; j++) vf_store(c + i * p->ldc + j * MOE_VW, acc[i][j]);
}

INLINE void blocks(bool pairs, const struct attn_product *from) {
  struct attn_product p = *from; /* so that no store to C can change it */
  for (int64_t j = 0; j < p.nv; j += 2) {
    const uint32_t *b = p.b + j * MOE_VW;
    for (int64_t i = 0; i < p.m; i += ATTN_MR) {
      const uint32_t *a = p.a + i * p.a_row;
      float *c = p.c + i * p.ldc + j * MOE_VW;
      const float *row_scale = p.row_scale ? p.row_scale + i : NULL;
      if (j + 1 < p.nv)
        block(pairs, 2, &p, a, b, c, row_scale);
      else
        block(pairs, 1, &p, a, b, c, row_scale);
    }
  }
}

void MOE_FN(attn_product)(const struct attn_product *p) {
#if defined(__AVX512BF16__)
  if (p->pairs) {
    blocks(true, p);
    return;
  }
#endif
  blocks(false, p);
}

INLINE void pack_floats(float *dst, int64_t ld, const struct attn_source *src, moe_dtype dtype) {
  for (int64_t r = 0; r < src->n; r++, dst += ld) {
    const void *row = mat_row(src->mat, src->row + r);
    int64_t d = 0;
    for (; d + MOE_VW <= src->cols; d += MOE_VW)
      vf_store(dst + d, vx_load(row, dtype, src->col + d));
    if (d < src->cols) {
      vf_store(dst + d, vx_load_n(row, dtype, src->col + d, src->cols - d));
      d += MOE_VW;
    }
    for (; d < ld; d += MOE_VW) vf_store(dst + d, (vf){0});
  }
}

/* ld is a multiple of 16. */
void MOE_FN(attn_pack_rows)(bool pairs, uint32_t *dst, int64_t ld, const struct attn_source *src) {
  if (pairs) {
    size_t bytes = (size_t)src->cols * 2;
    for (int64_t r = 0; r < src->n; r++) {
      char *to = (char *)(dst + r * ld);
      memcpy(to, (char *)mat_row(src->mat, src->row + r) + src->col * 2, bytes);
      memset(to + bytes, 0, (size_t)ld * 4 - bytes);
    }
  } else if (src->mat->dtype == MOE_F32) {
    pack_floats((float *)dst, ld, src, MOE_F32);
  } else {
    pack_floats((float *)dst, ld, src, MOE_BF16);
  }
  memset(dst + src->n * ld, 0, (size_t)((src->n_pad - src->n) * ld) * 4);
}

void MOE_FN(attn_pack_interleave)(uint32_t *dst, int64_t ld, const struct attn_source *src) {
  const struct moe_mat *mat = src->mat;
  for (int64_t r = 0; r < src->n_pad; r += 2, dst += ld) {
    memset(dst, 0, (size_t)ld * 4);
    if (r >= src->n) continue;
    bool two = r + 1 < src->n;
    const uint16_t *x = (const uint16_t *)mat_row(mat, src->row + r) + src->col;
    const uint16_t *y = two ? (const uint16_t *)mat_row(mat, src->row + r + 1) + src->col : x;
    uint32_t high = two ? 0xffffffffu : 0;
    int64_t d = 0;
    for (; d + MOE_VW <= src->cols; d += MOE_VW) {
      vh l, h;
      memcpy(&l, x + d, sizeof l);
      memcpy(&h, y + d, sizeof h);
      vu u = __builtin_convertvector(l, vu) | (__builtin_convertvector(h, vu) << 16 & high);
      memcpy(dst + d, &u, sizeof u);
    }
    for (; d < src->cols; d++) dst[d] = x[d] | ((uint32_t)y[d] << 16 & high);
  }
}

#if defined(__AVX512F__)
/* 16 x 16 units in registers: rows become columns. */
INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

void MOE_FN(attn_transpose)(uint32_t *dst, const uint32_t *src, int64_t lds, int64_t cols) {
  for (int64_t c = 0; c < cols; c += 16)
    for (int64_t q = 0; q < ATTN_TQ; q += 16) {
      __m512i r[16];
      for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(src + (q + i) * lds + c);
      transpose16(r);
      for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + (c + i) * ATTN_TQ + q, r[i]);
    }
}
#else
void MOE_FN(attn_transpose)(uint32_t *dst, const uint32_t *src, int64_t lds, int64_t cols) {
  for (int64_t q = 0; q < ATTN_TQ; q += 16)
    for (int64_t c = 0; c < cols; c++)
      for (int64_t i = 0; i < 16; i++) dst[c * ATTN_TQ + q + i] = src[(q + i) * lds + c];
}
#endif

/* Keys at positions <= pos. */
static int64_t keys_up_to(const int32_t *k_pos, int64_t n, int64_t pos) {
  int64_t first = 0;
  while (n > 0) {
    int64_t half = n / 2;
    bool below = k_pos[first + half] <= pos;
    first = below ? first + half + 1 : first;
    n = below ? n - half - 1 : half;
  }
  return first;
}

void MOE_FN(attn_ranges)(const struct moe_attn_args *a, int64_t first, int64_t n, int32_t *lo,
                         int32_t *hi) {
  if (n <= 0) return;
  int64_t l = 0, h = keys_up_to(a->k_pos, a->sk, a->q_pos[first]);
  if (a->window > 0) l = keys_up_to(a->k_pos, a->sk, a->q_pos[first] - a->window);
  for (int64_t i = 0; i < n; i++) {
    int64_t pos = a->q_pos[first + i];
    while (h < a->sk && a->k_pos[h] <= pos) h++;
    while (a->window > 0 && l < a->sk && a->k_pos[l] <= pos - a->window) l++;
    lo[i] = (int32_t)l;
    hi[i] = (int32_t)h;
  }
}
