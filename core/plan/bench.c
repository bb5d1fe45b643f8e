/* Measurements of this machine. */
#include "base/ctx.h"
#include "kernels/kernels.h"
#include "moelua/train.h"

moe_status moe_bench_peak(moe_ctx *ctx, int32_t dtype, double seconds, double *flops) {
  if (dtype != MOE_F32 && dtype != MOE_BF16)
    return moe_fail(ctx, MOE_INVALID, "peak of dtype %d: must be MOE_F32 or MOE_BF16", dtype);
  if (!(seconds > 0 && seconds <= 3600) || flops == NULL)
    return moe_fail(ctx, MOE_INVALID, "peak over %g seconds: must be above 0, at most an hour%s",
                    seconds, flops ? "" : "; flops is NULL");
  const struct moe_kernels *kernels;
  struct moe_stream *s;
  MOE_TRY(moe_kernels_cpu(ctx, ctx->isa, &kernels));
  MOE_TRY(kernels->stream_create(ctx, &s));
  *flops = kernels->peak(s, (moe_dtype)dtype, seconds);
  kernels->stream_destroy(s);
  return MOE_OK;
}
