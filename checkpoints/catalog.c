#include "checkpoints/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

const char *moe_store_name(enum moe_store store) {
  static const char *const name[MOE_STORES] = {"weights", "exp_avg", "exp_avg_sq"};
  return name[store];
}

void moe_catalog_init(moe_ctx *ctx, struct moe_catalog *out) {
  *out = (struct moe_catalog){.ctx = ctx};
}

void moe_catalog_destroy(struct moe_catalog *c) {
  char *text[] = {c->header.order, c->header.dtype, c->header.model, c->header.meta,
                  c->header.writer};
  for (size_t i = 0; i < MOE_COUNTOF(text); i++) moe_release(c->ctx, text[i]);
  for (int64_t i = 0; i < c->tensors; i++) moe_release(c->ctx, c->tensor[i].slice);
  moe_release(c->ctx, c->tensor);
  moe_release(c->ctx, c->file);
  moe_catalog_init(c->ctx, c);
}

void moe_catalog_file_name(int32_t rank, char name[MOE_FILE_NAME]) {
  snprintf(name, MOE_FILE_NAME, "rank-%05d.h5", rank);
}

moe_status moe_catalog_set_files(struct moe_catalog *c, int32_t n) {
  struct moe_data_file *file = moe_alloc_array(c->ctx, (size_t)n, sizeof *file);
  if (file == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < n; i++) moe_catalog_file_name(i, file[i].name);
  moe_release(c->ctx, c->file);
  c->file = file;
  c->files = n;
  return MOE_OK;
}

moe_status moe_catalog_add(struct moe_catalog *c, enum moe_store store, const char *name,
                           int32_t dims, const int64_t *dim, struct moe_stored **out) {
  if (c->tensors == c->room) {
    int64_t room = c->room ? c->room * 2 : 64;
    struct moe_stored *tensor = moe_realloc(c->ctx, c->tensor, (size_t)room * sizeof *tensor);
    if (tensor == NULL) return MOE_MEMORY;
    c->tensor = tensor;
    c->room = room;
  }
  struct moe_stored *t = &c->tensor[c->tensors++];
  *t = (struct moe_stored){.store = store, .dims = dims};
  snprintf(t->name, sizeof t->name, "%s", name);
  memcpy(t->dim, dim, (size_t)dims * sizeof *dim);
  *out = t;
  return MOE_OK;
}

moe_status moe_catalog_add_slice(struct moe_catalog *c, struct moe_stored *t,
                                 const struct moe_slice *slice) {
  if (t->slices == t->room) {
    int32_t room = t->room ? t->room * 2 : 1;
    struct moe_slice *more = moe_realloc(c->ctx, t->slice, (size_t)room * sizeof *more);
    if (more == NULL) return MOE_MEMORY;
    t->slice = more;
    t->room = room;
  }
  t->slice[t->slices++] = *slice;
  return MOE_OK;
}

static int by_name(const void *a, const void *b) {
  const struct moe_stored *x = a, *y = b;
  if (x->store != y->store) return x->store < y->store ? -1 : 1;
  return strcmp(x->name, y->name);
}

struct moe_stored *moe_catalog_find(const struct moe_catalog *c, enum moe_store store,
                                    const char *name) {
  struct moe_stored key = {.store = store};
  if (strlen(name) >= sizeof key.name || c->tensors == 0) return NULL;
  strcpy(key.name, name);
  return bsearch(&key, c->tensor, (size_t)c->tensors, sizeof key, by_name);
}

void moe_catalog_sort(struct moe_catalog *c) {
  if (c->tensors > 0) qsort(c->tensor, (size_t)c->tensors, sizeof *c->tensor, by_name);
}

static int by_place(const void *a, const void *b) {
  const struct moe_slice *x = a, *y = b;
  for (int32_t d = 0; d < x->box.dims && d < y->box.dims; d++)
    if (x->box.start[d] != y->box.start[d]) return x->box.start[d] < y->box.start[d] ? -1 : 1;
  return x->file < y->file ? -1 : x->file > y->file;
}

moe_status moe_catalog_merge(struct moe_catalog *c, const char *folder) {
  struct moe_text errors;
  int64_t n = 0;
  moe_text_init(c->ctx, &errors);
  moe_catalog_sort(c);
  moe_status status = MOE_OK;
  for (int64_t i = 0; i < c->tensors; i++) {
    struct moe_stored *t = &c->tensor[i], *into = n > 0 ? &c->tensor[n - 1] : NULL;
    if (into == NULL || by_name(into, t) != 0) {
      c->tensor[n++] = *t;
      continue;
    }
    if (into->dims != t->dims || memcmp(into->dim, t->dim, sizeof t->dim) != 0)
      moe_text_line(&errors, "%s/%s: has another shape in %s than in %s", moe_store_name(t->store),
                    t->name, c->file[t->slice[0].file].name, c->file[into->slice[0].file].name);
    for (int32_t s = 0; s < t->slices && status == MOE_OK; s++)
      status = moe_catalog_add_slice(c, into, &t->slice[s]);
    moe_release(c->ctx, t->slice);
  }
  c->tensors = n;
  for (int64_t i = 0; i < n; i++)
    if (c->tensor[i].slices > 1)
      qsort(c->tensor[i].slice, (size_t)c->tensor[i].slices, sizeof(struct moe_slice), by_place);
  if (status == MOE_OK)
    status = moe_catalog_verdict(c->ctx, &errors, "its data files disagree", folder);
  moe_text_destroy(&errors);
  return status;
}

static bool inside(const struct moe_stored *t, const struct moe_box *box) {
  if (box->dims != t->dims) return false;
  for (int32_t d = 0; d < t->dims; d++)
    if (box->start[d] < 0 || box->count[d] < 1 || box->start[d] > t->dim[d] - box->count[d])
      return false;
  return true;
}

/* Adds lines about one tensor. */
static void check_tensor(const struct moe_catalog *c, const struct moe_stored *t,
                         struct moe_text *errors) {
  struct moe_box whole = moe_box_whole(t->dims, t->dim), both;
  char text[MOE_BOX_TEXT];
  int64_t covered = 0;
  for (int32_t i = 0; i < t->slices; i++) {
    const struct moe_slice *s = &t->slice[i];
    if (!inside(t, &s->box)) {
      moe_box_text(&s->box, text, sizeof text);
      moe_text_line(errors, "%s/%s: the slice %s in %s lies outside of the tensor",
                    moe_store_name(t->store), t->name, text, c->file[s->file].name);
      return;
    }
    if (s->offset > c->file[s->file].bytes ||
        (uint64_t)moe_box_elements(&s->box) >
            (c->file[s->file].bytes - s->offset) / sizeof(float)) {
      moe_text_line(errors, "%s/%s: %s reaches beyond the end of %s", moe_store_name(t->store),
                    t->name, s->set, c->file[s->file].name);
      return;
    }
    covered += moe_box_elements(&s->box);
    for (int32_t j = 0; j < i; j++) {
      if (!moe_box_intersect(&s->box, &t->slice[j].box, &both)) continue;
      moe_box_text(&both, text, sizeof text);
      moe_text_line(errors, "%s/%s: %s is stored twice, in %s and in %s", moe_store_name(t->store),
                    t->name, text, c->file[t->slice[j].file].name, c->file[s->file].name);
      return;
    }
  }
  if (covered != moe_box_elements(&whole))
    moe_text_line(errors, "%s/%s: %lld of %lld elements are missing", moe_store_name(t->store),
                  t->name, (long long)(moe_box_elements(&whole) - covered),
                  (long long)moe_box_elements(&whole));
}

void moe_catalog_check(const struct moe_catalog *c, struct moe_text *errors) {
  for (int64_t i = 0; i < c->tensors; i++) {
    if (i > 0 && by_name(&c->tensor[i - 1], &c->tensor[i]) == 0)
      moe_text_line(errors, "%s/%s: is there twice", moe_store_name(c->tensor[i].store),
                    c->tensor[i].name);
    check_tensor(c, &c->tensor[i], errors);
  }
}

moe_status moe_catalog_verdict(moe_ctx *ctx, struct moe_text *errors, const char *what,
                               const char *folder) {
  enum { LINES = 40 };
  if (errors->failed) return MOE_MEMORY;
  if (errors->len == 0) return MOE_OK;
  size_t lines = 1, shown = errors->len;
  for (size_t i = 0; i < errors->len; i++) {
    if (errors->s[i] != '\n') continue;
    if (lines++ == LINES) shown = i;
  }
  if (lines <= LINES) return moe_fail(ctx, MOE_FORMAT, "%s: %s:\n%s", folder, what, errors->s);
  return moe_fail(ctx, MOE_FORMAT, "%s: %s:\n%.*s\nand %zu more", folder, what, (int)shown,
                  errors->s, lines - LINES);
}
