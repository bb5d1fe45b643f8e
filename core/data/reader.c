#include "data/reader.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static moe_status fail_open(moe_ctx *ctx, const char *path, int err) {
  return moe_fail_errno(ctx, err == ENOENT ? MOE_NOTFOUND : MOE_IO, err, "cannot open %s", path);
}

moe_status moe_reader_stat(moe_ctx *ctx, const char *path, int64_t *bytes) {
  struct stat info;
  if (stat(path, &info) != 0) return fail_open(ctx, path, errno);
  if (S_ISDIR(info.st_mode)) return moe_fail(ctx, MOE_IO, "%s is a folder, must be a file", path);
  *bytes = info.st_size;
  return MOE_OK;
}

static moe_status fill(struct moe_reader *reader) {
  errno = 0;
  reader->at = 0;
  reader->n = fread(reader->block, 1, sizeof reader->block, reader->file);
  if (reader->n < sizeof reader->block && ferror(reader->file))
    return moe_fail_errno(reader->ctx, MOE_IO, errno, "cannot read %s", reader->path);
  reader->bytes += (int64_t)reader->n;
  return MOE_OK;
}

moe_status moe_reader_open(moe_ctx *ctx, const char *path, struct moe_reader *reader) {
  reader->ctx = ctx;
  reader->path = path;
  reader->line = reader->bytes = 0;
  reader->file = fopen(path, "rb");
  if (reader->file == NULL) return fail_open(ctx, path, errno);
  moe_status status = fill(reader);
  if (status != MOE_OK) {
    moe_reader_close(reader);
    return status;
  }
  if (reader->n >= 3 && memcmp(reader->block, "\xEF\xBB\xBF", 3) == 0) reader->at = 3;
  return MOE_OK;
}

void moe_reader_close(struct moe_reader *reader) {
  if (reader->file) fclose(reader->file);
  reader->file = NULL;
}

/* Appends the next n bytes of the block. */
static moe_status take(struct moe_reader *reader, size_t n, size_t limit, struct moe_text *out) {
  if (n > limit - out->len)
    return moe_fail(reader->ctx, MOE_INVALID,
                    "%s:%lld: a document of more than %zu bytes: cut the file into documents with "
                    "a separator, or one a line with jsonl",
                    reader->path, (long long)reader->line, limit);
  moe_text_append(out, reader->block + reader->at, n);
  reader->at += n;
  return out->failed ? MOE_MEMORY : MOE_OK;
}

moe_status moe_reader_line(struct moe_reader *reader, size_t limit, struct moe_text *out,
                           bool *more) {
  *more = false;
  for (;;) {
    if (reader->at == reader->n) MOE_TRY(fill(reader));
    if (reader->n == 0) return MOE_OK;
    if (!*more) reader->line++;
    *more = true;
    const char *start = reader->block + reader->at;
    const char *end = memchr(start, '\n', reader->n - reader->at);
    MOE_TRY(take(reader, end ? (size_t)(end - start) + 1 : reader->n - reader->at, limit, out));
    if (end) return MOE_OK;
  }
}

moe_status moe_reader_block(struct moe_reader *reader, size_t limit, struct moe_text *out,
                            bool *more) {
  if (reader->at == reader->n) MOE_TRY(fill(reader));
  *more = reader->n > 0;
  if (reader->line == 0) reader->line = 1;
  return take(reader, reader->n - reader->at, limit, out);
}
