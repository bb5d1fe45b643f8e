/* Sums and maxima of what several ranks sent, in the order of the ranks. */
#include "comm/combine.h"

#include <string.h>

enum { BLOCK = 512 };

static inline float widen(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* To the nearest, ties to even; NaN stays one. */
static inline uint16_t narrow(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  uint32_t nan = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#define SAME(x) (x)
#define ADD(a, b) ((a) + (b))
#define GREATER(a, b) ((b) > (a) ? (b) : (a))

/* A block at a time, which is read whole before it is written. */
#define COMBINE(name, type, wide, load, store, apply)                                       \
  static void name(int64_t n, const void *const *part, int32_t parts, void *out) {          \
    wide acc[BLOCK];                                                                        \
    for (int64_t first = 0; first < n; first += BLOCK) {                                    \
      int64_t width = n - first < BLOCK ? n - first : BLOCK;                                \
      const type *p = (const type *)part[0] + first;                                        \
      for (int64_t i = 0; i < width; i++) acc[i] = load(p[i]);                              \
      for (int32_t m = 1; m < parts; m++) {                                                 \
        p = (const type *)part[m] + first;                                                  \
        for (int64_t i = 0; i < width; i++) acc[i] = (wide)apply(acc[i], (wide)load(p[i])); \
      }                                                                                     \
      type *q = (type *)out + first;                                                        \
      for (int64_t i = 0; i < width; i++) q[i] = store(acc[i]);                             \
    }                                                                                       \
  }

COMBINE(sum_f32, float, float, SAME, SAME, ADD)
COMBINE(max_f32, float, float, SAME, SAME, GREATER)
COMBINE(sum_f64, double, double, SAME, SAME, ADD)
COMBINE(max_f64, double, double, SAME, SAME, GREATER)
COMBINE(sum_bf16, uint16_t, float, widen, narrow, ADD)
COMBINE(max_bf16, uint16_t, float, widen, narrow, GREATER)
/* Sums of integers wrap. */
COMBINE(sum_i32, uint32_t, uint32_t, SAME, SAME, ADD)
COMBINE(max_i32, int32_t, int32_t, SAME, SAME, GREATER)
COMBINE(sum_i64, uint64_t, uint64_t, SAME, SAME, ADD)
COMBINE(max_i64, int64_t, int64_t, SAME, SAME, GREATER)
COMBINE(sum_u8, uint8_t, uint8_t, SAME, SAME, ADD)
COMBINE(max_u8, uint8_t, uint8_t, SAME, SAME, GREATER)

moe_combine_fn moe_combine_of(moe_dtype dtype, enum moe_reduce reduce) {
  bool max = reduce == MOE_MAX;
  switch (dtype) {
    case MOE_F32: return max ? max_f32 : sum_f32;
    case MOE_F64: return max ? max_f64 : sum_f64;
    case MOE_BF16: return max ? max_bf16 : sum_bf16;
    case MOE_I32: return max ? max_i32 : sum_i32;
    case MOE_I64: return max ? max_i64 : sum_i64;
    case MOE_U8: return max ? max_u8 : sum_u8;
    case MOE_F16: break;
  }
  return NULL;
}
