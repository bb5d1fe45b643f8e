#include "checkpoints/hdf5_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

void moe_hdf5_quiet_begin(struct moe_hdf5_quiet *quiet) {
  *quiet = (struct moe_hdf5_quiet){0};
  H5Eget_auto2(H5E_DEFAULT, &quiet->print, &quiet->data);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void moe_hdf5_quiet_end(const struct moe_hdf5_quiet *quiet) {
  H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->data);
}

static herr_t take_reason(unsigned n, const H5E_error2_t *error, void *arg) {
  (void)n;
  snprintf(arg, 512, "%s", error->desc ? error->desc : "no reason given");
  return 1; /* the first is the innermost */
}

moe_status moe_hdf5_fail(moe_ctx *ctx, moe_status status, const char *fmt, ...) {
  char text[1024], reason[512] = "no reason given";
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, reason);
  H5Eclear2(H5E_DEFAULT);
  return moe_fail(ctx, status, "%s: %s", text, reason);
}

moe_status moe_hdf5_out_create(moe_ctx *ctx, const char *path, struct moe_hdf5_out *out) {
  *out = (struct moe_hdf5_out){.ctx = ctx, .path = path, .file = -1, .driver = -1};
  out->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out->fd < 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be made", path);
  hid_t access = moe_hdf5_driver(out), creation = H5Pcreate(H5P_FILE_CREATE);
  /* the newest format has checksums over all metadata */
  if (access >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
      H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0)
    out->file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
  if (creation >= 0) H5Pclose(creation);
  if (access >= 0) H5Pclose(access);
  if (out->file >= 0) return MOE_OK;
  moe_status status = moe_hdf5_out_fail(out, "cannot be made");
  if (out->driver >= 0) H5FDunregister(out->driver);
  close(out->fd);
  return status;
}

moe_status moe_hdf5_out_fail(struct moe_hdf5_out *out, const char *what) {
  if (out->failed == 0) return moe_hdf5_fail(out->ctx, MOE_IO, "%s: %s", out->path, what);
  H5Eclear2(H5E_DEFAULT);
  return moe_fail_errno(out->ctx, MOE_IO, out->failed, "%s: cannot be written", out->path);
}

moe_status moe_hdf5_out_close(struct moe_hdf5_out *out, moe_status status) {
  herr_t closed = H5Fclose(out->file);
  H5FDunregister(out->driver);
  if (status == MOE_OK && (closed < 0 || out->failed))
    status = moe_hdf5_out_fail(out, "cannot be closed");
  if (status == MOE_OK && fsync(out->fd) != 0)
    status = moe_fail_errno(out->ctx, MOE_IO, errno, "%s: cannot be synced to the disk", out->path);
  if (close(out->fd) != 0 && status == MOE_OK)
    status = moe_fail_errno(out->ctx, MOE_IO, errno, "%s: cannot be closed", out->path);
  return status;
}

herr_t moe_hdf5_put_group(hid_t file, const char *name) {
  hid_t list = H5Pcreate(H5P_GROUP_CREATE), group = -1;
  if (list >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
    group = H5Gcreate2(file, name, H5P_DEFAULT, list, H5P_DEFAULT);
  if (list >= 0) H5Pclose(list);
  return group < 0 ? -1 : H5Gclose(group);
}

/* n < 0: a scalar. */
static herr_t put(hid_t at, const char *name, hid_t type, int32_t n, const void *values) {
  hsize_t count = (hsize_t)n;
  hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, NULL);
  hid_t attribute = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  herr_t done = attribute < 0 ? -1 : H5Awrite(attribute, type, values);
  if (attribute >= 0) H5Aclose(attribute);
  if (space >= 0) H5Sclose(space);
  return done;
}

herr_t moe_hdf5_put_i64(hid_t at, const char *name, int32_t n, const int64_t *values) {
  return put(at, name, H5T_STD_I64LE, n, values);
}

herr_t moe_hdf5_put_u64(hid_t at, const char *name, int32_t n, const uint64_t *values) {
  return put(at, name, H5T_STD_U64LE, n, values);
}

/* A UTF-8 string of any length, as h5py writes str. */
static hid_t text_type(void) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
    H5Tclose(type);
    return -1;
  }
  return type;
}

herr_t moe_hdf5_put_text(hid_t at, const char *name, const char *text) {
  hid_t type = text_type();
  if (type < 0) return -1;
  herr_t done = put(at, name, type, -1, &text);
  H5Tclose(type);
  return done;
}

static moe_status get(moe_ctx *ctx, hid_t at, const char *what, const char *name, hid_t type,
                      H5T_class_t class, int64_t n, void *values) {
  hid_t attribute = H5Aopen(at, name, H5P_DEFAULT);
  if (attribute < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s: has no attribute %s", what, name);
  hid_t stored = H5Aget_type(attribute), space = H5Aget_space(attribute);
  bool fits = stored >= 0 && H5Tget_class(stored) == class &&
              (class != H5T_STRING || H5Tis_variable_str(stored) > 0) &&
              H5Sget_simple_extent_npoints(space) == n;
  herr_t done = fits ? H5Aread(attribute, type, values) : -1;
  if (space >= 0) H5Sclose(space);
  if (stored >= 0) H5Tclose(stored);
  H5Aclose(attribute);
  if (!fits)
    return moe_fail(ctx, MOE_FORMAT, "%s: attribute %s has another type or length", what, name);
  if (done < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s: attribute %s", what, name);
  return MOE_OK;
}

moe_status moe_hdf5_get_i64(moe_ctx *ctx, hid_t at, const char *what, const char *name, int32_t n,
                            int64_t *values) {
  return get(ctx, at, what, name, H5T_NATIVE_INT64, H5T_INTEGER, n < 0 ? 1 : n, values);
}

moe_status moe_hdf5_get_u64(moe_ctx *ctx, hid_t at, const char *what, const char *name, int32_t n,
                            uint64_t *values) {
  return get(ctx, at, what, name, H5T_NATIVE_UINT64, H5T_INTEGER, n < 0 ? 1 : n, values);
}

moe_status moe_hdf5_get_text(moe_ctx *ctx, hid_t at, const char *what, const char *name,
                             char **text) {
  char *read = NULL;
  hid_t type = text_type();
  *text = NULL;
  if (type < 0) return moe_hdf5_fail(ctx, MOE_INTERNAL, "%s: attribute %s", what, name);
  moe_status status = get(ctx, at, what, name, type, H5T_STRING, 1, &read);
  H5Tclose(type);
  if (status != MOE_OK) return status;
  *text = moe_strdup(ctx, read ? read : "");
  H5free_memory(read);
  return *text ? MOE_OK : MOE_MEMORY;
}

bool moe_hdf5_extent(hid_t set, struct moe_box *out) {
  hsize_t dim[MOE_SLOT_DIMS];
  int64_t elements = 1;
  hid_t space = H5Dget_space(set);
  if (space < 0) return false;
  int dims = H5Sget_simple_extent_ndims(space);
  bool fits =
      dims >= 1 && dims <= MOE_SLOT_DIMS && H5Sget_simple_extent_dims(space, dim, NULL) == dims;
  H5Sclose(space);
  *out = (struct moe_box){.dims = dims};
  for (int d = 0; fits && d < dims; d++) {
    out->count[d] = (int64_t)dim[d];
    fits = dim[d] <= INT64_MAX / 8 && !__builtin_mul_overflow(elements, out->count[d], &elements) &&
           elements <= INT64_MAX / 8;
  }
  return fits;
}

bool moe_hdf5_is_f32(hid_t set) {
  hid_t type = H5Dget_type(set);
  bool is = type >= 0 && H5Tequal(type, H5T_IEEE_F32LE) > 0;
  if (type >= 0) H5Tclose(type);
  return is;
}

struct each {
  moe_hdf5_link_fn fn;
  void *arg;
  moe_status status;
};

static herr_t each_link(hid_t group, const char *name, const H5L_info_t *info, void *arg) {
  struct each *each = arg;
  (void)info;
  each->status = each->fn(each->arg, group, name);
  return each->status == MOE_OK ? 0 : 1;
}

moe_status moe_hdf5_each(moe_ctx *ctx, hid_t file, const char *what, const char *path,
                         moe_hdf5_link_fn fn, void *arg) {
  struct each each = {.fn = fn, .arg = arg};
  hid_t group = H5Gopen2(file, path, H5P_DEFAULT);
  if (group < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s: no group %s", what, path);
  herr_t done = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, each_link, &each);
  H5Gclose(group);
  if (done < 0) return moe_hdf5_fail(ctx, MOE_FORMAT, "%s: group %s", what, path);
  return each.status;
}
