/* Inside of a context. */
#ifndef MOE_BASE_CTX_H
#define MOE_BASE_CTX_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/pool.h"

enum { MOE_ERROR_BYTES = 16384 };

struct moe_ctx {
  moe_ctx_options options; /* isa points to `isa` below */
  struct moe_pool *pool;
  char isa[32]; /* resolved name of the kernel set */
  char error[MOE_ERROR_BYTES];
  _Atomic uint64_t alloc_count, alloc_bytes, alloc_peak;
};

#endif
