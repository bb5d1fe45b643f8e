#include "tensor/pack.h"

#include <string.h>

#include "base/alloc.h"
#include "base/ctx.h"

void moe_pack_init(moe_ctx *ctx, enum moe_family family, struct moe_pack *out) {
  *out = (struct moe_pack){.ctx = ctx, .family = family};
}

void moe_pack_destroy(struct moe_pack *pack) {
  if (pack->slot) moe_release(pack->ctx, pack->slot);
  *pack = (struct moe_pack){.ctx = pack->ctx};
}

const struct moe_slot *moe_pack_find(const struct moe_pack *pack, const char *name) {
  for (int32_t i = 0; i < pack->slots; i++)
    if (strcmp(pack->slot[i].name, name) == 0) return &pack->slot[i];
  return NULL;
}

int32_t moe_pack_slot_at(const struct moe_pack *pack, int64_t at) {
  int32_t low = 0, high = pack->slots;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (pack->slot[middle].offset + pack->slot[middle].elements > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Elements of the slot's box; checks it against the global shape. */
static moe_status box_elements(moe_ctx *ctx, const struct moe_slot *slot, int64_t *out) {
  int64_t n = 1;
  for (int32_t d = 0; d < slot->dims; d++) {
    if (slot->start[d] < 0 || slot->count[d] < 0 ||
        slot->start[d] > slot->dim[d] - slot->count[d] ||
        __builtin_mul_overflow(n, slot->count[d], &n))
      return moe_fail(ctx, MOE_INTERNAL, "slot %s: dim %d is %lld, my part [%lld, +%lld)",
                      slot->name, d, (long long)slot->dim[d], (long long)slot->start[d],
                      (long long)slot->count[d]);
  }
  *out = n;
  return MOE_OK;
}

static moe_status grow(struct moe_pack *pack) {
  if (pack->slots < pack->room) return MOE_OK;
  int32_t room = pack->room ? pack->room * 2 : 32;
  struct moe_slot *slot = moe_realloc(pack->ctx, pack->slot, (size_t)room * sizeof *slot);
  if (slot == NULL) return MOE_MEMORY;
  pack->slot = slot;
  pack->room = room;
  return MOE_OK;
}

moe_status moe_pack_add(struct moe_pack *pack, const struct moe_slot *slot, int32_t *index) {
  int64_t elements = 0, end = 0;
  MOE_TRY(box_elements(pack->ctx, slot, &elements));
  if (moe_pack_find(pack, slot->name))
    return moe_fail(pack->ctx, MOE_INTERNAL, "slot %s: declared twice", slot->name);
  if (slot->join && pack->slots == 0)
    return moe_fail(pack->ctx, MOE_INTERNAL, "slot %s: nothing to join", slot->name);
  MOE_TRY(grow(pack));
  if (pack->slots > 0) {
    const struct moe_slot *last = &pack->slot[pack->slots - 1];
    end = last->offset + last->elements;
  }
  struct moe_slot *mine = &pack->slot[pack->slots];
  *mine = *slot;
  mine->family = pack->family;
  mine->elements = elements;
  mine->offset = slot->join ? end : moe_div_up(end, MOE_PACK_ALIGN) * MOE_PACK_ALIGN;
  pack->elements = moe_div_up(mine->offset + elements, MOE_PACK_PAD) * MOE_PACK_PAD;
  if (index) *index = pack->slots;
  pack->slots++;
  return MOE_OK;
}

struct fill {
  const struct moe_slot *slot;
  struct moe_rng_key key;
  float *values;
};

/* Row `task` of the box along its last dim: contiguous in the box and in the global tensor. */
static void fill_row(void *arg, int64_t task, int32_t thread) {
  (void)thread;
  const struct fill *fill = arg;
  const struct moe_slot *slot = fill->slot;
  int32_t last = slot->dims - 1;
  int64_t width = slot->count[last], rest = task, global = 0, stride = slot->dim[last];
  for (int32_t d = last - 1; d >= 0; d--) {
    global += (slot->start[d] + rest % slot->count[d]) * stride;
    rest /= slot->count[d];
    stride *= slot->dim[d];
  }
  global += slot->start[last];
  float *row = fill->values + task * width;
  for (int64_t i = 0; i < width; i++)
    row[i] = slot->init_std * (float)moe_rng_normal(fill->key, (uint64_t)(global + i));
}

static void fill_slot(const struct moe_pack *pack, const struct moe_slot *slot, uint64_t seed,
                      float *values) {
  if (slot->init != MOE_INIT_NORMAL) {
    float value = slot->init == MOE_INIT_ONES ? 1.0f : 0.0f;
    for (int64_t i = 0; i < slot->elements; i++) values[i] = value;
    return;
  }
  if (slot->elements == 0) return;
  struct fill fill = {slot, moe_rng_key(seed, slot->name), values};
  moe_pool_run(pack->ctx->pool, fill_row, &fill, slot->elements / slot->count[slot->dims - 1]);
}

void moe_pack_fill_initial(const struct moe_pack *pack, uint64_t seed, float *values) {
  memset(values, 0, (size_t)pack->elements * sizeof *values);
  for (int32_t i = 0; i < pack->slots; i++)
    fill_slot(pack, &pack->slot[i], seed, values + pack->slot[i].offset);
}

void moe_params_init(moe_ctx *ctx, struct moe_params *out) {
  for (int f = 0; f < MOE_FAMILIES; f++) moe_pack_init(ctx, (enum moe_family)f, &out->pack[f]);
}

void moe_params_destroy(struct moe_params *params) {
  for (int f = 0; f < MOE_FAMILIES; f++) moe_pack_destroy(&params->pack[f]);
}
