#include "checkpoints/source.h"

#include <string.h>

#include "base/alloc.h"
#include "checkpoints/scan.h"
#include "optim/sharing.h"

struct moe_source moe_source_of_trainer(struct moe_trainer *t) {
  return (struct moe_source){.ctx = t->ctx,
                             .params = &t->model->params,
                             .memory = &t->memory,
                             .k = t->k,
                             .stream = t->stream,
                             .optim = &t->optim};
}

static float *const *memory_of(const struct moe_source *s, enum moe_store store) {
  switch (store) {
    case MOE_STORE_EXP_AVG: return s->memory->exp_avg;
    case MOE_STORE_EXP_AVG_SQ: return s->memory->exp_avg_sq;
    case MOE_STORE_WEIGHT:
    case MOE_STORES: break;
  }
  return s->memory->weight;
}

static bool divided(const struct moe_source *s, const struct moe_slot *slot, enum moe_store store) {
  return s->optim && store != MOE_STORE_WEIGHT && s->optim->buckets.zero[slot->family];
}

bool moe_source_next(const struct moe_source *s, const struct moe_slot *slot, enum moe_store store,
                     int32_t *next, struct moe_values *out) {
  float *base = memory_of(s, store)[slot->family];
  struct moe_held run;
  if (slot->buffer && store != MOE_STORE_WEIGHT) return false;
  if (divided(s, slot, store)) {
    if (!moe_buckets_next(&s->optim->buckets, slot, next, &run)) return false;
    *out =
        (struct moe_values){run.first - slot->offset, run.last - slot->offset, base + run.moment};
    return true;
  }
  *out = (struct moe_values){0, slot->elements, base + slot->offset};
  return (*next)++ == 0;
}

float *moe_source_values(const struct moe_source *s, const struct moe_slot *slot,
                         enum moe_store store) {
  struct moe_values values;
  int32_t next = 0;
  bool some = moe_source_next(s, slot, store, &next, &values);
  return some && values.last - values.first == slot->elements ? values.at : NULL;
}

/* Of the ranks that have the same values one stores them: the first of those that share the slot,
 * with the first copy of a kv head. Moments of ZeRO are nobody else's. */
static bool stores(const struct moe_source *s, const struct moe_slot *slot, enum moe_store store) {
  if (slot->second) return false;
  if (s->optim == NULL) return true;
  struct moe_sharing sharing = moe_sharing_of(slot, &s->optim->place);
  if (s->optim->place.tp.rank % sharing.copies != 0) return false;
  return divided(s, slot, store) || moe_group_rank(s->optim->group[slot->family]) == 0;
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

/* A run of a slot's elements is stored as the boxes that make it up. */
static moe_status write_slot(const struct moe_source *s, struct moe_writer *writer,
                             const struct moe_slot *slot, enum moe_store store) {
  const struct moe_box mine = moe_box_of_slot(slot);
  struct moe_values values;
  struct moe_box box;
  for (int32_t next = 0; moe_source_next(s, slot, store, &next, &values);)
    for (int64_t first = values.first, from = first;
         moe_box_of_run(&mine, &first, values.last, &box); from = first) {
      struct fetch fetch = {s, values.at + (from - values.first)};
      MOE_TRY(moe_writer_put(writer, store, slot->name, slot->dim, &box, fetch_values, &fetch));
    }
  return MOE_OK;
}

moe_status moe_source_write(const struct moe_source *s, struct moe_writer *writer) {
  for (int store = 0; store < MOE_STORES; store++)
    for (int f = 0; f < MOE_FAMILIES; f++)
      for (int32_t i = 0; i < s->params->pack[f].slots; i++) {
        const struct moe_slot *slot = &s->params->pack[f].slot[i];
        if (stores(s, slot, (enum moe_store)store))
          MOE_TRY(write_slot(s, writer, slot, (enum moe_store)store));
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
        if (!slot->buffer || store == MOE_STORE_WEIGHT)
          match_slot(r, slot, (enum moe_store)store, errors);
      }
  for (int64_t i = 0; whole && i < r->catalog->tensors; i++)
    if (r->slot[i] == NULL)
      moe_text_line(errors, "%s/%s: is not a tensor of the model",
                    moe_store_name(r->catalog->tensor[i].store), r->catalog->tensor[i].name);
}

/* Where an element of a box lies in its memory; the last one of a box that is held in it. */
static int64_t place_in(const struct moe_box *box, const struct moe_box *part, bool last) {
  int64_t at = 0;
  for (int32_t d = 0; d < box->dims; d++)
    at = at * box->count[d] + part->start[d] - box->start[d] + (last ? part->count[d] - 1 : 0);
  return at;
}

/* A slice that may have values of this rank. */
static bool want_slice(void *arg, const struct moe_stored *t, const struct moe_slice *slice) {
  const struct read *r = arg;
  const struct moe_slot *slot = r->slot[t - r->catalog->tensor];
  struct moe_box both;
  struct moe_values values;
  if (slot == NULL) return false;
  struct moe_box mine = moe_box_of_slot(slot);
  if (!moe_box_intersect(&mine, &slice->box, &both)) return false;
  int64_t first = place_in(&mine, &both, false), last = place_in(&mine, &both, true);
  for (int32_t next = 0; moe_source_next(r->source, slot, t->store, &next, &values);)
    if (first < values.last && last >= values.first) return true;
  return false;
}

static moe_status store_piece(void *arg, const struct moe_stored *t, const struct moe_box *piece,
                              const float *from) {
  const struct read *r = arg;
  const struct moe_source *s = r->source;
  const struct moe_slot *slot = r->slot[t - r->catalog->tensor];
  struct moe_box mine = moe_box_of_slot(slot), both;
  struct moe_values values;
  struct moe_box_runs runs;
  if (!moe_box_intersect(&mine, piece, &both)) return MOE_OK;
  for (int32_t next = 0; moe_source_next(s, slot, t->store, &next, &values);) {
    moe_box_runs_init(&runs, &mine, piece, &both);
    while (moe_box_runs_next(&runs)) {
      int64_t a = moe_max64(runs.offset_a, values.first);
      int64_t b = moe_min64(runs.offset_a + runs.length, values.last);
      if (a < b)
        s->k->copy(s->stream, values.at + (a - values.first),
                   from + runs.offset_b + a - runs.offset_a, (size_t)(b - a) * sizeof *from);
    }
  }
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
