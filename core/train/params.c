/* Parameters by name: reading and writing this rank's slices. */
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "train/trainer.h"

int64_t moe_trainer_param_count(const moe_trainer *t) { return moe_model_slots(t->model); }

static moe_status slot_at(const moe_trainer *t, int64_t index, const struct moe_slot **out) {
  *out = moe_model_slot(t->model, index);
  if (*out) return MOE_OK;
  return moe_fail(t->ctx, MOE_INVALID, "parameter %lld: there are %lld", (long long)index,
                  (long long)moe_model_slots(t->model));
}

moe_status moe_trainer_param_info(const moe_trainer *t, int64_t index, moe_param_info *out) {
  return moe_model_param_info(t->model, index, out);
}

moe_status moe_trainer_param_find(const moe_trainer *t, const char *name, int64_t *index) {
  int64_t n = moe_trainer_param_count(t);
  for (int64_t i = 0; i < n; i++) {
    if (strcmp(moe_model_slot(t->model, i)->name, name) != 0) continue;
    *index = i;
    return MOE_OK;
  }
  const char **names = moe_alloc_array(t->ctx, (size_t)n, sizeof *names);
  if (names == NULL) return MOE_MEMORY;
  for (int64_t i = 0; i < n; i++) names[i] = moe_model_slot(t->model, i)->name;
  const char *near = moe_text_nearest(name, names, (size_t)n);
  moe_release(t->ctx, names);
  return moe_fail(t->ctx, MOE_NOTFOUND, "no parameter \"%s\"%s%s%s", name,
                  near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* The slot's moments; with ZeRO another rank may hold a part of them, or of the summed gradient. */
static moe_status held_whole(moe_trainer *t, const struct moe_slot *slot, int64_t *moment) {
  struct moe_held run;
  int32_t at = 0;
  *moment = slot->offset;
  if (!t->optim.buckets.zero[slot->family] || slot->elements == 0) return MOE_OK;
  bool some = moe_buckets_next(&t->optim.buckets, slot, &at, &run);
  *moment = some ? run.moment : 0;
  if (some && run.last - run.first == slot->elements) return MOE_OK;
  return moe_fail(t->ctx, MOE_UNSUPPORTED,
                  "%s: optimizer.shard: other ranks hold a part of its moments and of its summed "
                  "gradient; a checkpoint has them whole",
                  slot->name);
}

/* Where the slot's values of a kind lie on the device. */
static moe_status locate(moe_trainer *t, const struct moe_slot *slot, int32_t kind, int64_t n,
                         float **out) {
  float **pack = NULL;
  switch ((moe_tensor_kind)kind) {
    case MOE_TENSOR_WEIGHT: pack = t->memory.weight; break;
    case MOE_TENSOR_GRAD: pack = t->memory.grad; break;
    case MOE_TENSOR_EXP_AVG: pack = t->memory.exp_avg; break;
    case MOE_TENSOR_EXP_AVG_SQ: pack = t->memory.exp_avg_sq; break;
  }
  if (pack == NULL) return moe_fail(t->ctx, MOE_INVALID, "tensor kind %d is unknown", kind);
  if (slot->buffer && kind != MOE_TENSOR_WEIGHT)
    return moe_fail(t->ctx, MOE_INVALID, "%s is a buffer: it has no gradient and no moments",
                    slot->name);
  if (n != slot->elements)
    return moe_fail(t->ctx, MOE_INVALID, "%s: %lld values, this rank's slice has %lld", slot->name,
                    (long long)n, (long long)slot->elements);
  int64_t offset = slot->offset, moment;
  if (kind != MOE_TENSOR_WEIGHT) MOE_TRY(held_whole(t, slot, &moment));
  if (kind == MOE_TENSOR_EXP_AVG || kind == MOE_TENSOR_EXP_AVG_SQ) offset = moment;
  *out = pack[slot->family] + offset;
  return MOE_OK;
}

moe_status moe_trainer_param_read(moe_trainer *t, int64_t index, int32_t kind, float *values,
                                  int64_t n) {
  const struct moe_slot *slot;
  float *device;
  MOE_TRY(slot_at(t, index, &slot));
  MOE_TRY(locate(t, slot, kind, n, &device));
  t->k->copy(t->stream, values, device, (size_t)n * sizeof *values);
  return t->k->stream_sync(t->stream);
}

moe_status moe_trainer_param_write(moe_trainer *t, int64_t index, int32_t kind, const float *values,
                                   int64_t n) {
  const struct moe_slot *slot;
  float *device;
  MOE_TRY(slot_at(t, index, &slot));
  MOE_TRY(locate(t, slot, kind, n, &device));
  t->k->copy(t->stream, device, values, (size_t)n * sizeof *values);
  if (kind == MOE_TENSOR_WEIGHT) t->stale = true;
  return t->k->stream_sync(t->stream);
}
