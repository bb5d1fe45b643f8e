/* Layouts against one process: test_layouts "tp=2 ep=2 .." "..", the words of equal.c; each case on
 * all ranks of the job. */
#include "equal.h"

int main(int argc, char **argv) {
  moe_ctx *ctx = ranks_open(), *alone;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  if (moe_ctx_create(&options, &alone) != MOE_OK) return 1;
  for (int i = 1; i < argc; i++) equal_compare(ctx, alone, argv[i]);
  moe_ctx_destroy(alone);
  return ranks_close(ctx);
}
