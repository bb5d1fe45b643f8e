/* Inside of a context. */
#ifndef MOE_BASE_CTX_H
#define MOE_BASE_CTX_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/pool.h"
#include "moelua/comm.h"

struct moe_world;

enum { MOE_ERROR_BYTES = 16384, MOE_COMM_TIMEOUT = 600 };

struct moe_ctx {
  moe_ctx_options options; /* isa points to `isa` below */
  struct moe_pool *pool;
  struct moe_world *world; /* the ranks this context works with; made by comm/, NULL: not yet */
  void (*world_destroy)(struct moe_world *world);
  char isa[32];        /* resolved name of the kernel set */
  double comm_timeout; /* seconds to wait for other ranks; 0: for ever */
  char error[MOE_ERROR_BYTES];
  moe_tells tells; /* who tells the user of this error */
  _Atomic uint64_t alloc_count, alloc_bytes, alloc_peak;
};

#endif
