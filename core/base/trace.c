#include "base/trace.h"

void moe_trace_reset(struct moe_trace *trace) {
  if (trace) *trace = (struct moe_trace){.since = moe_now()};
}

static void close_interval(struct moe_trace *trace) {
  double now = moe_now();
  if (trace->depth > 0) trace->seconds[trace->stack[trace->depth - 1]] += now - trace->since;
  trace->since = now;
}

void moe_trace_begin(struct moe_trace *trace, int32_t part) {
  if (trace == NULL || trace->depth >= MOE_TRACE_DEPTH) return;
  close_interval(trace);
  trace->stack[trace->depth++] = part;
}

void moe_trace_end(struct moe_trace *trace) {
  if (trace == NULL || trace->depth <= 0) return;
  close_interval(trace);
  trace->depth--;
}

void moe_trace_flops(struct moe_trace *trace, int32_t part, double flops) {
  if (trace) trace->flops[part] += flops;
}
