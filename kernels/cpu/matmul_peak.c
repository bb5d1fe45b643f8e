/* The rate of the micro-kernel's arithmetic with everything in registers: the ceiling of the matrix
 * products. */
#include "kernels/cpu/matmul.h"

enum { ACCUMULATORS = 2 * MM_MR - 2, WINDOWS = 10, ROUNDS = 4096 };

#define INLINE static inline __attribute__((always_inline))

/* ROUNDS steps of all accumulators; their sum, so that all of it has to be computed. */
INLINE vf burn(mm_unit unit, vf a, vf b) {
  vf acc[ACCUMULATORS];
#pragma GCC unroll 32
  for (int i = 0; i < ACCUMULATORS; i++) acc[i] = a + (float)i;
  for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 32
    for (int i = 0; i < ACCUMULATORS; i++) {
#if defined(__AVX512BF16__)
      if (unit == MM_UNIT_PAIR) {
        acc[i] = (vf)_mm512_dpbf16_ps((__m512)acc[i], (__m512bh)a, (__m512bh)b);
        continue;
      }
#endif
      acc[i] = a * b + acc[i];
    }
#if defined(__x86_64__)
    __asm__ volatile("" : "+x"(a), "+x"(b)); /* a new a and b: a step is not a constant */
#endif
  }
  (void)unit;
  for (int i = 1; i < ACCUMULATORS; i++) acc[0] += acc[i];
  return acc[0];
}

struct peak {
  struct moe_stream *s;
  mm_unit unit;
  double seconds; /* of a window */
};

static double *flops_slot(const struct peak *p, int64_t task) {
  return moe_cpu_workspace(p->s, (int32_t)task);
}

static void window(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const struct peak *p = arg;
  double end = moe_now() + p->seconds, rounds = 0;
  vf sum = {0};
  do {
#if defined(__AVX512BF16__)
    if (p->unit == MM_UNIT_PAIR)
      sum += burn(MM_UNIT_PAIR, vf_set(1), vf_set(0.5f));
    else
#endif
      sum += burn(MM_UNIT_F32, vf_set(1), vf_set(0.5f));
    rounds += ROUNDS;
  } while (moe_now() < end);
  double per_round = 2.0 * ACCUMULATORS * MOE_VW * (p->unit == MM_UNIT_PAIR ? 2 : 1);
  double *slot = flops_slot(p, task);
  slot[0] = rounds * per_round;
  slot[1] = vf_sum(sum);
}

double MOE_FN(peak)(struct moe_stream *s, moe_dtype dtype, double seconds) {
  struct peak p = {s, mm_unit_of(dtype, s->dot_bf16), seconds / WINDOWS};
  double best = 0;
  for (int i = 0; i < WINDOWS; i++) {
    double start = moe_now(), flops = 0;
    moe_pool_run(s->pool, window, &p, s->threads);
    double took = moe_now() - start;
    for (int32_t t = 0; t < s->threads; t++) flops += *flops_slot(&p, t);
    if (took > 0 && flops / took > best) best = flops / took;
  }
  return best;
}
