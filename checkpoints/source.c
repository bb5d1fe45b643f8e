#include "checkpoints/source.h"

#include <string.h>

#include "base/alloc.h"
#include "checkpoints/scan.h"

struct moe_source moe_source_of_trainer(struct moe_trainer *t) {
  return (struct moe_source){.ctx = t->ctx,
                             .params = &t->model->params,
                             .memory = &t->memory,
                             .k = t->k,
                             .stream = t->stream};
}

moe_status moe_source_check(const struct moe_trainer *t) {
  for (int f = 0; f < MOE_FAMILIES; f++)
    if (t->optim.buckets.zero[f])
      return moe_fail(t->ctx, MOE_UNSUPPORTED,
                      "checkpoints of a sharded optimizer (optimizer.shard) on several ranks");
  return MOE_OK;
}

float *moe_source_values(const struct moe_source *s, const struct moe_slot *slot,
                         enum moe_store store) {
  float *const *base = store == MOE_STORE_WEIGHT    ? s->memory->weight
                       : store == MOE_STORE_EXP_AVG ? s->memory->exp_avg
                                                    : s->memory->exp_avg_sq;
  if (slot->buffer && store != MOE_STORE_WEIGHT) return NULL;
  return base[slot->family] + slot->offset;
}

struct fetch {
  const struct moe_source *source;
  const float *values; /* device */
};

static moe_status fetch_values(void *arg, int64_t offset, int64_t n, float *values) {
  const struct fetch *fetch = arg;
  const struct moe_source *s = fetch->source;
  s->k->copy(s->stream, values, fetch->values + offset, (size_t)n * sizeof *values);
  return s->k->stream_sync(s->stream);
}

moe_status moe_source_write(const struct moe_source *s, struct moe_writer *writer) {
  for (int store = 0; store < MOE_STORES; store++)
    for (int f = 0; f < MOE_FAMILIES; f++)
      for (int32_t i = 0; i < s->params->pack[f].slots; i++) {
        const struct moe_slot *slot = &s->params->pack[f].slot[i];
        struct fetch fetch = {s, moe_source_values(s, slot, (enum moe_store)store)};
        struct moe_box box = moe_box_of_slot(slot);
        if (fetch.values == NULL) continue;
        MOE_TRY(moe_writer_put(writer, (enum moe_store)store, slot->name, slot->dim, &box,
                               fetch_values, &fetch));
      }
  return MOE_OK;
}

/* A load under way: which slot a tensor of the catalog belongs to. */
struct read {
  const struct moe_source *source;
  const struct moe_catalog *catalog;
  const struct moe_slot **slot; /* by tensor; NULL: not on this rank */
};

static void shape_text(const int64_t *dim, int32_t dims, struct moe_text *out) {
  for (int32_t d = 0; d < dims; d++) moe_text_add(out, "%s%lld", d ? " x " : "", (long long)dim[d]);
}

static void add_shapes(const struct moe_stored *t, const struct moe_slot *slot,
                       struct moe_text *errors) {
  struct moe_text stored, wanted;
  moe_text_init(errors->ctx, &stored);
  moe_text_init(errors->ctx, &wanted);
  shape_text(t->dim, t->dims, &stored);
  shape_text(slot->dim, slot->dims, &wanted);
  moe_text_line(errors, "%s/%s: is %s in the checkpoint, %s in the model", moe_store_name(t->store),
                t->name, stored.s ? stored.s : "", wanted.s ? wanted.s : "");
  moe_text_destroy(&wanted);
  moe_text_destroy(&stored);
}

static void match_slot(struct read *r, const struct moe_slot *slot, enum moe_store store,
                       struct moe_text *errors) {
  const struct moe_stored *t = moe_catalog_find(r->catalog, store, slot->name);
  if (t == NULL) {
    moe_text_line(errors, "%s/%s: is missing in the checkpoint", moe_store_name(store), slot->name);
    return;
  }
  r->slot[t - r->catalog->tensor] = slot;
  if (t->dims != slot->dims || memcmp(t->dim, slot->dim, (size_t)t->dims * sizeof *t->dim) != 0)
    add_shapes(t, slot, errors);
}

/* Finds the slot of every tensor; lines for all that does not fit. */
static void match(struct read *r, bool whole, struct moe_text *errors) {
  const struct moe_source *s = r->source;
  for (int store = 0; store < MOE_STORES; store++)
    for (int f = 0; f < MOE_FAMILIES; f++)
      for (int32_t i = 0; i < s->params->pack[f].slots; i++) {
        const struct moe_slot *slot = &s->params->pack[f].slot[i];
        if (moe_source_values(s, slot, (enum moe_store)store))
          match_slot(r, slot, (enum moe_store)store, errors);
      }
  for (int64_t i = 0; whole && i < r->catalog->tensors; i++)
    if (r->slot[i] == NULL)
      moe_text_line(errors, "%s/%s: is not a tensor of the model",
                    moe_store_name(r->catalog->tensor[i].store), r->catalog->tensor[i].name);
}

static bool want_slice(void *arg, const struct moe_stored *t, const struct moe_slice *slice) {
  const struct read *r = arg;
  const struct moe_slot *slot = r->slot[t - r->catalog->tensor];
  struct moe_box both;
  if (slot == NULL) return false;
  struct moe_box mine = moe_box_of_slot(slot);
  return moe_box_intersect(&mine, &slice->box, &both);
}

static moe_status store_piece(void *arg, const struct moe_stored *t, const struct moe_box *piece,
                              const float *values) {
  const struct read *r = arg;
  const struct moe_source *s = r->source;
  const struct moe_slot *slot = r->slot[t - r->catalog->tensor];
  float *device = moe_source_values(s, slot, t->store);
  struct moe_box mine = moe_box_of_slot(slot), both;
  struct moe_box_runs runs;
  if (!moe_box_intersect(&mine, piece, &both)) return MOE_OK;
  moe_box_runs_init(&runs, &mine, piece, &both);
  while (moe_box_runs_next(&runs))
    s->k->copy(s->stream, device + runs.offset_a, values + runs.offset_b,
               (size_t)runs.length * sizeof *values);
  return s->k->stream_sync(s->stream);
}

moe_status moe_source_read(const struct moe_source *s, const char *folder,
                           const struct moe_catalog *catalog, bool whole) {
  struct moe_text errors;
  struct read r = {.source = s, .catalog = catalog};
  r.slot = moe_alloc_array(s->ctx, (size_t)catalog->tensors, sizeof *r.slot);
  if (r.slot == NULL) return MOE_MEMORY;
  moe_text_init(s->ctx, &errors);
  match(&r, whole, &errors);
  moe_status status =
      moe_catalog_verdict(s->ctx, &errors, "the checkpoint does not fit the model", folder);
  if (status == MOE_OK) {
    struct moe_scan scan = {
        .folder = folder, .catalog = catalog, .want = want_slice, .piece = store_piece, .arg = &r};
    status = moe_scan_run(&scan, &errors);
  }
  if (status == MOE_OK)
    status = moe_catalog_verdict(s->ctx, &errors, "the checkpoint is damaged", folder);
  moe_text_destroy(&errors);
  moe_release(s->ctx, r.slot);
  return status;
}
