/* Where the time of a step goes: nested parts, exclusive times. One trace per trainer; used only by
 * the thread that runs the step. */
#ifndef MOE_BASE_TRACE_H
#define MOE_BASE_TRACE_H

#include "base/base.h"

enum { MOE_TRACE_PARTS = 16, MOE_TRACE_DEPTH = 16 };

struct moe_trace {
  double seconds[MOE_TRACE_PARTS]; /* exclusive */
  double flops[MOE_TRACE_PARTS];
  double since;
  int32_t stack[MOE_TRACE_DEPTH];
  int32_t depth;
};

void moe_trace_reset(struct moe_trace *trace);
/* NULL is allowed in all of these. The part that was running is paused. */
void moe_trace_begin(struct moe_trace *trace, int32_t part);
void moe_trace_end(struct moe_trace *trace);
void moe_trace_flops(struct moe_trace *trace, int32_t part, double flops);

#endif
