/* HDF5 spoken the library's way: errors go to the context, nothing is printed, a failing disk is
 * reported with its errno. Only files named hdf5_* include this. */
#ifndef MOE_CHECKPOINTS_HDF5_UTIL_H
#define MOE_CHECKPOINTS_HDF5_UTIL_H

#include <hdf5.h>

#include "checkpoints/catalog.h"

/* HDF5 prints its error stack unless told not to, per thread. begin and end bracket every entry
 * into it; the host's setting is put back. */
struct moe_hdf5_quiet {
  H5E_auto2_t print;
  void *data;
};
void moe_hdf5_quiet_begin(struct moe_hdf5_quiet *quiet);
void moe_hdf5_quiet_end(const struct moe_hdf5_quiet *quiet);

/* moe_fail with ": " and HDF5's innermost reason appended; clears HDF5's error stack. */
moe_status moe_hdf5_fail(moe_ctx *ctx, moe_status status, const char *fmt, ...) MOE_PRINTF(3, 4);

/* A file being written. `failed` is the errno of the first write that failed: HDF5 itself never
 * sees it (it cannot close a file whose disk is full without leaking it). */
struct moe_hdf5_out {
  moe_ctx *ctx;
  const char *path; /* borrowed */
  int fd, failed;
  hid_t file;
  hid_t driver; /* must outlive the file: HDF5 looks at it after dropping the file's reference */
};
moe_status moe_hdf5_out_create(moe_ctx *ctx, const char *path, struct moe_hdf5_out *out);
/* The error of a call that failed while writing: the disk's, if there was one, else HDF5's. */
moe_status moe_hdf5_out_fail(struct moe_hdf5_out *out, const char *what);
/* Closes and syncs; returns status, or what went wrong since. */
moe_status moe_hdf5_out_close(struct moe_hdf5_out *out, moe_status status);

/* Registers the driver behind moe_hdf5_out. Returns a property list that selects it, negative when
 * HDF5 fails. */
hid_t moe_hdf5_driver(struct moe_hdf5_out *out);

/* Makes a group; negative when HDF5 fails. */
herr_t moe_hdf5_put_group(hid_t file, const char *name);

/* Attributes. put: negative when HDF5 fails. */
herr_t moe_hdf5_put_i64(hid_t at, const char *name, int32_t n, const int64_t *values);
herr_t moe_hdf5_put_u64(hid_t at, const char *name, int32_t n, const uint64_t *values);
herr_t moe_hdf5_put_text(hid_t at, const char *name, const char *text);
/* get: exactly n values. Errors name `what`. */
moe_status moe_hdf5_get_i64(moe_ctx *ctx, hid_t at, const char *what, const char *name, int32_t n,
                            int64_t *values);
moe_status moe_hdf5_get_u64(moe_ctx *ctx, hid_t at, const char *what, const char *name, int32_t n,
                            uint64_t *values);
/* *text is to be released. */
moe_status moe_hdf5_get_text(moe_ctx *ctx, hid_t at, const char *what, const char *name,
                             char **text);

/* Extent of a dataset as a box at 0. false: not 1 to 4 dims, or too many elements. */
bool moe_hdf5_extent(hid_t set, struct moe_box *out);
/* The dataset's values are fp32, little-endian. */
bool moe_hdf5_is_f32(hid_t set);
/* Calls fn for every link of the group at path, which must exist. */
typedef moe_status (*moe_hdf5_link_fn)(void *arg, hid_t group, const char *name);
moe_status moe_hdf5_each(moe_ctx *ctx, hid_t file, const char *what, const char *path,
                         moe_hdf5_link_fn fn, void *arg);

#endif
