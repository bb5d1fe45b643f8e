/* Reading slices of a data file where the index says they lie. HDF5 is not asked: its readers trust
 * damaged metadata, and the digests guard the values. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"

struct moe_slice_reader {
  moe_ctx *ctx;
  char *path;
  int fd;
};

moe_status moe_slice_reader_open(moe_ctx *ctx, const char *folder, const char *name,
                                 struct moe_slice_reader **out) {
  *out = NULL;
  struct moe_slice_reader *r = moe_alloc(ctx, sizeof *r);
  if (r == NULL) return MOE_MEMORY;
  *r = (struct moe_slice_reader){.ctx = ctx, .fd = -1};
  r->path = moe_path_join(ctx, folder, name);
  moe_status status = r->path ? MOE_OK : MOE_MEMORY;
  if (status == MOE_OK) r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
  if (status == MOE_OK && r->fd < 0)
    status = moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be opened", r->path);
  if (status != MOE_OK) {
    moe_slice_reader_close(r);
    return status;
  }
  *out = r;
  return MOE_OK;
}

void moe_slice_reader_close(struct moe_slice_reader *r) {
  if (r == NULL) return;
  if (r->fd >= 0) close(r->fd);
  moe_release(r->ctx, r->path);
  moe_release(r->ctx, r);
}

static moe_status read_at(struct moe_slice_reader *r, uint64_t at, void *values, size_t n) {
  for (char *to = values; n > 0;) {
    ssize_t done = pread(r->fd, to, n, (off_t)at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return moe_fail_errno(r->ctx, MOE_IO, errno, "%s: cannot be read", r->path);
    if (done == 0) return moe_fail(r->ctx, MOE_FORMAT, "%s: was cut short", r->path);
    to += done, at += (uint64_t)done, n -= (size_t)done;
  }
  return MOE_OK;
}

moe_status moe_slice_reader_read(struct moe_slice_reader *r, const struct moe_slice *slice,
                                 const struct moe_box *region, const struct moe_box *into,
                                 float *values) {
  struct moe_box_runs runs;
  moe_box_runs_init(&runs, into, &slice->box, region);
  while (moe_box_runs_next(&runs))
    MOE_TRY(read_at(r, slice->offset + (uint64_t)runs.offset_b * sizeof *values,
                    values + runs.offset_a, (size_t)runs.length * sizeof *values));
  return MOE_OK;
}
