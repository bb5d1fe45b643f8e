/* The loader: the endless global order of samples over all sources. Invariant: sample n is a pure
 * function of (config, data, n); everything the loader keeps between reads is a cache. */
#ifndef MOE_DATA_LOADER_H
#define MOE_DATA_LOADER_H

#include "data/blend.h"
#include "data/samples.h"

struct moe_loader {
  moe_ctx *ctx;
  int32_t sources;
  struct moe_samples *samples; /* owned, [sources] */
  struct moe_blend blend;
  int64_t seq;   /* S */
  int64_t limit; /* ids are below */
  int64_t epoch_samples;
  int32_t mask_id;
  int32_t *row; /* owned, [S+1] */
  uint64_t fingerprint;
};

#endif
