/* What this machine has: memory, kernel set. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/ctx.h"
#include "kernels/kernels.h"
#include "moelua/train.h"

const char *moe_ctx_isa(moe_ctx *ctx) {
  const struct moe_kernels *k;
  return moe_kernels_cpu(ctx, ctx->isa, &k) == MOE_OK ? k->name : "";
}

/* The number in a file, 0 when there is none ("max" included). */
static uint64_t file_number(const char *path) {
  FILE *f = fopen(path, "r");
  if (f == NULL) return 0;
  char line[64] = "";
  uint64_t n = fgets(line, sizeof line, f) ? strtoull(line, NULL, 10) : 0;
  fclose(f);
  return n;
}

uint64_t moe_machine_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (size_t i = 0; i < MOE_COUNTOF(limits); i++) {
    uint64_t limit = file_number(limits[i]);
    if (limit > 0 && (bytes == 0 || limit < bytes)) bytes = limit;
  }
  return bytes;
}
