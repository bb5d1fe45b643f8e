/* Writing the index: the header as attributes, the data files, and a virtual dataset per tensor. */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/hdf5_util.h"
#include "checkpoints/seal.h"

static herr_t put_header(hid_t file, const struct moe_header *h) {
  const struct {
    const char *name, *text;
  } text[] = {{"format", "moelua checkpoint"},
              {"writer", h->writer},
              {"order", h->order},
              {"dtype", h->dtype},
              {"model", h->model},
              {"meta_json", h->meta}};
  const struct {
    const char *name;
    int64_t value;
  } number[] = {{"format_version", MOE_CHECKPOINT_FORMAT},
                {"step", h->step},
                {"cursor", h->cursor},
                {"tp", h->tp},
                {"cp", h->cp},
                {"dp", h->dp},
                {"pp", h->pp},
                {"etp", h->etp},
                {"ep", h->ep},
                {"edp", h->edp},
                {"chunks", h->chunks}};
  for (size_t i = 0; i < MOE_COUNTOF(text); i++)
    if (text[i].text && moe_hdf5_put_text(file, text[i].name, text[i].text) < 0) return -1;
  for (size_t i = 0; i < MOE_COUNTOF(number); i++)
    if (moe_hdf5_put_i64(file, number[i].name, -1, &number[i].value) < 0) return -1;
  return moe_hdf5_put_u64(file, "seed", -1, &h->seed);
}

/* A one-dimensional dataset /path of n values. */
static herr_t put_list(hid_t file, const char *path, hid_t type, int32_t n, const void *values) {
  hsize_t count = (hsize_t)n;
  hid_t space = H5Screate_simple(1, &count, NULL), list = H5Pcreate(H5P_DATASET_CREATE), set = -1;
  herr_t done = -1;
  if (space >= 0 && list >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
    set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
  if (set >= 0) done = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  if (set >= 0 && H5Dclose(set) < 0) done = -1;
  if (list >= 0) H5Pclose(list);
  if (space >= 0) H5Sclose(space);
  return done;
}

/* /files: sizes, in the order of ranks; names follow from it. */
static moe_status put_files(hid_t file, const struct moe_catalog *c, herr_t *done) {
  uint64_t *bytes = moe_alloc_array(c->ctx, (size_t)c->files, sizeof *bytes);
  if (bytes == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < c->files; i++) bytes[i] = c->file[i].bytes;
  *done = put_list(file, "/file_bytes", H5T_STD_U64LE, c->files, bytes);
  moe_release(c->ctx, bytes);
  return MOE_OK;
}

static herr_t map_slice(hid_t list, hid_t whole, const struct moe_slice *s, const char *file) {
  hsize_t start[MOE_SLOT_DIMS], count[MOE_SLOT_DIMS];
  for (int32_t d = 0; d < s->box.dims; d++)
    start[d] = (hsize_t)s->box.start[d], count[d] = (hsize_t)s->box.count[d];
  hid_t source = H5Screate_simple(s->box.dims, count, NULL);
  herr_t done = -1;
  if (source >= 0 && H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
    done = H5Pset_virtual(list, whole, file, s->set, source);
  if (source >= 0) H5Sclose(source);
  return done;
}

/* Elements whose file is missing read as NaN. */
static hid_t virtual_list(const struct moe_catalog *c, const struct moe_stored *t, hid_t whole) {
  const float missing = NAN;
  hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  if (list < 0 || H5Pset_obj_track_times(list, 0) < 0 ||
      H5Pset_fill_value(list, H5T_NATIVE_FLOAT, &missing) < 0)
    return -1;
  for (int32_t i = 0; i < t->slices; i++)
    if (map_slice(list, whole, &t->slice[i], c->file[t->slice[i].file].name) < 0) return -1;
  return list;
}

/* What a load needs of each slice, in the order of the mappings. */
static moe_status put_slices(hid_t set, const struct moe_catalog *c, const struct moe_stored *t,
                             herr_t *done) {
  uint64_t *value = moe_alloc_array(c->ctx, (size_t)t->slices, sizeof *value);
  if (value == NULL) return MOE_MEMORY;
  *done = moe_hdf5_put_u64(set, "digest", -1, &t->digest);
  for (int32_t i = 0; i < t->slices; i++) value[i] = t->slice[i].digest;
  if (*done >= 0) *done = moe_hdf5_put_u64(set, "slice_digest", t->slices, value);
  for (int32_t i = 0; i < t->slices; i++) value[i] = t->slice[i].offset;
  if (*done >= 0) *done = moe_hdf5_put_u64(set, "slice_offset", t->slices, value);
  moe_release(c->ctx, value);
  return MOE_OK;
}

static moe_status put_tensor(struct moe_hdf5_out *out, const struct moe_catalog *c,
                             const struct moe_stored *t) {
  hsize_t dim[MOE_SLOT_DIMS];
  char path[MOE_SET_NAME];
  herr_t done = -1;
  moe_status status = MOE_OK;
  for (int32_t d = 0; d < t->dims; d++) dim[d] = (hsize_t)t->dim[d];
  snprintf(path, sizeof path, "/%s/%s", moe_store_name(t->store), t->name);
  hid_t whole = H5Screate_simple(t->dims, dim, NULL), set = -1;
  hid_t list = whole < 0 ? -1 : virtual_list(c, t, whole);
  if (list >= 0 && H5Sselect_all(whole) >= 0)
    set = H5Dcreate2(out->file, path, H5T_IEEE_F32LE, whole, H5P_DEFAULT, list, H5P_DEFAULT);
  if (set >= 0) status = put_slices(set, c, t, &done);
  if (set >= 0 && H5Dclose(set) < 0) done = -1;
  if (list >= 0) H5Pclose(list);
  if (whole >= 0) H5Sclose(whole);
  if (status == MOE_OK && (done < 0 || out->failed)) status = moe_hdf5_out_fail(out, path);
  return status;
}

static moe_status put_all(struct moe_hdf5_out *out, const struct moe_catalog *c) {
  herr_t done = put_header(out->file, &c->header);
  if (done >= 0) MOE_TRY(put_files(out->file, c, &done));
  for (int s = 0; done >= 0 && s < MOE_STORES; s++)
    done = moe_hdf5_put_group(out->file, moe_store_name((enum moe_store)s));
  if (done < 0) return moe_hdf5_out_fail(out, "header");
  for (int64_t i = 0; i < c->tensors; i++) MOE_TRY(put_tensor(out, c, &c->tensor[i]));
  return MOE_OK;
}

moe_status moe_format_write_index(const char *folder, const struct moe_catalog *catalog) {
  struct moe_hdf5_quiet quiet;
  struct moe_hdf5_out out;
  char *path = moe_path_join(catalog->ctx, folder, MOE_INDEX_FILE);
  if (path == NULL) return MOE_MEMORY;
  moe_hdf5_quiet_begin(&quiet);
  moe_status status = moe_hdf5_out_create(catalog->ctx, path, &out);
  if (status == MOE_OK) status = moe_hdf5_out_close(&out, put_all(&out, catalog));
  moe_hdf5_quiet_end(&quiet);
  if (status == MOE_OK) status = moe_seal_write(catalog->ctx, path);
  moe_release(catalog->ctx, path);
  return status;
}
