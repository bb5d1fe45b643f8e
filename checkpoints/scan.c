#include "checkpoints/scan.h"

#include <string.h>

#include "base/alloc.h"
#include "checkpoints/digest.h"
#include "checkpoints/format.h"

struct run {
  const struct moe_scan *scan;
  moe_ctx *ctx;
  struct moe_text *errors;
  struct moe_slice_reader *reader; /* of the file at hand; NULL before its first slice */
  float *values;
};

/* Notes damage and clears it; passes other errors on. */
static moe_status note(struct run *run, moe_status status) {
  if (status != MOE_FORMAT && status != MOE_IO) return status;
  moe_text_line(run->errors, "%s", moe_ctx_error(run->ctx));
  return MOE_OK;
}

static moe_status read_slice(struct run *run, const struct moe_stored *t,
                             const struct moe_slice *slice) {
  struct moe_box_walk walk;
  uint64_t digest = 0;
  moe_box_walk_init(&walk, &slice->box, MOE_PIECE);
  while (moe_box_walk_next(&walk)) {
    MOE_TRY(moe_slice_reader_read(run->reader, slice, &walk.piece, &walk.piece, run->values));
    digest += moe_digest_box(t->dim, &walk.piece, run->values);
    if (run->scan->piece) MOE_TRY(run->scan->piece(run->scan->arg, t, &walk.piece, run->values));
  }
  if (digest == slice->digest) return MOE_OK;
  char text[MOE_BOX_TEXT];
  moe_box_text(&slice->box, text, sizeof text);
  return moe_fail(run->ctx, MOE_FORMAT,
                  "%s: %s, elements %s of the tensor, are damaged: digest %016llx, should be "
                  "%016llx",
                  run->scan->catalog->file[slice->file].name, slice->set, text,
                  (unsigned long long)digest, (unsigned long long)slice->digest);
}

static moe_status scan_file(struct run *run, int32_t file) {
  const struct moe_catalog *c = run->scan->catalog;
  for (int64_t i = 0; i < c->tensors; i++) {
    const struct moe_stored *t = &c->tensor[i];
    for (int32_t s = 0; s < t->slices; s++) {
      if (t->slice[s].file != file) continue;
      if (run->scan->want && !run->scan->want(run->scan->arg, t, &t->slice[s])) continue;
      if (run->reader == NULL)
        MOE_TRY(
            moe_slice_reader_open(run->ctx, run->scan->folder, c->file[file].name, &run->reader));
      MOE_TRY(note(run, read_slice(run, t, &t->slice[s])));
    }
  }
  return MOE_OK;
}

moe_status moe_scan_run(const struct moe_scan *scan, struct moe_text *errors) {
  struct run run = {.scan = scan, .ctx = scan->catalog->ctx, .errors = errors};
  run.values = moe_alloc_array(run.ctx, MOE_PIECE, sizeof *run.values);
  if (run.values == NULL) return MOE_MEMORY;
  moe_status status = MOE_OK;
  for (int32_t f = 0; status == MOE_OK && f < scan->catalog->files; f++) {
    status = note(&run, scan_file(&run, f));
    moe_slice_reader_close(run.reader);
    run.reader = NULL;
  }
  moe_release(run.ctx, run.values);
  return status;
}

/* Fills the memory of `piece` from all slices that share elements with it. */
static moe_status gather(const char *folder, const struct moe_catalog *c,
                         const struct moe_stored *t, const struct moe_box *piece, float *values) {
  struct moe_box both;
  moe_status status = MOE_OK;
  for (int32_t s = 0; status == MOE_OK && s < t->slices; s++) {
    struct moe_slice_reader *reader;
    if (!moe_box_intersect(&t->slice[s].box, piece, &both)) continue;
    MOE_TRY(moe_slice_reader_open(c->ctx, folder, c->file[t->slice[s].file].name, &reader));
    status = moe_slice_reader_read(reader, &t->slice[s], &both, piece, values);
    moe_slice_reader_close(reader);
  }
  return status;
}

moe_status moe_scan_digest(const char *folder, const struct moe_catalog *c,
                           const struct moe_stored *t, uint64_t *digest) {
  bool adds = true;
  *digest = 0;
  for (int32_t s = 0; s < t->slices; s++) {
    adds = adds && moe_digest_adds(t->dim, &t->slice[s].box);
    *digest += t->slice[s].digest;
  }
  if (adds) return MOE_OK;
  float *values = moe_alloc_array(c->ctx, MOE_PIECE, sizeof *values);
  if (values == NULL) return MOE_MEMORY;
  struct moe_box whole = moe_box_whole(t->dims, t->dim);
  struct moe_box_walk walk;
  moe_status status = MOE_OK;
  *digest = 0;
  moe_box_walk_init(&walk, &whole, MOE_PIECE);
  while (status == MOE_OK && moe_box_walk_next(&walk)) {
    status = gather(folder, c, t, &walk.piece, values);
    *digest += moe_digest_box(t->dim, &walk.piece, values);
  }
  moe_release(c->ctx, values);
  return status;
}
