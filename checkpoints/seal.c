#include "checkpoints/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct seal {
  char mark[8];
  uint64_t digest;
};
static const char mark[8] = {'M', 'O', 'E', 'I', 'N', 'D', 'E', 'X'};

/* Reads n bytes at `at`; errno, or -1 at the end of the file, 0 when done. */
static int read_at(int fd, off_t at, void *bytes, size_t n) {
  for (char *to = bytes; n > 0;) {
    ssize_t done = pread(fd, to, n, at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : -1;
    to += done, at += done, n -= (size_t)done;
  }
  return 0;
}

/* Digest of the first n bytes. */
static int digest_of(int fd, off_t n, uint64_t *out) {
  char bytes[8192];
  XXH3_state_t *state = XXH3_createState();
  if (state == NULL) return ENOMEM;
  int failed = XXH3_64bits_reset(state) == XXH_OK ? 0 : EINVAL;
  for (off_t at = 0; at < n && !failed;) {
    size_t part = (size_t)moe_min64((int64_t)sizeof bytes, n - at);
    failed = read_at(fd, at, bytes, part);
    if (!failed && XXH3_64bits_update(state, bytes, part) != XXH_OK) failed = EINVAL;
    at += (off_t)part;
  }
  *out = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return failed;
}

static int append_seal(int fd) {
  struct stat info;
  struct seal seal;
  if (fstat(fd, &info) != 0) return errno;
  memcpy(seal.mark, mark, sizeof mark);
  int failed = digest_of(fd, info.st_size, &seal.digest);
  if (failed) return failed;
  ssize_t done = pwrite(fd, &seal, sizeof seal, info.st_size);
  if (done != (ssize_t)sizeof seal) return done < 0 ? errno : ENOSPC;
  return fsync(fd) != 0 ? errno : 0;
}

moe_status moe_seal_write(moe_ctx *ctx, const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be opened", path);
  int failed = append_seal(fd);
  if (close(fd) != 0 && !failed) failed = errno;
  if (failed) return moe_fail_errno(ctx, MOE_IO, failed, "%s: cannot be written", path);
  return MOE_OK;
}

/* Sets *sound; returns as read_at. */
static int look(int fd, bool *sound) {
  struct stat info;
  struct seal seal;
  uint64_t digest;
  *sound = false;
  if (fstat(fd, &info) != 0) return errno;
  if (info.st_size < (off_t)sizeof seal) return 0;
  off_t end = info.st_size - (off_t)sizeof seal;
  int failed = read_at(fd, end, &seal, sizeof seal);
  if (!failed && memcmp(seal.mark, mark, sizeof mark) == 0) {
    failed = digest_of(fd, end, &digest);
    *sound = !failed && digest == seal.digest;
  }
  return failed;
}

moe_status moe_seal_check(moe_ctx *ctx, const char *path) {
  bool sound;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be opened", path);
  int failed = look(fd, &sound);
  close(fd);
  if (failed > 0) return moe_fail_errno(ctx, MOE_IO, failed, "%s: cannot be read", path);
  if (sound) return MOE_OK;
  return moe_fail(ctx, MOE_FORMAT, "%s: is damaged or was changed (its seal does not hold)", path);
}
