/* Reading the index. What it says is checked here as far as it can be without the data files; where
 * slices lie is moe_catalog_check's part. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/hdf5_util.h"
#include "checkpoints/seal.h"

struct read_index {
  struct moe_catalog *catalog;
  const char *path; /* of the index */
  enum moe_store store;
};

static moe_status read_numbers(moe_ctx *ctx, hid_t file, const char *path, struct moe_header *h) {
  const struct {
    const char *name;
    int32_t *value;
  } degree[] = {{"tp", &h->tp},   {"cp", &h->cp}, {"dp", &h->dp},   {"pp", &h->pp},
                {"etp", &h->etp}, {"ep", &h->ep}, {"edp", &h->edp}, {"chunks", &h->chunks}};
  for (size_t i = 0; i < MOE_COUNTOF(degree); i++) {
    int64_t value;
    MOE_TRY(moe_hdf5_get_i64(ctx, file, path, degree[i].name, -1, &value));
    if (value < 1 || value > INT32_MAX)
      return moe_fail(ctx, MOE_FORMAT, "%s: %s is %lld", path, degree[i].name, (long long)value);
    *degree[i].value = (int32_t)value;
  }
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "step", -1, &h->step));
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "cursor", -1, &h->cursor));
  if (h->step < 0 || h->cursor < 0)
    return moe_fail(ctx, MOE_FORMAT, "%s: step %lld, cursor %lld", path, (long long)h->step,
                    (long long)h->cursor);
  return moe_hdf5_get_u64(ctx, file, path, "seed", -1, &h->seed);
}

static moe_status read_header(moe_ctx *ctx, hid_t file, const char *path, struct moe_header *h) {
  int64_t version;
  char *format;
  MOE_TRY(moe_hdf5_get_text(ctx, file, path, "format", &format));
  bool known = strcmp(format, "moelua checkpoint") == 0;
  moe_release(ctx, format);
  if (!known) return moe_fail(ctx, MOE_FORMAT, "%s: is not the index of a checkpoint", path);
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "format_version", -1, &version));
  if (version != MOE_CHECKPOINT_FORMAT)
    return moe_fail(ctx, MOE_UNSUPPORTED, "%s: format version %lld; this library reads %d", path,
                    (long long)version, MOE_CHECKPOINT_FORMAT);
  MOE_TRY(read_numbers(ctx, file, path, h));
  MOE_TRY(moe_hdf5_get_text(ctx, file, path, "order", &h->order));
  MOE_TRY(moe_hdf5_get_text(ctx, file, path, "dtype", &h->dtype));
  MOE_TRY(moe_hdf5_get_text(ctx, file, path, "model", &h->model));
  MOE_TRY(moe_hdf5_get_text(ctx, file, path, "writer", &h->writer));
  if (H5Aexists(file, "meta_json") > 0)
    MOE_TRY(moe_hdf5_get_text(ctx, file, path, "meta_json", &h->meta));
  return MOE_OK;
}

static moe_status read_files(struct read_index *r, hid_t file) {
  struct moe_catalog *c = r->catalog;
  struct moe_box extent = {.dims = 0};
  hid_t set = H5Dopen2(file, "/file_bytes", H5P_DEFAULT);
  if (set < 0) return moe_hdf5_fail(c->ctx, MOE_FORMAT, "%s: /file_bytes", r->path);
  moe_status status = MOE_OK;
  uint64_t *bytes = NULL;
  if (!moe_hdf5_extent(set, &extent) || extent.dims != 1 || extent.count[0] < 1 ||
      extent.count[0] > 99999)
    status = moe_fail(c->ctx, MOE_FORMAT, "%s: /file_bytes has another shape", r->path);
  if (status == MOE_OK) status = moe_catalog_set_files(c, (int32_t)extent.count[0]);
  if (status == MOE_OK) {
    bytes = moe_alloc_array(c->ctx, (size_t)c->files, sizeof *bytes);
    if (bytes == NULL) status = MOE_MEMORY;
  }
  if (status == MOE_OK && H5Dread(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) < 0)
    status = moe_hdf5_fail(c->ctx, MOE_FORMAT, "%s: /file_bytes", r->path);
  for (int32_t i = 0; status == MOE_OK && i < c->files; i++) c->file[i].bytes = bytes[i];
  moe_release(c->ctx, bytes);
  H5Dclose(set);
  return status;
}

/* The number of the data file with this name; -1 when the checkpoint has none. */
static int32_t file_number(const struct moe_catalog *c, const char *name) {
  int number;
  if (sscanf(name, "rank-%d.h5", &number) != 1 || number < 0 || number >= c->files) return -1;
  return strcmp(c->file[number].name, name) == 0 ? number : -1;
}

/* The selection of a mapping as a box; false when it is not one. */
static bool selected_box(hid_t space, struct moe_box *out) {
  hsize_t begin[MOE_SLOT_DIMS], end[MOE_SLOT_DIMS];
  int dims = H5Sget_simple_extent_ndims(space);
  if (dims < 1 || dims > MOE_SLOT_DIMS || H5Sget_select_bounds(space, begin, end) < 0) return false;
  *out = (struct moe_box){.dims = dims};
  hssize_t elements = 1;
  for (int d = 0; d < dims; d++) {
    if (end[d] >= INT64_MAX / 8) return false;
    out->start[d] = (int64_t)begin[d];
    out->count[d] = (int64_t)(end[d] - begin[d] + 1);
    if (__builtin_mul_overflow(elements, out->count[d], &elements)) return false;
  }
  return H5Sget_select_npoints(space) == elements;
}

static moe_status read_mapping(struct read_index *r, hid_t list, size_t i, struct moe_slice *out) {
  char file[MOE_FILE_NAME];
  ssize_t file_length = H5Pget_virtual_filename(list, i, file, sizeof file);
  ssize_t set_length = H5Pget_virtual_dsetname(list, i, out->set, sizeof out->set);
  hid_t space = H5Pget_virtual_vspace(list, i);
  bool fits = file_length > 0 && file_length < (ssize_t)sizeof file && set_length > 0 &&
              set_length < (ssize_t)sizeof out->set && space >= 0 && selected_box(space, &out->box);
  if (space >= 0) H5Sclose(space);
  out->file = fits ? file_number(r->catalog, file) : -1;
  if (out->file >= 0) return MOE_OK;
  return moe_fail(r->catalog->ctx, MOE_FORMAT, "mapping %zu does not lead to a data file", i);
}

static moe_status read_mappings(struct read_index *r, hid_t set, struct moe_stored *t) {
  moe_ctx *ctx = r->catalog->ctx;
  size_t n = 0;
  hid_t list = H5Dget_create_plist(set);
  if (list < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s", t->name);
  moe_status status = MOE_OK;
  if (H5Pget_layout(list) != H5D_VIRTUAL || H5Pget_virtual_count(list, &n) < 0 || n < 1 ||
      n > INT32_MAX)
    status = moe_fail(ctx, MOE_FORMAT, "%s: is not a virtual dataset", t->name);
  uint64_t *digest = status == MOE_OK ? moe_alloc_array(ctx, n, 2 * sizeof *digest) : NULL;
  if (status == MOE_OK && digest == NULL) status = MOE_MEMORY;
  if (status == MOE_OK)
    status = moe_hdf5_get_u64(ctx, set, t->name, "slice_digest", (int32_t)n, digest);
  if (status == MOE_OK)
    status = moe_hdf5_get_u64(ctx, set, t->name, "slice_offset", (int32_t)n, digest + n);
  for (size_t i = 0; status == MOE_OK && i < n; i++) {
    struct moe_slice slice = {.digest = digest[i], .offset = digest[n + i]};
    status = read_mapping(r, list, i, &slice);
    if (status == MOE_OK) status = moe_catalog_add_slice(r->catalog, t, &slice);
  }
  moe_release(ctx, digest);
  H5Pclose(list);
  return status;
}

static moe_status read_tensor(void *arg, hid_t group, const char *name) {
  struct read_index *r = arg;
  struct moe_catalog *c = r->catalog;
  struct moe_stored *t;
  struct moe_box extent;
  hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
  if (set < 0)
    return moe_hdf5_fail(c->ctx, MOE_FORMAT, "%s: %s/%s", r->path, moe_store_name(r->store), name);
  moe_status status = MOE_OK;
  if (strlen(name) >= MOE_SLOT_NAME || !moe_hdf5_extent(set, &extent) || !moe_hdf5_is_f32(set))
    status = moe_fail(c->ctx, MOE_FORMAT, "%s: %s/%s is not an fp32 tensor of 1 to 4 dims", r->path,
                      moe_store_name(r->store), name);
  if (status == MOE_OK) status = moe_catalog_add(c, r->store, name, extent.dims, extent.count, &t);
  if (status == MOE_OK) status = moe_hdf5_get_u64(c->ctx, set, t->name, "digest", -1, &t->digest);
  if (status == MOE_OK) status = read_mappings(r, set, t);
  H5Dclose(set);
  return status;
}

static moe_status read_all(struct read_index *r, hid_t file) {
  struct moe_catalog *c = r->catalog;
  MOE_TRY(read_header(c->ctx, file, r->path, &c->header));
  MOE_TRY(read_files(r, file));
  for (int s = 0; s < MOE_STORES; s++) {
    r->store = (enum moe_store)s;
    MOE_TRY(moe_hdf5_each(c->ctx, file, r->path, moe_store_name(r->store), read_tensor, r));
  }
  moe_catalog_sort(c);
  return MOE_OK;
}

moe_status moe_format_read_index(const char *folder, struct moe_catalog *catalog) {
  struct moe_hdf5_quiet quiet;
  moe_ctx *ctx = catalog->ctx;
  char *path = moe_path_join(ctx, folder, MOE_INDEX_FILE);
  if (path == NULL) return MOE_MEMORY;
  moe_status status = moe_seal_check(ctx, path);
  if (status != MOE_OK) {
    moe_release(ctx, path);
    return status;
  }
  moe_hdf5_quiet_begin(&quiet);
  struct read_index r = {.catalog = catalog, .path = path};
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  status =
      file < 0 ? moe_hdf5_fail(ctx, MOE_FORMAT, "%s: cannot be opened", path) : read_all(&r, file);
  if (file >= 0) H5Fclose(file);
  moe_hdf5_quiet_end(&quiet);
  moe_release(ctx, path);
  return status;
}
