/* The inside of the matrix products C (m, n) = A (m, k) B (k, n): what its files share.
 *
 * Both operands are packed: A in panels of MM_MR lines, B in panels of MM_NR lines, depth-major, in
 * 32-bit units. A unit is one fp32 value or, with the bf16 dot instruction, the pair of bf16 values
 * of depths 2u and 2u + 1. The depth is cut into blocks (mm_depth) that depend on k alone; inside a
 * block a fp32 accumulator takes the units in order, blocks are added in order. So the bits of an
 * element of C depend on its row of A and its column of B only: not on m, the grouping, the
 * threads, the cut into tasks or whether B was packed before. */
#ifndef MOE_KERNELS_CPU_MATMUL_H
#define MOE_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/ops.h"

#if MOE_VW == 16
enum { MM_MR = 14, MM_MT = 532 }; /* 28 of the 32 registers accumulate */
#else
enum { MM_MR = 6, MM_MT = 480 };  /* 12 of 16 */
#endif
enum {
  MM_NR = 2 * MOE_VW,
  MM_AS = (MM_MR + MOE_VW - 1) / MOE_VW * MOE_VW, /* units from a depth of an A panel to the next */
  MM_KU = 256,                                    /* most units in a block of the depth */
  MM_NT = 1024,                                   /* most columns of a task's block of C */
  MM_A_UNITS = (MM_MT / MM_MR + 1) * MM_KU * MM_AS,
  MM_B_UNITS = MM_KU * MM_NR,
  MM_C_UNITS = MM_MT * MM_NT
};
_Static_assert((MM_A_UNITS + MM_B_UNITS + MM_C_UNITS) * 4 <= MOE_CPU_WORKSPACE,
               "the packing buffers outgrow a thread's workspace");

#if defined(__AVX512BF16__)
enum { MM_BF16_DOT = 1 };
#else
enum { MM_BF16_DOT = 0 };
#endif

/* What an operand becomes while packing: fp32 as it is; fp32 rounded to bf16 (the bf16 product
 * without the dot instruction); pairs of bf16. */
typedef enum mm_unit { MM_UNIT_F32, MM_UNIT_ROUND, MM_UNIT_PAIR } mm_unit;

static inline mm_unit mm_unit_of(moe_dtype product, bool dot) {
  return product == MOE_F32 ? MM_UNIT_F32 : MM_BF16_DOT && dot ? MM_UNIT_PAIR : MM_UNIT_ROUND;
}
/* Units that k depths make. */
static inline int64_t mm_units(mm_unit unit, int64_t k) {
  return unit == MM_UNIT_PAIR ? (k + 1) / 2 : k;
}

/* The blocks of a depth of `units`: count of them, all of `size` but the last. */
struct mm_depth {
  int64_t units, count, size;
};
static inline struct mm_depth mm_depth_of(mm_unit unit, int64_t k) {
  int64_t units = mm_units(unit, k), count = moe_div_up(units, MM_KU);
  int64_t size = count ? (int64_t)moe_round_up((size_t)moe_div_up(units, count), 16) : 0;
  return (struct mm_depth){units, size ? moe_div_up(units, size) : 0, size};
}

/* An operand as it lies in memory: lines (rows of A, columns of B) x depth. Element (line, k) is at
 * line * ld + k when by_depth (a line's depth is contiguous), else at k * ld + line. */
struct mm_side {
  const void *p;
  int64_t ld, lines, depth;
  moe_dtype dtype;
  bool by_depth;
};

/* One product; C may be bf16, sums are fp32. */
struct mm_job {
  struct mm_side a, b;
  const float *b_packed; /* all of B (mm_packed_at), or NULL: packed on the way */
  mm_unit unit;
  void *c;
  int64_t ldc;
  moe_dtype c_dtype;
  bool add;              /* C += */
  const float *bias;     /* (n) or NULL */
};

/* c (mr, cols) = or += a panel of A times a panel of B; mr in 1..MM_MR, cols in 1..MM_NR. */
void MOE_FN(mm_kernel)(mm_unit unit, int64_t mr, int64_t units, const float *a, const float *b,
                       float *c, int64_t ldc, int64_t cols, bool add);
/* Lines [line, line + n) at units [u, u + units) as a panel of `width` lines (MM_AS or MM_NR;
 * 1 <= n <= width, anything above n). */
void MOE_FN(mm_pack)(const struct mm_side *side, mm_unit unit, int64_t width, int64_t line,
                     int64_t n, int64_t u, int64_t units, float *panel);
/* Units of a whole packed B, and where the panel of block `block` that begins at column n lies. */
static inline int64_t mm_packed_units(mm_unit unit, int64_t lines, int64_t depth) {
  return mm_units(unit, depth) * moe_div_up(lines, MM_NR) * MM_NR;
}
static inline int64_t mm_packed_at(struct mm_depth d, int64_t lines, int64_t block, int64_t n) {
  int64_t u = block * d.size;
  return u * (moe_div_up(lines, MM_NR) * MM_NR) + n * moe_min64(d.size, d.units - u);
}
/* W of group g as B: forward y = x W^T, backward dx = dy W. */
static inline struct mm_side mm_weight_side(const struct moe_weight *w, int64_t g, bool backward) {
  return (struct mm_side){.p = w->master + g * w->out * w->in,
                          .ld = w->in,
                          .lines = backward ? w->in : w->out,
                          .depth = backward ? w->out : w->in,
                          .dtype = MOE_F32,
                          .by_depth = !backward};
}
/* The prepared form: per group the packed B of the forward, then of the backward product. */
static inline int64_t mm_weight_units(const struct moe_weight *w, mm_unit unit) {
  return mm_packed_units(unit, w->out, w->in) + mm_packed_units(unit, w->in, w->out);
}
static inline float *mm_weight_panels(const struct moe_weight *w, mm_unit unit, int64_t g,
                                      bool backward) {
  int64_t forward = backward ? mm_packed_units(unit, w->out, w->in) : 0;
  return (float *)w->prepared + g * mm_weight_units(w, unit) + forward;
}

/* Block rows [m0, m1) x columns [n0, n1) of C; n0 a multiple of MM_NR, m1 - m0 <= MM_MT, n1 - n0 <=
 * MM_NT. workspace: one thread's. */
void MOE_FN(mm_block)(const struct mm_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                      void *workspace);

/* The first n (0..MOE_VW) lanes; memory above them is neither read nor written. */
#if MOE_VW == 16
#include <immintrin.h>
static inline vf mm_load_n(const float *p, int64_t n) {
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void mm_store_n(float *p, vf v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
static inline vh mm_load_h(const uint16_t *p, int64_t n) {
  return (vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}
static inline void mm_store_h(uint16_t *p, vh v, int64_t n) {
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)v);
}
#else
static inline vf mm_load_n(const float *p, int64_t n) {
  if (n == MOE_VW) return vf_load(p);
  vf v = {0};
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}
static inline void mm_store_n(float *p, vf v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
static inline vh mm_load_h(const uint16_t *p, int64_t n) {
  vh v = {0};
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}
static inline void mm_store_h(uint16_t *p, vh v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
#endif

#endif
