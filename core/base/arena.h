/* A bump allocator over one mapping. Invariant: used <= capacity; what lies above a mark is gone
 * after a release to it. */
#ifndef MOE_BASE_ARENA_H
#define MOE_BASE_ARENA_H

#include "base/base.h"

#define MOE_ALIGN 64

struct moe_arena {
  moe_ctx *ctx;
  char *base; /* owned when `owned` */
  size_t capacity, used, peak;
  const char *name; /* for messages */
  bool owned;
  bool measures; /* nothing is behind base */
  bool solid;    /* read as one piece: the gaps between allocations may be touched too */
};

moe_status moe_arena_create(moe_ctx *ctx, const char *name, size_t capacity, struct moe_arena *out);
/* Over memory of somebody else (device memory, a part of another arena). */
void moe_arena_wrap(moe_ctx *ctx, const char *name, void *base, size_t capacity,
                    struct moe_arena *out);
/* No memory behind it, no limit: the pointers it gives must not be followed; `peak` is the answer.
 */
void moe_arena_measure(moe_ctx *ctx, const char *name, struct moe_arena *out);
void moe_arena_destroy(struct moe_arena *arena);
/* MOE_ALIGN-aligned, not initialised. NULL with the error set when it is full: a bug in `bytes`. */
void *moe_arena_get(struct moe_arena *arena, size_t bytes);
size_t moe_arena_mark(const struct moe_arena *arena);
void moe_arena_reset(struct moe_arena *arena, size_t mark);

#endif
