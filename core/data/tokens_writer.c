/* Writing a token file byte for byte as Megatron does: ids straight to a temporary .bin; the index,
 * which follows from the lengths, at the end. Invariant: the pair appears under its own name whole
 * and synced, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/tokens.h"

enum { PATH_EXTRA = 64, U16_VOCAB_END = 65500 };

struct part {
  FILE *file; /* NULL once closed */
  char *temp; /* owned; "" when there is no such file */
  char *path; /* owned: the final name */
};

struct moe_tokens_writer {
  moe_ctx *ctx;
  char *prefix; /* owned */
  struct part bin, idx;
  int64_t vocab;
  int32_t *lengths; /* owned, of each document */
  int64_t documents, capacity;
  bool wide;   /* i32, else u16 */
  bool failed; /* a write failed: the .bin is not to be finished */
  bool finished;
};

static moe_status fail_write(moe_tokens_writer *w, int err, const char *path) {
  w->failed = true;
  return moe_fail_errno(w->ctx, MOE_IO, err, "cannot write %s", path);
}

/* A new file next to the final one. */
static moe_status part_open(moe_tokens_writer *w, const char *suffix, struct part *part) {
  size_t n = strlen(w->prefix) + PATH_EXTRA;
  part->path = moe_alloc(w->ctx, n);
  part->temp = moe_alloc(w->ctx, n);
  if (part->path == NULL || part->temp == NULL) return MOE_MEMORY;
  snprintf(part->path, n, "%s%s", w->prefix, suffix);
  int fd = -1, err = EEXIST;
  for (int i = 0; fd < 0 && err == EEXIST && i < 1000; i++) {
    snprintf(part->temp, n, "%s%s.tmp-%ld-%d", w->prefix, suffix, (long)getpid(), i);
    fd = open(part->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    err = errno;
  }
  if (fd >= 0 && (part->file = fdopen(fd, "wb")) != NULL) return MOE_OK;
  if (fd >= 0) {
    err = errno;
    close(fd);
    unlink(part->temp);
  }
  moe_status status = moe_fail_errno(w->ctx, err == ENOENT ? MOE_NOTFOUND : MOE_IO, err,
                                     "cannot create %s (the folder must exist)", part->temp);
  part->temp[0] = 0;
  return status;
}

static moe_status part_write(moe_tokens_writer *w, struct part *part, const void *bytes, size_t n) {
  if (fwrite(bytes, 1, n, part->file) != n) return fail_write(w, errno, part->temp);
  return MOE_OK;
}

/* All bytes on the disk, the file closed. */
static moe_status part_sync(moe_tokens_writer *w, struct part *part) {
  int err = 0;
  if (fflush(part->file) != 0 || fsync(fileno(part->file)) != 0) err = errno;
  if (fclose(part->file) != 0 && err == 0) err = errno;
  part->file = NULL;
  return err ? fail_write(w, err, part->temp) : MOE_OK;
}

static moe_status part_rename(moe_tokens_writer *w, struct part *part) {
  if (rename(part->temp, part->path) != 0) {
    int err = errno;
    w->failed = true;
    return moe_fail_errno(w->ctx, MOE_IO, err, "cannot rename %s to %s", part->temp, part->path);
  }
  part->temp[0] = 0;
  return MOE_OK;
}

static void part_destroy(moe_tokens_writer *w, struct part *part) {
  if (part->file) fclose(part->file);
  if (part->temp && part->temp[0]) unlink(part->temp);
  moe_release(w->ctx, part->temp);
  moe_release(w->ctx, part->path);
}

/* Makes the renames last. */
static moe_status sync_folder(moe_tokens_writer *w) {
  char *folder = moe_strdup(w->ctx, w->prefix);
  if (folder == NULL) return MOE_MEMORY;
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = 0;
  const char *name = slash ? folder : ".";
  int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int err = fd < 0 || fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  moe_status status = MOE_OK;
  /* Some network file systems cannot sync a folder and say so with EINVAL. */
  if (err && err != EINVAL)
    status = moe_fail_errno(w->ctx, MOE_IO, err, "cannot sync the folder %s", name);
  moe_release(w->ctx, folder);
  return status;
}

moe_status moe_tokens_writer_create(moe_ctx *ctx, const char *prefix, int64_t vocab,
                                    moe_tokens_writer **out) {
  *out = NULL;
  if (prefix == NULL || *prefix == 0)
    return moe_fail(ctx, MOE_INVALID, "the prefix of a token file is empty");
  if (vocab < 1 || vocab > MOE_TOKENS_ID_LIMIT)
    return moe_fail(ctx, MOE_INVALID, "vocab is %lld, must be between 1 and %lld", (long long)vocab,
                    (long long)MOE_TOKENS_ID_LIMIT);
  moe_tokens_writer *w = moe_alloc(ctx, sizeof *w);
  if (w == NULL) return MOE_MEMORY;
  w->ctx = ctx;
  w->vocab = vocab;
  w->wide = vocab >= U16_VOCAB_END;
  w->prefix = moe_strdup(ctx, prefix);
  moe_status status = w->prefix ? part_open(w, ".bin", &w->bin) : MOE_MEMORY;
  if (status == MOE_OK) status = part_open(w, ".idx", &w->idx);
  if (status != MOE_OK) {
    moe_tokens_writer_destroy(w);
    return status;
  }
  *out = w;
  return MOE_OK;
}

static moe_status check_usable(moe_tokens_writer *w) {
  if (w->finished) return moe_fail(w->ctx, MOE_STATE, "%s is already finished", w->prefix);
  if (w->failed)
    return moe_fail(w->ctx, MOE_STATE, "%s cannot be finished: an earlier write failed", w->prefix);
  return MOE_OK;
}

static moe_status check_document(moe_tokens_writer *w, const int32_t *ids, int64_t count) {
  if (count < 0 || count > INT32_MAX)
    return moe_fail(w->ctx, MOE_INVALID,
                    "%s: document %lld has %lld tokens; the format allows 0 to %d", w->prefix,
                    (long long)w->documents, (long long)count, INT32_MAX);
  for (int64_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= w->vocab)
      return moe_fail(w->ctx, MOE_INVALID,
                      "%s: token %lld of document %lld is %d, must be in [0, %lld)", w->prefix,
                      (long long)i, (long long)w->documents, ids[i], (long long)w->vocab);
  return MOE_OK;
}

static moe_status reserve(moe_tokens_writer *w) {
  if (w->documents < w->capacity) return MOE_OK;
  int64_t capacity = w->capacity ? 2 * w->capacity : 1024;
  int32_t *lengths = moe_realloc(w->ctx, w->lengths, (size_t)capacity * sizeof *lengths);
  if (lengths == NULL) return MOE_MEMORY;
  w->lengths = lengths;
  w->capacity = capacity;
  return MOE_OK;
}

static moe_status write_narrow(moe_tokens_writer *w, const int32_t *ids, int64_t count) {
  enum { CHUNK = 4096 };
  uint16_t narrow[CHUNK];
  for (int64_t at = 0; at < count; at += CHUNK) {
    int64_t n = moe_min64(CHUNK, count - at);
    for (int64_t i = 0; i < n; i++) narrow[i] = (uint16_t)ids[at + i];
    MOE_TRY(part_write(w, &w->bin, narrow, (size_t)n * sizeof *narrow));
  }
  return MOE_OK;
}

moe_status moe_tokens_writer_add(moe_tokens_writer *w, const int32_t *ids, int64_t count) {
  MOE_TRY(check_usable(w));
  MOE_TRY(check_document(w, ids, count));
  MOE_TRY(reserve(w));
  if (!w->wide)
    MOE_TRY(write_narrow(w, ids, count));
  else if (count > 0)
    MOE_TRY(part_write(w, &w->bin, ids, (size_t)count * sizeof *ids));
  w->lengths[w->documents++] = (int32_t)count;
  return MOE_OK;
}

static moe_status write_index(moe_tokens_writer *w) {
  unsigned char header[MOE_TOKENS_HEADER_BYTES] = MOE_TOKENS_MAGIC;
  const uint64_t version = 1, sequences = (uint64_t)w->documents, entries = sequences + 1;
  memcpy(header + 9, &version, 8);
  header[17] = w->wide ? MOE_TOKENS_I32 : MOE_TOKENS_U16;
  memcpy(header + 18, &sequences, 8);
  memcpy(header + 26, &entries, 8);
  MOE_TRY(part_write(w, &w->idx, header, sizeof header));
  MOE_TRY(part_write(w, &w->idx, w->lengths, (size_t)w->documents * sizeof *w->lengths));
  int64_t offset = 0;
  for (int64_t i = 0; i < w->documents; i++) {
    MOE_TRY(part_write(w, &w->idx, &offset, sizeof offset));
    offset += (int64_t)w->lengths[i] * (w->wide ? 4 : 2);
  }
  for (int64_t i = 0; i <= w->documents; i++) MOE_TRY(part_write(w, &w->idx, &i, sizeof i));
  return MOE_OK;
}

/* An index never stands beside the .bin of another run: the old one goes first, the new one comes
 * last. */
static moe_status publish(moe_tokens_writer *w) {
  if (unlink(w->idx.path) != 0 && errno != ENOENT) return fail_write(w, errno, w->idx.path);
  MOE_TRY(part_rename(w, &w->bin));
  MOE_TRY(part_rename(w, &w->idx));
  return sync_folder(w);
}

moe_status moe_tokens_writer_finish(moe_tokens_writer *w) {
  MOE_TRY(check_usable(w));
  bool any = false;
  for (int64_t i = 0; i < w->documents && !any; i++) any = w->lengths[i] > 0;
  if (!any)
    return moe_fail(w->ctx, MOE_STATE, "%s: no tokens were added, so there is no file to write",
                    w->prefix);
  w->failed = true; /* until all of it is done */
  MOE_TRY(part_sync(w, &w->bin));
  MOE_TRY(write_index(w));
  MOE_TRY(part_sync(w, &w->idx));
  MOE_TRY(publish(w));
  w->failed = false;
  w->finished = true;
  return MOE_OK;
}

void moe_tokens_writer_destroy(moe_tokens_writer *w) {
  if (w == NULL) return;
  part_destroy(w, &w->bin);
  part_destroy(w, &w->idx);
  moe_release(w->ctx, w->lengths);
  moe_release(w->ctx, w->prefix);
  moe_release(w->ctx, w);
}
