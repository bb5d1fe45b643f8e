/* What the data files of a folder hold, by their own word. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/hdf5_util.h"

struct collect {
  struct moe_catalog *catalog;
  const char *path; /* of the data file */
  int32_t file;
  enum moe_store store;
};

static moe_status collect_set(struct collect *c, hid_t set, const char *link) {
  struct moe_slice slice = {.file = c->file};
  int64_t dim[MOE_SLOT_DIMS];
  char name[MOE_SLOT_NAME];
  struct moe_stored *tensor;
  moe_ctx *ctx = c->catalog->ctx;
  size_t n = strcspn(link, "@");
  if (link[n] != '@' || n >= sizeof name || strlen(link) >= MOE_SLOT_NAME + 12 ||
      !moe_hdf5_extent(set, &slice.box))
    return moe_fail(ctx, MOE_FORMAT, "%s: %s is not a slice of a tensor", c->path, link);
  memcpy(name, link, n);
  name[n] = 0;
  snprintf(slice.set, sizeof slice.set, "/%s/%s", moe_store_name(c->store), link);
  haddr_t offset = H5Dget_offset(set);
  if (offset == HADDR_UNDEF)
    return moe_fail(ctx, MOE_FORMAT, "%s: %s is not contiguous", c->path, link);
  slice.offset = offset;
  MOE_TRY(moe_hdf5_get_i64(ctx, set, c->path, "shape", slice.box.dims, dim));
  MOE_TRY(moe_hdf5_get_i64(ctx, set, c->path, "start", slice.box.dims, slice.box.start));
  MOE_TRY(moe_hdf5_get_u64(ctx, set, c->path, "digest", -1, &slice.digest));
  MOE_TRY(moe_catalog_add(c->catalog, c->store, name, slice.box.dims, dim, &tensor));
  return moe_catalog_add_slice(c->catalog, tensor, &slice);
}

static moe_status collect_link(void *arg, hid_t group, const char *link) {
  struct collect *c = arg;
  hid_t set = H5Dopen2(group, link, H5P_DEFAULT);
  if (set < 0) return moe_hdf5_fail(c->catalog->ctx, MOE_FORMAT, "%s: %s", c->path, link);
  moe_status status = collect_set(c, set, link);
  H5Dclose(set);
  return status;
}

/* The file is of this save. */
static moe_status check_head(moe_ctx *ctx, hid_t file, const char *path, int32_t rank,
                             int32_t world, int64_t step) {
  int64_t version, found[3];
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "format_version", -1, &version));
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "rank", -1, &found[0]));
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "world", -1, &found[1]));
  MOE_TRY(moe_hdf5_get_i64(ctx, file, path, "step", -1, &found[2]));
  if (version == MOE_CHECKPOINT_FORMAT && found[0] == rank && found[1] == world && found[2] == step)
    return MOE_OK;
  return moe_fail(ctx, MOE_FORMAT,
                  "%s: version %lld, rank %lld of %lld at step %lld is not what "
                  "this save wrote",
                  path, (long long)version, (long long)found[0], (long long)found[1],
                  (long long)found[2]);
}

static moe_status collect_file(struct collect *c, int32_t world, int64_t step) {
  moe_ctx *ctx = c->catalog->ctx;
  struct stat info;
  if (stat(c->path, &info) != 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s", c->path);
  c->catalog->file[c->file].bytes = (uint64_t)info.st_size;
  hid_t file = H5Fopen(c->path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s: cannot be opened", c->path);
  moe_status status = check_head(ctx, file, c->path, c->file, world, step);
  for (int s = 0; status == MOE_OK && s < MOE_STORES; s++) {
    c->store = (enum moe_store)s;
    status = moe_hdf5_each(ctx, file, c->path, moe_store_name(c->store), collect_link, c);
  }
  H5Fclose(file);
  return status;
}

moe_status moe_format_collect(const char *folder, int32_t world, int64_t step,
                              struct moe_catalog *catalog) {
  struct moe_hdf5_quiet quiet;
  moe_status status = moe_catalog_set_files(catalog, world);
  if (status != MOE_OK) return status;
  moe_hdf5_quiet_begin(&quiet);
  for (int32_t i = 0; status == MOE_OK && i < world; i++) {
    char *path = moe_path_join(catalog->ctx, folder, catalog->file[i].name);
    struct collect c = {.catalog = catalog, .path = path, .file = i};
    status = path ? collect_file(&c, world, step) : MOE_MEMORY;
    moe_release(catalog->ctx, path);
  }
  moe_hdf5_quiet_end(&quiet);
  if (status != MOE_OK) return status;
  return moe_catalog_merge(catalog, folder);
}
