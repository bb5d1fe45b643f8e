/* Tiles of the attention ops: packed operands, a register-blocked product over them, and the range
 * of keys each query sees.
 *
 * Scores are kept transposed: S^T (keys x queries), so that a vector holds one key against MOE_VW
 * queries, softmax runs down the rows without horizontal sums, and keys and values enter the
 * products row-major as they lie in memory.
 *
 * A packed operand is made of 32-bit units: floats, or pairs of bf16 neighbours along the summed
 * dim ("pairs", only where vdpbf16ps exists and pays). */
#ifndef MOE_KERNELS_CPU_ATTN_TILE_H
#define MOE_KERNELS_CPU_ATTN_TILE_H

#include "kernels/cpu/ops.h"

enum {
  ATTN_TQ = 64,                   /* queries of a tile: columns of S^T and its leading dimension */
  ATTN_TK = 64,                   /* keys of a tile: rows of S^T */
  ATTN_NR = 2 * MOE_VW,           /* queries of a panel: the width of a register block */
  ATTN_MR = MOE_VW == 16 ? 8 : 4, /* rows of a register block; divides TQ, TK and NR */
  ATTN_PANELS = ATTN_TQ / ATTN_NR,
  ATTN_D_MAX = 256,
};

/* How rows of D elements are packed. */
struct attn_shape {
  bool pairs;
  int64_t nv;     /* vectors that hold D floats */
  int64_t dp;     /* floats of a row of D, padded */
  int64_t units;  /* of a row along the summed dim: D, or D / 2 pairs */
  int64_t ld_row; /* the same padded; equals dp without pairs */
  int64_t per;    /* elements of a unit */
};
static inline struct attn_shape attn_shape_of(bool pairs, int64_t head_dim) {
  int64_t per = pairs ? 2 : 1;
  return (struct attn_shape){pairs,
                             moe_div_up(head_dim, MOE_VW),
                             (int64_t)moe_round_up((size_t)head_dim, 16),
                             head_dim / per,
                             (int64_t)moe_round_up((size_t)(head_dim / per), 16),
                             per};
}

/* C (m x n) = A (m x k) B (k x n). m is a multiple of MR, n = nv * MOE_VW, k counts units.
 * A(i, k) lies at a[i * a_row + k * a_k], B row-major with ldb, in units. */
struct attn_product {
  bool pairs;
  int64_t m, nv, k;
  const uint32_t *a;
  int64_t a_row, a_k;
  const uint32_t *b;
  int64_t ldb;
  float *c;
  int64_t ldc;
  bool add;               /* C += */
  const float *row_scale; /* (m) or NULL; with add: C = C * row_scale + A B */
};
void MOE_FN(attn_product)(const struct attn_product *p);

/* Rows [row, row+n) and columns [col, col+cols) of src as n_pad rows of ld units; what lies outside
 * is 0. rows: units hold the row's elements in order. interleave (pairs only): unit (r, d) holds
 * elements d of rows 2r and 2r+1, n_pad / 2 rows. */
struct attn_source {
  const struct moe_mat *mat;
  int64_t row, n, n_pad, col, cols;
};
void MOE_FN(attn_pack_rows)(bool pairs, uint32_t *dst, int64_t ld, const struct attn_source *src);
void MOE_FN(attn_pack_interleave)(uint32_t *dst, int64_t ld, const struct attn_source *src);
/* `units` units of 4 bytes from a workspace. */
static inline void *attn_take(char **at, int64_t units) {
  void *p = *at;
  *at += moe_round_up((size_t)units * 4, 64);
  return p;
}
/* dst (cols, TQ) = transpose of src (TQ, cols), units; cols is a multiple of 16. */
void MOE_FN(attn_transpose)(uint32_t *dst, const uint32_t *src, int64_t lds, int64_t cols);

/* Query i sees the keys [lo[i], hi[i]): positions ascend, so both ascend too. */
void MOE_FN(attn_ranges)(const struct moe_attn_args *a, int64_t first, int64_t n, int32_t *lo,
                         int32_t *hi);

/* Rows of S^T that some query of the panel [col, col+NR) sees in the key tile at k0, as whole
 * register blocks; full: every query of the panel sees all of them. */
struct attn_span {
  int64_t begin, end; /* empty: begin >= end */
  bool full;
};
static inline struct attn_span attn_span_of(const int32_t *lo, const int32_t *hi, int64_t col,
                                            int64_t k0) {
  int64_t last = col + ATTN_NR - 1;
  int64_t begin = moe_max64(lo[col] - k0, 0) / ATTN_MR * ATTN_MR;
  int64_t end = moe_min64(moe_div_up(moe_max64(hi[last] - k0, 0), ATTN_MR) * ATTN_MR, ATTN_TK);
  return (struct attn_span){begin, end, lo[last] <= k0 + begin && hi[col] >= k0 + end};
}
/* All ones where key k0 + row is seen, per query of the vector at lo, hi. */
static inline vi attn_seen(const int32_t *lo, const int32_t *hi, int64_t key) {
  vi l, h, k = (int32_t)key - (vi){0};
  memcpy(&l, lo, sizeof l);
  memcpy(&h, hi, sizeof h);
  return (k >= l) & (k < h);
}

/* exp(x) for x <= 88; -INFINITY and all below -87 give 0, NaN gives NaN. */
#if defined(__AVX512F__)
#include <immintrin.h>
static inline vf attn_exp(vf v) {
  __m512 x = (__m512)v;
  __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), 8);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f); /* Cephes expf */
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(_mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f)), r, _mm512_set1_ps(1.0f));
  return (vf)_mm512_maskz_scalef_ps(keep, p, n);
}
/* As vf_max, in one instruction. */
static inline vf attn_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
#else
static inline vf attn_exp(vf v) { return vf_exp(v); }
static inline vf attn_max(vf a, vf b) { return vf_max(a, b); }
#endif

/* Two rows of floats as one vector of bf16 pairs: lo in the low halves. */
static inline vu attn_pair(vf lo, vf hi) {
  vu l = __builtin_convertvector(vf_to_bf16(lo), vu),
     h = __builtin_convertvector(vf_to_bf16(hi), vu);
  return l | h << 16;
}

/* Whether the products of these matrices run on bf16 pairs. */
static inline bool attn_pairs(const struct moe_stream *s, const struct moe_attn_args *a) {
#if defined(__AVX512BF16__)
  return s->dot_bf16 && a->q.dtype == MOE_BF16 && a->k.dtype == MOE_BF16 && a->v.dtype == MOE_BF16;
#else
  (void)s, (void)a;
  return false;
#endif
}

#endif
