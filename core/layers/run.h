/* The one bundle that goes down through all layers unchanged, and small helpers over it. A layer is
 * otherwise a function of (parameters, input, what it saved).
 *
 * Contract of a layer L (core/layers/README.md says more):
 *   moe_L_params    declares its parameters: names, global shapes, my box, family
 *   moe_L_init      sizes from the config, then binds to memory (weights' prepared forms)
 *   moe_L_forward   y = L(x); what backward needs goes to run->saved and *saved
 *   moe_L_backward  gradients of parameters and of x, from dy and *saved
 *   bytes           forward and backward on the dry kernel table with measuring arenas: what the
 *                   trainer allocates and the planner predicts (moe_model_measure)
 * Layers never read device data on the host and never branch on it. */
#ifndef MOE_LAYERS_RUN_H
#define MOE_LAYERS_RUN_H

#include "base/arena.h"
#include "base/base.h"
#include "base/trace.h"
#include "kernels/kernels.h"
#include "mesh/groups.h"
#include "moelua/train.h"
#include "tensor/pack.h"

struct moe_run {
  moe_ctx *ctx;
  const struct moe_kernels *k;
  struct moe_stream *stream;
  struct moe_arena *saved;   /* from forward to backward of one micro-batch */
  struct moe_arena *again;   /* as saved, for a block that recomputes; until its backward is done */
  struct moe_arena *scratch; /* a layer gives back what it took before it returns */
  struct moe_trace *trace;   /* NULL: not wanted */
  const struct moe_param_memory *memory;
  struct moe_place place;
  const struct moe_groups *groups; /* of this rank, by name */
  moe_dtype dtype;                 /* of activations */
  int64_t batch, seq; /* of this micro-batch; the part of a sequence this cp rank has */
  int64_t rows;       /* batch * seq: what attention and head see */
  int64_t tokens;     /* T = rows / tp: what all else sees (layers/sequence.h) */
  /* Device; a tp rank's tokens are its part of each sequence's rows. */
  const int32_t *position;     /* (rows): every sequence the same, ascending */
  const int32_t *cp_position;  /* (cp, seq): of one sequence, on every rank of cp */
  const int32_t *all_position; /* (cp * seq): 0, 1, .. */
  bool training;               /* statistics are kept and the head makes its gradient */
  bool even; /* in a dry run: sizes that routing decides are an even load's, not their bounds */
  bool recompute;       /* forward is run again for backward: no statistics, no FLOP count */
  int32_t micro;        /* index in the step; 0 writes gradients, others add to them */
  double global_tokens; /* of the step, all ranks, masked ones included */
  float loss_scale;     /* 1 / unmasked tokens of the step, all ranks */
  /* Told on the last micro-batch that the gradients of a block (of this stage, from 0) and of all
     behind it are final; the number of blocks: of the head alone. NULL: nobody asks. */
  moe_status (*final)(void *arg, int32_t block);
  void *final_arg;
};

static inline bool moe_run_accumulates(const struct moe_run *run) { return run->micro > 0; }

/* Members of a transfer with equal parts behind each other; at most MOE_AXIS_MOST. */
static inline void moe_even_parts(int32_t members, int64_t each, int64_t *count, int64_t *offset) {
  for (int32_t m = 0; m < members; m++) {
    count[m] = each;
    offset[m] = m * each;
  }
}

/* A (rows, cols) matrix of dtype from an arena. */
static inline moe_status moe_mat_get(struct moe_arena *arena, moe_dtype dtype, int64_t rows,
                                     int64_t cols, struct moe_mat *out) {
  void *p = moe_arena_get(arena, (size_t)(rows * cols) * moe_dtype_bytes(dtype));
  if (p == NULL) return MOE_INTERNAL;
  *out = moe_mat_of(p, dtype, rows, cols);
  return MOE_OK;
}

/* n elements of a 4-byte type (or any, by bytes) from an arena into a typed pointer. */
#define MOE_GET(arena, pointer, n)                                       \
  do {                                                                   \
    (pointer) = moe_arena_get((arena), (size_t)(n) * sizeof *(pointer)); \
    if ((pointer) == NULL) return MOE_INTERNAL;                          \
  } while (0)

static inline moe_status moe_run_final(const struct moe_run *run, int32_t block) {
  return run->final ? run->final(run->final_arg, block) : MOE_OK;
}

/* Model FLOPs: recomputation does not count. */
static inline void moe_run_flops(const struct moe_run *run, moe_part part, double flops) {
  if (!run->recompute) moe_trace_flops(run->trace, (int32_t)part, flops);
}

#endif
