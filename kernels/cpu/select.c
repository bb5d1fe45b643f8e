/* Which instruction set this processor runs best. */
#include <string.h>

#include "kernels/cpu/cpu.h"

extern const struct moe_kernels moe_cpu_generic_table;
#if defined(__x86_64__)
extern const struct moe_kernels moe_cpu_avx2_table, moe_cpu_avx512_table, moe_cpu_avx512bf16_table;
#endif

struct isa {
  const char *name;
  const struct moe_kernels *table;
  bool here;
};

moe_status moe_kernels_cpu(moe_ctx *ctx, const char *isa, const struct moe_kernels **out) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const struct isa sets[] = {
      {"avx512bf16", &moe_cpu_avx512bf16_table, avx512 && __builtin_cpu_supports("avx512bf16")},
      {"avx512", &moe_cpu_avx512_table, avx512},
      {"avx2", &moe_cpu_avx2_table, avx2},
      {"generic", &moe_cpu_generic_table, true}};
#else
  const struct isa sets[] = {{"generic", &moe_cpu_generic_table, true}};
#endif
  bool any = isa == NULL || isa[0] == 0;
  for (size_t i = 0; i < MOE_COUNTOF(sets); i++) {
    if (!any && strcmp(isa, sets[i].name) != 0) continue;
    if (sets[i].here) {
      *out = sets[i].table;
      return MOE_OK;
    }
    if (!any) return moe_fail(ctx, MOE_UNSUPPORTED, "isa %s: this processor lacks it", isa);
  }
  return moe_fail(ctx, MOE_INVALID,
                  "isa \"%s\" is unknown; there are: avx512bf16 avx512 avx2 generic", isa);
}
