/* Writing a data file: one contiguous dataset per box, each with its place in the tensor. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoints/digest.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/hdf5_util.h"

struct moe_writer {
  moe_ctx *ctx;
  char *path;
  struct moe_hdf5_out out;
  struct moe_hdf5_quiet quiet;
  hid_t creation; /* of datasets */
  float *values;  /* MOE_PIECE of them */
};

static herr_t put_head(hid_t file, int32_t rank, int32_t world, int64_t step) {
  const int64_t version = MOE_CHECKPOINT_FORMAT, r = rank, w = world;
  if (moe_hdf5_put_text(file, "format", "moelua checkpoint data") < 0 ||
      moe_hdf5_put_i64(file, "format_version", -1, &version) < 0 ||
      moe_hdf5_put_i64(file, "rank", -1, &r) < 0 || moe_hdf5_put_i64(file, "world", -1, &w) < 0 ||
      moe_hdf5_put_i64(file, "step", -1, &step) < 0)
    return -1;
  for (int s = 0; s < MOE_STORES; s++)
    if (moe_hdf5_put_group(file, moe_store_name((enum moe_store)s)) < 0) return -1;
  return 0;
}

/* Contiguous, space taken at once, no fill values and no times. */
static hid_t dataset_creation(void) {
  hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  if (list < 0 || H5Pset_layout(list, H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(list, 0) < 0)
    return -1;
  return list;
}

static void release(struct moe_writer *w) {
  moe_hdf5_quiet_end(&w->quiet);
  moe_release(w->ctx, w->values);
  moe_release(w->ctx, w->path);
  moe_release(w->ctx, w);
}

moe_status moe_writer_create(moe_ctx *ctx, const char *folder, int32_t rank, int32_t world,
                             int64_t step, struct moe_writer **out) {
  char name[MOE_FILE_NAME];
  *out = NULL;
  struct moe_writer *w = moe_alloc(ctx, sizeof *w);
  if (w == NULL) return MOE_MEMORY;
  w->ctx = ctx;
  moe_hdf5_quiet_begin(&w->quiet);
  moe_catalog_file_name(rank, name);
  w->path = moe_path_join(ctx, folder, name);
  w->values = moe_alloc_array(ctx, MOE_PIECE, sizeof *w->values);
  moe_status status = w->path && w->values ? MOE_OK : MOE_MEMORY;
  if (status == MOE_OK) status = moe_hdf5_out_create(ctx, w->path, &w->out);
  if (status != MOE_OK) {
    release(w);
    return status;
  }
  w->creation = dataset_creation();
  if (w->creation < 0 || put_head(w->out.file, rank, world, step) < 0)
    return moe_writer_destroy(w, moe_hdf5_out_fail(&w->out, "cannot be begun"));
  *out = w;
  return MOE_OK;
}

/* An empty dataset NAME@K for the box, K the first number that is free. */
static hid_t create_set(struct moe_writer *w, enum moe_store store, const char *name,
                        const int64_t *dim, const struct moe_box *box) {
  char path[MOE_SET_NAME];
  hsize_t count[MOE_SLOT_DIMS];
  for (int32_t d = 0; d < box->dims; d++) count[d] = (hsize_t)box->count[d];
  for (int k = 0;; k++) {
    snprintf(path, sizeof path, "/%s/%s@%d", moe_store_name(store), name, k);
    htri_t taken = H5Lexists(w->out.file, path, H5P_DEFAULT);
    if (taken < 0) return -1;
    if (!taken) break;
  }
  hid_t space = H5Screate_simple(box->dims, count, NULL);
  hid_t set = space < 0 ? -1
                        : H5Dcreate2(w->out.file, path, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                     w->creation, H5P_DEFAULT);
  if (space >= 0) H5Sclose(space);
  if (set >= 0 && (moe_hdf5_put_i64(set, "shape", box->dims, dim) < 0 ||
                   moe_hdf5_put_i64(set, "start", box->dims, box->start) < 0)) {
    H5Dclose(set);
    return -1;
  }
  return set;
}

/* Writes the piece that w->values holds. */
static herr_t write_piece(struct moe_writer *w, hid_t set, const struct moe_box *box,
                          const struct moe_box *piece) {
  hsize_t start[MOE_SLOT_DIMS], count[MOE_SLOT_DIMS];
  for (int32_t d = 0; d < box->dims; d++)
    start[d] = (hsize_t)(piece->start[d] - box->start[d]), count[d] = (hsize_t)piece->count[d];
  hid_t file = H5Dget_space(set), memory = H5Screate_simple(box->dims, count, NULL);
  herr_t done = -1;
  if (file >= 0 && memory >= 0 &&
      H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
    done = H5Dwrite(set, H5T_NATIVE_FLOAT, memory, file, H5P_DEFAULT, w->values);
  if (memory >= 0) H5Sclose(memory);
  if (file >= 0) H5Sclose(file);
  return done;
}

moe_status moe_writer_put(struct moe_writer *w, enum moe_store store, const char *name,
                          const int64_t *dim, const struct moe_box *box, moe_fetch_fn fetch,
                          void *arg) {
  struct moe_box_walk walk;
  uint64_t digest = 0;
  if (moe_box_elements(box) == 0) return MOE_OK;
  if (name[0] == 0 || strchr(name, '/') || strchr(name, '@'))
    return moe_fail(w->ctx, MOE_INVALID, "tensor \"%s\": a stored name has no / and no @", name);
  hid_t set = create_set(w, store, name, dim, box);
  if (set < 0) return moe_hdf5_out_fail(&w->out, name);
  moe_status status = MOE_OK;
  moe_box_walk_init(&walk, box, MOE_PIECE);
  while (status == MOE_OK && moe_box_walk_next(&walk)) {
    status = fetch(arg, walk.offset, moe_box_elements(&walk.piece), w->values);
    if (status != MOE_OK) break;
    digest += moe_digest_box(dim, &walk.piece, w->values);
    if (write_piece(w, set, box, &walk.piece) < 0 || w->out.failed)
      status = moe_hdf5_out_fail(&w->out, name);
  }
  if (status == MOE_OK && moe_hdf5_put_u64(set, "digest", -1, &digest) < 0)
    status = moe_hdf5_out_fail(&w->out, name);
  if (H5Dclose(set) < 0 && status == MOE_OK) status = moe_hdf5_out_fail(&w->out, name);
  return status;
}

moe_status moe_writer_destroy(struct moe_writer *w, moe_status status) {
  if (w->creation >= 0) H5Pclose(w->creation);
  status = moe_hdf5_out_close(&w->out, status);
  release(w);
  return status;
}
