/* The file driver behind moe_hdf5_out: plain reads and writes on its descriptor. A failing write is
 * kept in moe_hdf5_out.failed and reported to HDF5 as done, so that HDF5 always reaches a clean
 * close; from then on nothing more is written. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "checkpoints/hdf5_util.h"

struct driver_file {
  H5FD_t pub; /* HDF5's part; must be first */
  struct moe_hdf5_out *out;
  haddr_t eoa, eof;
};

/* Property lists carry the address of the moe_hdf5_out. */
static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t maxaddr) {
  (void)name, (void)flags, (void)maxaddr;
  struct moe_hdf5_out *const *out = H5Pget_driver_info(access);
  struct driver_file *file = out ? moe_alloc((*out)->ctx, sizeof *file) : NULL;
  if (file == NULL) return NULL;
  file->out = *out;
  return &file->pub;
}

static herr_t driver_close(H5FD_t *pub) {
  moe_release(((struct driver_file *)pub)->out->ctx, pub);
  return 0;
}

static herr_t driver_query(const H5FD_t *pub, unsigned long *flags) {
  (void)pub;
  *flags =
      H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *pub, H5FD_mem_t type) {
  (void)type;
  return ((const struct driver_file *)pub)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *pub, H5FD_mem_t type, haddr_t eoa) {
  (void)type;
  ((struct driver_file *)pub)->eoa = eoa;
  return 0;
}

static haddr_t driver_get_eof(const H5FD_t *pub, H5FD_mem_t type) {
  (void)type;
  return ((const struct driver_file *)pub)->eof;
}

static herr_t driver_read(H5FD_t *pub, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n,
                          void *buffer) {
  struct driver_file *file = (struct driver_file *)pub;
  char *bytes = buffer;
  (void)type, (void)transfer;
  while (n > 0) {
    ssize_t done = pread(file->out->fd, bytes, n, (off_t)at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return -1;
    if (done == 0) break;
    bytes += done, at += (haddr_t)done, n -= (size_t)done;
  }
  memset(bytes, 0, n); /* past the end */
  return 0;
}

static herr_t driver_write(H5FD_t *pub, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n,
                           const void *buffer) {
  struct driver_file *file = (struct driver_file *)pub;
  const char *bytes = buffer;
  (void)type, (void)transfer;
  if (at + n > file->eof) file->eof = at + n;
  while (n > 0 && file->out->failed == 0) {
    ssize_t done = pwrite(file->out->fd, bytes, n, (off_t)at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      file->out->failed = done < 0 ? errno : ENOSPC;
      break;
    }
    bytes += done, at += (haddr_t)done, n -= (size_t)done;
  }
  return 0;
}

static herr_t driver_truncate(H5FD_t *pub, hid_t transfer, hbool_t closing) {
  struct driver_file *file = (struct driver_file *)pub;
  (void)transfer, (void)closing;
  if (file->eoa == file->eof) return 0;
  if (file->out->failed == 0 && ftruncate(file->out->fd, (off_t)file->eoa) != 0)
    file->out->failed = errno;
  file->eof = file->eoa;
  return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)600,
#endif
    .name = "moelua",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct moe_hdf5_out *),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t moe_hdf5_driver(struct moe_hdf5_out *out) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  out->driver = H5FDregister(&driver);
  if (access < 0 || out->driver < 0) return H5I_INVALID_HID;
  return H5Pset_driver(access, out->driver, &out) < 0 ? H5I_INVALID_HID : access;
}
