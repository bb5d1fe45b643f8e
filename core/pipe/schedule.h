/* Schedules as data: for every rank of a pipeline a list of instructions. Whoever makes the lists
 * (the functions here, or a user), moe_schedule_check proves them and moe_pipe_run runs them.
 *
 * Virtual stage v = chunk * pp + rank holds a run of the model's blocks; activations go from v to
 * v + 1, gradients from v to v - 1.
 *
 * Transfers that stand between two computations are one exchange: all of them are started together
 * and none needs another of them to finish first. The lists are proved for ranks that stay at an
 * exchange until all of it is done (a rendezvous, nothing is buffered). The executor may do better:
 * it waits for what it received only before use, and for what it sent before it writes there. */
#ifndef MOE_PIPE_SCHEDULE_H
#define MOE_PIPE_SCHEDULE_H

#include "base/base.h"

enum moe_schedule_kind {
  MOE_SCHEDULE_1F1B,       /* one forward, one backward; with chunks: interleaved */
  MOE_SCHEDULE_ALL_FORWARD /* all forwards, then all backwards */
};

/* What a schedule is a function of. */
struct moe_pipe_shape {
  enum moe_schedule_kind kind;
  int32_t pp, chunks; /* chunks > 1 needs pp > 1 */
  int32_t micros;     /* micro-batches of a step */
  int32_t group;      /* micro-batches a chunk runs before the next chunk; 0: pp */
};

/* X(NAME, "name"). A transfer is named for this rank's chunk: it sends its output and the gradient
 * of its input, and receives its input and the gradient of its output. */
#define MOE_INSTR_MAP(X)                \
  X(FORWARD, "forward")                 \
  X(BACKWARD, "backward")               \
  X(SEND_OUTPUT, "send of the output")  \
  X(RECV_INPUT, "receive of the input") \
  X(SEND_GRAD, "send of the gradient")  \
  X(RECV_GRAD, "receive of the gradient")
#define MOE_INSTR_ENUM(name, text) MOE_INSTR_##name,
enum moe_instr_op { MOE_INSTR_MAP(MOE_INSTR_ENUM) MOE_INSTRS };
#undef MOE_INSTR_ENUM

struct moe_instr {
  enum moe_instr_op op;
  int32_t chunk, micro;
  int32_t peer; /* of a transfer: the other pipeline rank; else -1 */
};

static inline bool moe_instr_computes(const struct moe_instr *i) {
  return i->op == MOE_INSTR_FORWARD || i->op == MOE_INSTR_BACKWARD;
}

/* The lists of all ranks, one behind the other. Owns its arrays. */
struct moe_schedule {
  moe_ctx *ctx;
  struct moe_pipe_shape shape;
  struct moe_instr *instr;
  int64_t *first; /* [pp + 1]: rank r has instr[first[r]] .. instr[first[r + 1] - 1] */
};

/* Forwards before the first pair of forward and backward: min(pp - rank - 1, M) with one chunk,
 * else min(2 (pp - rank - 1) + (chunks - 1) group, chunks M); all of them for all-forward. */
int64_t moe_schedule_warmup(const struct moe_pipe_shape *shape, int32_t rank);
/* A pure function of shape; pp, chunks and micros at least 1. Micro-batches need not be a multiple
 * of the group, nor the group of pp. */
moe_status moe_schedule_create(moe_ctx *ctx, const struct moe_pipe_shape *shape,
                               struct moe_schedule *out);
/* Fine on a zeroed struct. */
void moe_schedule_destroy(struct moe_schedule *schedule);

#endif
