/* Proof that lists are a pipeline: each forward and backward of each chunk and micro-batch once,
 * data received before it is used, what one rank sends is what the other receives, and no deadlock
 * even if nothing is buffered (schedule.h says what an exchange is). */
#ifndef MOE_PIPE_CHECK_H
#define MOE_PIPE_CHECK_H

#include "pipe/schedule.h"

/* What running a rank's list takes. */
struct moe_pipe_need {
  int64_t live;    /* most micro-batches of chunks between forward and backward at a time */
  int64_t buffers; /* most activations and gradients held that came or go to other ranks */
};

/* MOE_INVALID with the rank, the instruction's index in its list and the reason. need: [pp], may be
 * NULL; set when the lists are right. */
moe_status moe_schedule_check(moe_ctx *ctx, const struct moe_schedule *schedule,
                              struct moe_pipe_need *need);

#endif
