/* Runs this rank's list of a schedule: keeps micro-batches in slots, moves activations and
 * gradients between stages, and calls back for the computations. Knows no layers.
 *
 * All buffers have one size (job's n elements at most). A receive is waited for before its use, a
 * send before its buffer is written again. Invariant: a buffer is never taken from an exchange it
 * is sent in, since need.buffers counts it as held until then and the one that is free for longest
 * is taken; so this is never stricter than what the checker proved. */
#ifndef MOE_PIPE_EXEC_H
#define MOE_PIPE_EXEC_H

#include "base/trace.h"
#include "comm/comm.h"
#include "pipe/check.h"

struct moe_pipe_buffer {
  char *at;
  struct moe_request request; /* of the transfer that came last */
  bool taken;
  int64_t freed; /* when; the lowest is taken next */
};

/* Where a micro-batch of a chunk has its things; buffers by index, -1: none. */
struct moe_pipe_flight {
  int32_t slot, input, output, grad;
};

struct moe_pipe {
  moe_ctx *ctx;
  struct moe_pipe_shape shape;
  int32_t rank;
  struct moe_instr *list;
  int64_t length;
  struct moe_pipe_need need;
  int32_t slots, buffers;
  struct moe_pipe_buffer *buffer;
  struct moe_pipe_flight *flight; /* [chunks * micros] */
  int32_t *free_slot, free_slots; /* a stack */
  int64_t clock;
};

/* What one run works on. x: input of the chunk (NULL: it begins with the embedding), stays until
 * the backward; y: where its output goes (NULL: it ends with the head). d: gradient of the output
 * on entry, of the input on return; for a chunk with the head: room for the gradient of the input;
 * NULL: there is neither. slot: below pipe.slots, the same for both. */
struct moe_pipe_job {
  moe_status (*forward)(void *arg, const struct moe_instr *i, int32_t slot, void *x, void *y);
  moe_status (*backward)(void *arg, const struct moe_instr *i, int32_t slot, void *d);
  void *arg;
  struct moe_group group; /* the pipeline's */
  struct moe_stream *stream;
  struct moe_trace *trace; /* may be NULL */
  int64_t n;               /* elements of an activation */
  moe_dtype dtype;
};

/* Slots and buffers a rank has for a need. */
int32_t moe_pipe_buffers(const struct moe_pipe_shape *shape, const struct moe_pipe_need *need);
/* Needs of all ranks of a shape, [pp]. */
moe_status moe_pipe_needs(moe_ctx *ctx, const struct moe_pipe_shape *shape,
                          struct moe_pipe_need *need);
/* Makes all lists, proves them and keeps this rank's. */
moe_status moe_pipe_create(moe_ctx *ctx, const struct moe_pipe_shape *shape, int32_t rank,
                           struct moe_pipe *out);
/* memory: pipe.buffers times `bytes`, aligned. */
void moe_pipe_bind(struct moe_pipe *pipe, void *memory, size_t bytes);
/* Fine on a zeroed struct. */
void moe_pipe_destroy(struct moe_pipe *pipe);

/* One step. Collective over the pipeline's ranks. */
moe_status moe_pipe_run(struct moe_pipe *pipe, const struct moe_pipe_job *job);
/* One micro-batch forward through all stages, nothing kept: job.forward only, always slot 0. */
moe_status moe_pipe_once(struct moe_pipe *pipe, const struct moe_pipe_job *job);

#endif
