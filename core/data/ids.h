/* A growing array of token ids. */
#ifndef MOE_DATA_IDS_H
#define MOE_DATA_IDS_H

#include <string.h>

#include "base/alloc.h"

struct moe_ids {
  moe_ctx *ctx;
  int32_t *v;
  size_t n, cap;
};

static inline moe_status moe_ids_reserve(struct moe_ids *ids, size_t more) {
  if (ids->cap - ids->n >= more) return MOE_OK;
  size_t cap = ids->cap ? ids->cap : 256;
  while (cap - ids->n < more) cap *= 2;
  int32_t *v = moe_realloc(ids->ctx, ids->v, cap * sizeof *v);
  if (v == NULL) return MOE_MEMORY;
  ids->v = v;
  ids->cap = cap;
  return MOE_OK;
}

static inline moe_status moe_ids_append(struct moe_ids *ids, const int32_t *v, size_t n) {
  MOE_TRY(moe_ids_reserve(ids, n));
  if (n) memcpy(ids->v + ids->n, v, n * sizeof *v);
  ids->n += n;
  return MOE_OK;
}

static inline void moe_ids_destroy(struct moe_ids *ids) {
  moe_release(ids->ctx, ids->v);
  *ids = (struct moe_ids){.ctx = ids->ctx};
}

#endif
