#include "optim/buckets.h"

#include "base/alloc.h"

/* Where block b's slots of a family begin; b = -1: the embedding's. */
static int64_t block_start(const struct moe_pack *pack, const int32_t (*first_slot)[MOE_FAMILIES],
                           int32_t b) {
  if (b < 0) return 0;
  int32_t slot = first_slot[b][pack->family];
  return slot < pack->slots ? pack->slot[slot].offset : pack->elements;
}

static int64_t most_buckets(const struct moe_params *params) {
  int64_t n = 0;
  for (int f = 0; f < MOE_FAMILIES; f++) n += params->pack[f].elements / MOE_BUCKET_LEAST + 1;
  return n;
}

/* Element of [0, n) where part m of size begins; whole segments of a checkpoint's digests, where
 * slots are. */
static int64_t cut(int64_t n, int32_t m, int32_t size) {
  return m == size ? n : n * m / size / MOE_PACK_PAD * MOE_PACK_PAD;
}

/* Elements [first, last) as even pieces. */
static void add(struct moe_buckets *b, enum moe_family family, int64_t first, int64_t last,
                int32_t ready) {
  int32_t pieces = (int32_t)moe_div_up(last - first, MOE_BUCKET_MOST);
  for (int32_t i = 0; i < pieces; i++)
    b->bucket[b->buckets++] = (struct moe_bucket){.family = family,
                                                  .ready = ready,
                                                  .first = first + cut(last - first, i, pieces),
                                                  .last = first + cut(last - first, i + 1, pieces)};
}

static void divide(struct moe_buckets *b) {
  int64_t *room = b->parts;
  for (int32_t i = 0; i < b->buckets; i++) {
    struct moe_bucket *k = &b->bucket[i];
    struct moe_coord share = b->share[k->family];
    k->part = room, room += share.size;
    k->count = room, room += share.size;
    for (int32_t m = 0; m < share.size; m++) {
      k->part[m] = cut(k->last - k->first, m, share.size);
      k->count[m] = cut(k->last - k->first, m + 1, share.size) - k->part[m];
    }
    k->moment = b->zero[k->family] ? b->moments[k->family] : k->first;
    b->moments[k->family] += b->zero[k->family] ? k->count[share.rank] : k->last - k->first;
  }
}

moe_status moe_buckets_create(moe_ctx *ctx, const struct moe_params *params,
                              const int32_t (*first_slot)[MOE_FAMILIES], int32_t blocks,
                              const struct moe_coord share[MOE_FAMILIES], bool zero,
                              struct moe_buckets *out) {
  int64_t end[MOE_FAMILIES], ranks = 0;
  *out = (struct moe_buckets){.ctx = ctx};
  for (int f = 0; f < MOE_FAMILIES; f++) {
    out->share[f] = share[f];
    out->zero[f] = zero && share[f].size > 1;
    end[f] = params->pack[f].elements;
  }
  out->bucket = moe_alloc_array(ctx, (size_t)most_buckets(params), sizeof *out->bucket);
  if (out->bucket == NULL) return MOE_MEMORY;
  for (int32_t b = blocks; b >= -1; b--)
    for (int f = 0; f < MOE_FAMILIES; f++) {
      int64_t first = block_start(&params->pack[f], first_slot, b);
      if (b >= 0 && end[f] - first < MOE_BUCKET_LEAST) continue;
      add(out, (enum moe_family)f, first, end[f], b);
      end[f] = first;
    }
  for (int32_t i = 0; i < out->buckets; i++) ranks += share[out->bucket[i].family].size;
  out->parts = moe_alloc_array(ctx, 2 * (size_t)ranks, sizeof *out->parts);
  if (out->parts == NULL) return MOE_MEMORY;
  divide(out);
  return MOE_OK;
}

void moe_buckets_destroy(struct moe_buckets *b) {
  if (b->ctx == NULL) return;
  moe_release(b->ctx, b->parts);
  moe_release(b->ctx, b->bucket);
  *b = (struct moe_buckets){0};
}

struct moe_held moe_bucket_part(const struct moe_buckets *b, const struct moe_bucket *bucket) {
  int32_t me = b->share[bucket->family].rank;
  int64_t first = bucket->first + bucket->part[me];
  return (struct moe_held){first, first + bucket->count[me],
                           b->zero[bucket->family] ? bucket->moment : first};
}

struct moe_held moe_bucket_held(const struct moe_buckets *b, const struct moe_bucket *bucket) {
  if (b->zero[bucket->family]) return moe_bucket_part(b, bucket);
  return (struct moe_held){bucket->first, bucket->last, bucket->moment};
}

bool moe_buckets_next(const struct moe_buckets *b, const struct moe_slot *slot, int32_t *at,
                      struct moe_held *out) {
  int64_t first = slot->offset, last = slot->offset + slot->elements;
  while (*at < b->buckets) {
    const struct moe_bucket *k = &b->bucket[(*at)++];
    if (k->family != slot->family) continue;
    struct moe_held held = moe_bucket_held(b, k);
    int64_t from = moe_max64(first, held.first), to = moe_min64(last, held.last);
    if (from >= to) continue;
    *out = (struct moe_held){from, to, held.moment + from - held.first};
    return true;
  }
  return false;
}
