#include "checkpoints/checkpoint.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/scan.h"

/* Adds a line for every data file that is missing or has another size. */
static moe_status check_files(const struct moe_checkpoint *c, struct moe_text *errors) {
  for (int32_t i = 0; i < c->catalog.files; i++) {
    const struct moe_data_file *file = &c->catalog.file[i];
    struct stat info;
    char *path = moe_path_join(c->ctx, c->folder, file->name);
    if (path == NULL) return MOE_MEMORY;
    if (stat(path, &info) != 0)
      moe_text_line(errors, "%s: %s", file->name, strerror(errno));
    else if ((uint64_t)info.st_size != file->bytes)
      moe_text_line(errors, "%s: has %lld bytes, should have %llu", file->name,
                    (long long)info.st_size, (unsigned long long)file->bytes);
    moe_release(c->ctx, path);
  }
  return MOE_OK;
}

static moe_status open_folder(struct moe_checkpoint *c, const char *path) {
  struct moe_text errors;
  MOE_TRY(moe_folder_resolve(c->ctx, path, &c->folder));
  MOE_TRY(moe_format_read_index(c->folder, &c->catalog));
  moe_text_init(c->ctx, &errors);
  moe_catalog_check(&c->catalog, &errors);
  moe_status status = check_files(c, &errors);
  if (status == MOE_OK)
    status = moe_catalog_verdict(c->ctx, &errors, "the checkpoint is not whole", c->folder);
  moe_text_destroy(&errors);
  return status;
}

moe_status moe_checkpoint_open(moe_ctx *ctx, const char *path, moe_checkpoint **out) {
  *out = NULL;
  struct moe_checkpoint *c = moe_alloc(ctx, sizeof *c);
  if (c == NULL) return MOE_MEMORY;
  c->ctx = ctx;
  moe_catalog_init(ctx, &c->catalog);
  moe_status status = open_folder(c, path);
  if (status != MOE_OK) {
    moe_checkpoint_close(c);
    return status;
  }
  *out = c;
  return MOE_OK;
}

void moe_checkpoint_close(moe_checkpoint *c) {
  if (c == NULL) return;
  moe_catalog_destroy(&c->catalog);
  moe_release(c->ctx, c->folder);
  moe_release(c->ctx, c);
}

moe_status moe_checkpoint_info(const moe_checkpoint *c, moe_checkpoint_summary *out) {
  MOE_CHECK_SIZE(c->ctx, out);
  const struct moe_header *h = &c->catalog.header;
  *out = (moe_checkpoint_summary){.size = sizeof *out,
                                  .path = c->folder,
                                  .step = h->step,
                                  .cursor = h->cursor,
                                  .seed = h->seed,
                                  .tensors = c->catalog.tensors,
                                  .files = c->catalog.files,
                                  .tp = h->tp,
                                  .cp = h->cp,
                                  .dp = h->dp,
                                  .pp = h->pp,
                                  .etp = h->etp,
                                  .ep = h->ep,
                                  .edp = h->edp,
                                  .chunks = h->chunks,
                                  .order = h->order,
                                  .dtype = h->dtype,
                                  .model_json = h->model,
                                  .meta_json = h->meta,
                                  .writer = h->writer};
  for (int64_t i = 0; i < c->catalog.tensors; i++) {
    const struct moe_stored *t = &c->catalog.tensor[i];
    struct moe_box whole = moe_box_whole(t->dims, t->dim);
    if (t->store == MOE_STORE_WEIGHT) out->params += moe_box_elements(&whole);
  }
  for (int32_t i = 0; i < c->catalog.files; i++) out->bytes += c->catalog.file[i].bytes;
  return MOE_OK;
}

static moe_status tensor_at(const moe_checkpoint *c, int64_t index, struct moe_stored **out) {
  *out = NULL;
  if (index < 0 || index >= c->catalog.tensors)
    return moe_fail(c->ctx, MOE_INVALID, "tensor %lld: there are %lld", (long long)index,
                    (long long)c->catalog.tensors);
  *out = &c->catalog.tensor[index];
  return MOE_OK;
}

moe_status moe_checkpoint_tensor_info(const moe_checkpoint *c, int64_t index,
                                      moe_checkpoint_tensor *out) {
  struct moe_stored *t;
  MOE_CHECK_SIZE(c->ctx, out);
  MOE_TRY(tensor_at(c, index, &t));
  *out = (moe_checkpoint_tensor){.size = sizeof *out,
                                 .group = moe_store_name(t->store),
                                 .name = t->name,
                                 .dims = t->dims,
                                 .digest = t->digest,
                                 .slices = t->slices};
  memcpy(out->dim, t->dim, (size_t)t->dims * sizeof *t->dim);
  return MOE_OK;
}

struct box_read {
  const struct moe_stored *tensor;
  struct moe_box box;
  float *values;
};

static bool want_box(void *arg, const struct moe_stored *t, const struct moe_slice *slice) {
  struct box_read *read = arg;
  struct moe_box both;
  return t == read->tensor && moe_box_intersect(&read->box, &slice->box, &both);
}

static moe_status take_piece(void *arg, const struct moe_stored *t, const struct moe_box *piece,
                             const float *values) {
  struct box_read *read = arg;
  struct moe_box both;
  struct moe_box_runs runs;
  (void)t;
  if (!moe_box_intersect(&read->box, piece, &both)) return MOE_OK;
  moe_box_runs_init(&runs, &read->box, piece, &both);
  while (moe_box_runs_next(&runs))
    memcpy(read->values + runs.offset_a, values + runs.offset_b,
           (size_t)runs.length * sizeof *values);
  return MOE_OK;
}

/* The box asked for; checks it against the tensor and n. */
static moe_status box_asked(moe_ctx *ctx, const struct moe_stored *t, const int64_t *start,
                            const int64_t *count, int64_t n, struct moe_box *out) {
  *out = moe_box_whole(t->dims, t->dim);
  for (int32_t d = 0; d < t->dims && start && count; d++) {
    if (start[d] < 0 || count[d] < 0 || start[d] > t->dim[d] - count[d])
      return moe_fail(ctx, MOE_INVALID, "%s: dim %d is %lld, the box asked for [%lld, +%lld)",
                      t->name, d, (long long)t->dim[d], (long long)start[d], (long long)count[d]);
    out->start[d] = start[d], out->count[d] = count[d];
  }
  if ((start == NULL) != (count == NULL))
    return moe_fail(ctx, MOE_INVALID, "%s: start and count are given both or none", t->name);
  if (n == moe_box_elements(out)) return MOE_OK;
  return moe_fail(ctx, MOE_INVALID, "%s: %lld values, the box has %lld", t->name, (long long)n,
                  (long long)moe_box_elements(out));
}

/* Runs a scan; damage is MOE_FORMAT. */
static moe_status scan(const moe_checkpoint *c, struct moe_scan *s, struct moe_text *errors) {
  s->folder = c->folder;
  s->catalog = &c->catalog;
  return moe_scan_run(s, errors);
}

moe_status moe_checkpoint_read(moe_checkpoint *c, int64_t index, const int64_t *start,
                               const int64_t *count, float *values, int64_t n) {
  struct moe_stored *t;
  struct moe_text errors;
  MOE_TRY(tensor_at(c, index, &t));
  struct box_read read = {.tensor = t, .values = values};
  MOE_TRY(box_asked(c->ctx, t, start, count, n, &read.box));
  struct moe_scan s = {.want = want_box, .piece = take_piece, .arg = &read};
  moe_text_init(c->ctx, &errors);
  moe_status status = scan(c, &s, &errors);
  if (status == MOE_OK)
    status = moe_catalog_verdict(c->ctx, &errors, "the checkpoint is damaged", c->folder);
  moe_text_destroy(&errors);
  return status;
}

/* Digests of whole tensors, from slices that are sound. */
static moe_status check_tensors(const moe_checkpoint *c, struct moe_text *errors) {
  for (int64_t i = 0; i < c->catalog.tensors; i++) {
    const struct moe_stored *t = &c->catalog.tensor[i];
    uint64_t digest;
    MOE_TRY(moe_scan_digest(c->folder, &c->catalog, t, &digest));
    if (digest != t->digest)
      moe_text_line(errors, "%s/%s: digest %016llx, should be %016llx", moe_store_name(t->store),
                    t->name, (unsigned long long)digest, (unsigned long long)t->digest);
  }
  return MOE_OK;
}

moe_status moe_checkpoint_verify(moe_checkpoint *c) {
  struct moe_text errors;
  struct moe_scan s = {0};
  moe_text_init(c->ctx, &errors);
  moe_status status = check_files(c, &errors);
  if (status == MOE_OK) status = scan(c, &s, &errors);
  if (status == MOE_OK && errors.len == 0) status = check_tensors(c, &errors);
  if (status == MOE_OK)
    status = moe_catalog_verdict(c->ctx, &errors, "the checkpoint is damaged", c->folder);
  moe_text_destroy(&errors);
  return status;
}
