#include "optim/optim.h"

#include "base/alloc.h"
#include "optim/adamw.h"
#include "optim/sharing.h"

/* Neighbouring slots of a pack that lie on the same tp ranks. */
struct moe_copied {
  enum moe_family family;
  int64_t first, last;
  struct moe_group group;
};

static moe_status find_copied(struct moe_optim *o, const struct moe_layout *layout) {
  int32_t slots = 0;
  for (int f = 0; f < MOE_FAMILIES; f++) slots += o->params->pack[f].slots;
  o->copied = moe_alloc_array(o->ctx, (size_t)slots + 1, sizeof *o->copied);
  if (o->copied == NULL) return MOE_MEMORY;
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < o->params->pack[f].slots; i++) {
      const struct moe_slot *slot = &o->params->pack[f].slot[i];
      struct moe_sharing s = moe_sharing_of(slot, &o->place);
      struct moe_copied mine = {
          (enum moe_family)f, slot->offset, slot->offset + slot->elements, {0}};
      struct moe_copied *last = o->copieds ? &o->copied[o->copieds - 1] : NULL;
      if (s.copies == 1) continue;
      MOE_TRY(moe_groups_copies(o->world.comm->world, layout, s.copies, &mine.group));
      if (last && last->family == mine.family && last->last == mine.first &&
          last->group.comm == mine.group.comm)
        last->last = mine.last;
      else
        o->copied[o->copieds++] = mine;
    }
  return MOE_OK;
}

static moe_status build(struct moe_optim *o, const int32_t (*first_slot)[MOE_FAMILIES],
                        int32_t blocks, const struct moe_layout *layout,
                        const struct moe_groups *groups, bool zero) {
  struct moe_coord share[MOE_FAMILIES];
  o->world = groups->of[MOE_GROUP_WORLD];
  o->place = moe_place_of(layout, o->world.comm->world->rank);
  for (int f = 0; f < MOE_FAMILIES; f++) {
    o->group[f] = groups->of[moe_family_group((enum moe_family)f)];
    share[f] = (struct moe_coord){moe_group_size(o->group[f]), moe_group_rank(o->group[f])};
  }
  MOE_TRY(moe_buckets_create(o->ctx, o->params, first_slot, blocks, share, zero, &o->buckets));
  o->request = moe_alloc_array(o->ctx, (size_t)o->buckets.buckets + 1, sizeof *o->request);
  if (o->request == NULL) return MOE_MEMORY;
  return find_copied(o, layout);
}

moe_status moe_optim_create(moe_ctx *ctx, const struct moe_params *params,
                            const struct moe_param_memory *memory,
                            const int32_t (*first_slot)[MOE_FAMILIES], int32_t blocks,
                            const struct moe_layout *layout, const struct moe_groups *groups,
                            bool zero, const struct moe_kernels *k, struct moe_stream *stream,
                            struct moe_optim *out) {
  *out =
      (struct moe_optim){.ctx = ctx, .k = k, .stream = stream, .params = params, .memory = memory};
  moe_status status = build(out, first_slot, blocks, layout, groups, zero);
  if (status != MOE_OK) moe_optim_destroy(out);
  return status;
}

void moe_optim_destroy(struct moe_optim *o) {
  if (o->ctx == NULL) return;
  moe_buckets_destroy(&o->buckets);
  moe_release(o->ctx, o->copied);
  moe_release(o->ctx, o->request);
  *o = (struct moe_optim){0};
}

static moe_status start(struct moe_optim *o, int32_t i) {
  const struct moe_bucket *b = &o->buckets.bucket[i];
  struct moe_group g = o->group[b->family];
  float *grad = o->memory->grad[b->family] + b->first;
  o->request[i] = (struct moe_request){0};
  if (moe_group_size(g) == 1) return MOE_OK;
  if (!o->buckets.zero[b->family])
    return moe_all_reduce(g, o->stream, grad, b->last - b->first, MOE_F32, MOE_SUM, &o->request[i]);
  return moe_reduce_scatter_v(g, o->stream, grad, grad + b->part[moe_group_rank(g)], b->count,
                              b->part, MOE_F32, &o->request[i]);
}

moe_status moe_optim_ready(struct moe_optim *o, int32_t block) {
  while (o->started < o->buckets.buckets && o->buckets.bucket[o->started].ready >= block)
    MOE_TRY(start(o, o->started++));
  moe_comm_progress(o->world.comm->world);
  return MOE_OK;
}

static moe_status wait_all(struct moe_optim *o) {
  for (int32_t i = 0; i < o->buckets.buckets; i++)
    MOE_TRY(moe_comm_wait(o->stream, &o->request[i]));
  return MOE_OK;
}

/* Ranks that hold a copy of a head hold the same parts. */
static moe_status sum_copies(struct moe_optim *o) {
  for (int32_t c = 0; c < o->copieds; c++) {
    const struct moe_copied *copied = &o->copied[c];
    const struct moe_slot range = {.family = copied->family,
                                   .offset = copied->first,
                                   .elements = copied->last - copied->first};
    struct moe_held run;
    for (int32_t at = 0; moe_buckets_next(&o->buckets, &range, &at, &run);)
      MOE_TRY(moe_all_reduce(copied->group, o->stream, o->memory->grad[copied->family] + run.first,
                             run.last - run.first, MOE_F32, MOE_SUM, NULL));
  }
  return MOE_OK;
}

moe_status moe_optim_finish(struct moe_optim *o) {
  MOE_TRY(moe_optim_ready(o, -1));
  o->started = 0;
  MOE_TRY(wait_all(o));
  return sum_copies(o);
}

/* Gaps between slots are left out: a reduce-scatter may leave anything there. */
static void square(struct moe_optim *o, enum moe_family family, struct moe_held part, double *sum) {
  const struct moe_pack *pack = &o->params->pack[family];
  const float *grad = o->memory->grad[family];
  int64_t from = part.first, to = part.first; /* a run that is not added yet */
  for (int32_t i = moe_pack_slot_at(pack, part.first); i < pack->slots; i++) {
    const struct moe_slot *slot = &pack->slot[i];
    int64_t a = moe_max64(slot->offset, part.first);
    int64_t b = moe_min64(slot->offset + slot->elements, part.last);
    if (slot->offset >= part.last) break;
    if (a >= b || !moe_sharing_of(slot, &o->place).counted) continue;
    if (a != to) {
      if (to > from) o->k->sumsq(o->stream, grad + from, to - from, sum, true);
      from = a;
    }
    to = b;
  }
  if (to > from) o->k->sumsq(o->stream, grad + from, to - from, sum, true);
}

moe_status moe_optim_square(struct moe_optim *o, double *sum) {
  o->k->fill(o->stream, sum, 0, sizeof *sum);
  for (int32_t i = 0; i < o->buckets.buckets; i++) {
    const struct moe_bucket *b = &o->buckets.bucket[i];
    square(o, b->family, moe_bucket_part(&o->buckets, b), sum);
  }
  return moe_all_reduce(o->world, o->stream, sum, 1, MOE_F64, MOE_SUM, NULL);
}

moe_status moe_optim_update(struct moe_optim *o, const moe_optimizer_config *config, double lr,
                            int64_t step, const float *grad_scale) {
  for (int32_t i = 0; i < o->buckets.buckets; i++) {
    const struct moe_bucket *b = &o->buckets.bucket[i];
    struct moe_group g = o->group[b->family];
    float *weight = o->memory->weight[b->family] + b->first;
    moe_adamw_step(o->k, o->stream, &o->params->pack[b->family], o->memory,
                   moe_bucket_held(&o->buckets, b), config, lr, step, grad_scale);
    if (!o->buckets.zero[b->family]) continue;
    MOE_TRY(moe_all_gather_v(g, o->stream, weight + b->part[moe_group_rank(g)], weight, b->count,
                             b->part, MOE_F32, &o->request[i]));
  }
  return wait_all(o);
}
