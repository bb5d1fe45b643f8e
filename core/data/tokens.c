/* Opening a token file: mapping, and every check of the index. */
#include "data/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");
_Static_assert(sizeof MOE_TOKENS_MAGIC == MOE_TOKENS_MAGIC_BYTES, "magic");

static const struct {
  const char *name;
  int32_t bytes;
} types[MOE_TOKENS_TYPES] = {
    [MOE_TOKENS_U8] = {"u8", 1},   [MOE_TOKENS_I8] = {"i8", 1},   [MOE_TOKENS_I16] = {"i16", 2},
    [MOE_TOKENS_I32] = {"i32", 4}, [MOE_TOKENS_I64] = {"i64", 8}, [MOE_TOKENS_F64] = {"f64", 8},
    [MOE_TOKENS_F32] = {"f32", 4}, [MOE_TOKENS_U16] = {"u16", 2},
};

static bool ends_with(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

static moe_status fail_open(moe_ctx *ctx, int err, const char *prefix, const char *suffix) {
  moe_status status = err == ENOENT ? MOE_NOTFOUND : MOE_IO;
  if (ends_with(prefix, ".bin") || ends_with(prefix, ".idx"))
    return moe_fail_errno(ctx, status, err,
                          "cannot open %s%s (give the prefix, without .bin or .idx)", prefix,
                          suffix);
  return moe_fail_errno(ctx, status, err, "cannot open %s%s", prefix, suffix);
}

/* Maps an open file; the mapping outlives the descriptor. An empty file gives NULL. */
static moe_status map_descriptor(moe_ctx *ctx, int fd, const char *prefix, const char *suffix,
                                 const unsigned char **out, size_t *bytes) {
  struct stat st;
  if (fstat(fd, &st) != 0)
    return moe_fail_errno(ctx, MOE_IO, errno, "cannot stat %s%s", prefix, suffix);
  if (!S_ISREG(st.st_mode))
    return moe_fail(ctx, MOE_IO, "%s%s is not a regular file", prefix, suffix);
  if (st.st_size == 0) return moe_fail(ctx, MOE_FORMAT, "%s%s is empty", prefix, suffix);
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    return moe_fail_errno(ctx, MOE_IO, errno, "cannot map the %lld bytes of %s%s%s",
                          (long long)st.st_size, prefix, suffix,
                          errno == ENOMEM ? " (vm.max_map_count limits the number of maps)" : "");
  *out = p;
  *bytes = (size_t)st.st_size;
  return MOE_OK;
}

static moe_status map_file(moe_ctx *ctx, const char *prefix, const char *suffix,
                           const unsigned char **out, size_t *bytes) {
  size_t n = strlen(prefix) + strlen(suffix) + 1;
  char *path = moe_alloc(ctx, n);
  if (path == NULL) return MOE_MEMORY;
  snprintf(path, n, "%s%s", prefix, suffix);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int err = errno;
  moe_release(ctx, path);
  if (fd < 0) return fail_open(ctx, err, prefix, suffix);
  moe_status status = map_descriptor(ctx, fd, prefix, suffix, out, bytes);
  close(fd);
  return status;
}

/* The first 34 bytes: magic, version, type, sizes. Sets type and id_bytes. */
static moe_status check_header(moe_tokens *t, uint64_t *sequences, uint64_t *documents) {
  static const char tnt[] = "TNTIDX";
  if (t->idx_bytes >= sizeof tnt - 1 && memcmp(t->idx, tnt, sizeof tnt - 1) == 0)
    return moe_fail(t->ctx, MOE_UNSUPPORTED,
                    "%s.idx is an index of the older TNTIDX kind, which is not read; write the "
                    "data again as an MMIDIDX pair",
                    t->prefix);
  size_t magic = t->idx_bytes < MOE_TOKENS_MAGIC_BYTES ? t->idx_bytes : MOE_TOKENS_MAGIC_BYTES;
  if (memcmp(t->idx, MOE_TOKENS_MAGIC, magic) != 0)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.idx does not begin with MMIDIDX: not a token index",
                    t->prefix);
  if (t->idx_bytes < MOE_TOKENS_HEADER_BYTES)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.idx is truncated: %zu bytes, the header alone has %d",
                    t->prefix, t->idx_bytes, MOE_TOKENS_HEADER_BYTES);
  uint64_t version = (uint64_t)moe_load_i64(t->idx + 9);
  if (version != 1)
    return moe_fail(t->ctx, MOE_UNSUPPORTED, "%s.idx has version %llu, only version 1 is known",
                    t->prefix, (unsigned long long)version);
  t->type = t->idx[17];
  if (t->type < MOE_TOKENS_U8 || t->type >= MOE_TOKENS_TYPES)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.idx has the unknown id type %d", t->prefix, t->type);
  if (t->type == MOE_TOKENS_F64 || t->type == MOE_TOKENS_F32)
    return moe_fail(t->ctx, MOE_UNSUPPORTED, "%s.idx holds %s values (type %d), not token ids",
                    t->prefix, types[t->type].name, t->type);
  t->id_bytes = types[t->type].bytes;
  *sequences = (uint64_t)moe_load_i64(t->idx + 18);
  *documents = (uint64_t)moe_load_i64(t->idx + 26);
  return MOE_OK;
}

/* Both counts against the length of the file; then the three arrays have an address. */
static moe_status check_sizes(moe_tokens *t, uint64_t sequences, uint64_t documents) {
  size_t arrays, first, total, modes;
  bool fits = !__builtin_mul_overflow(sequences, (size_t)12, &arrays) &&
              !__builtin_mul_overflow(documents, (size_t)8, &first) &&
              !__builtin_add_overflow(arrays, first, &total) &&
              !__builtin_add_overflow(total, (size_t)MOE_TOKENS_HEADER_BYTES, &total) &&
              !__builtin_add_overflow(total, sequences, &modes);
  if (!fits)
    return moe_fail(t->ctx, MOE_FORMAT,
                    "%s.idx: the sizes in the header overflow (%llu sequences, %llu documents)",
                    t->prefix, (unsigned long long)sequences, (unsigned long long)documents);
  if (t->idx_bytes < total)
    return moe_fail(t->ctx, MOE_FORMAT,
                    "%s.idx is truncated: %zu bytes, %llu sequences and %llu documents need %zu",
                    t->prefix, t->idx_bytes, (unsigned long long)sequences,
                    (unsigned long long)documents, total);
  if (t->idx_bytes != total && t->idx_bytes != modes)
    return moe_fail(t->ctx, MOE_FORMAT,
                    "%s.idx has %zu bytes, expected %zu (or %zu with modes): the counts in the "
                    "header do not match the file",
                    t->prefix, t->idx_bytes, total, modes);
  if (documents == 0)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.idx has no document table", t->prefix);
  t->sequences = (int64_t)sequences;
  t->documents = (int64_t)documents - 1;
  t->lengths = t->idx + MOE_TOKENS_HEADER_BYTES;
  t->offsets = t->lengths + 4 * (size_t)sequences;
  t->first = t->offsets + 8 * (size_t)sequences;
  return MOE_OK;
}

/* Every sequence lies in the .bin. Counts the tokens and finds whether the .bin holds the stream in
 * order, without gaps. */
static moe_status check_sequences(moe_tokens *t, bool *in_order) {
  *in_order = true;
  t->tokens = 0;
  for (int64_t i = 0; i < t->sequences; i++) {
    int32_t length = moe_load_i32(t->lengths + 4 * i);
    int64_t offset = moe_load_i64(t->offsets + 8 * i);
    if (length < 0)
      return moe_fail(t->ctx, MOE_FORMAT, "%s.idx: sequence %lld has the negative length %d",
                      t->prefix, (long long)i, length);
    if (offset < 0)
      return moe_fail(t->ctx, MOE_FORMAT, "%s.idx: sequence %lld has the negative offset %lld",
                      t->prefix, (long long)i, (long long)offset);
    if (offset % t->id_bytes != 0)
      return moe_fail(t->ctx, MOE_FORMAT,
                      "%s.idx: sequence %lld has offset %lld, not a multiple of the id size %d",
                      t->prefix, (long long)i, (long long)offset, t->id_bytes);
    if ((uint64_t)offset > t->bin_bytes ||
        (uint64_t)length * (uint64_t)t->id_bytes > t->bin_bytes - (uint64_t)offset)
      return moe_fail(t->ctx, MOE_FORMAT,
                      "%s.idx: sequence %lld (%d ids of %d bytes at offset %lld) lies past the end "
                      "of %s.bin (%zu bytes)",
                      t->prefix, (long long)i, length, t->id_bytes, (long long)offset, t->prefix,
                      t->bin_bytes);
    *in_order = *in_order && offset / t->id_bytes == t->tokens;
    if (__builtin_add_overflow(t->tokens, (int64_t)length, &t->tokens))
      return moe_fail(t->ctx, MOE_FORMAT, "%s.idx: the number of tokens overflows", t->prefix);
  }
  if (t->tokens == 0)
    return moe_fail(t->ctx, MOE_FORMAT, "%s.idx: no tokens in %lld sequences", t->prefix,
                    (long long)t->sequences);
  return MOE_OK;
}

/* The document table goes from 0 to the number of sequences and never back. */
static moe_status check_documents(moe_tokens *t) {
  int64_t last = 0;
  for (int64_t d = 0; d <= t->documents; d++) {
    int64_t at = moe_load_i64(t->first + 8 * d);
    if (d == 0 && at != 0)
      return moe_fail(t->ctx, MOE_FORMAT, "%s.idx: the document table begins with %lld, not 0",
                      t->prefix, (long long)at);
    if (at < last)
      return moe_fail(
          t->ctx, MOE_FORMAT,
          "%s.idx: document %lld begins at sequence %lld, before the one in front of it "
          "(%lld)",
          t->prefix, (long long)d, (long long)at, (long long)last);
    last = at;
  }
  if (last != t->sequences)
    return moe_fail(t->ctx, MOE_FORMAT,
                    "%s.idx: the document table ends in %lld, must end in the number of sequences, "
                    "%lld",
                    t->prefix, (long long)last, (long long)t->sequences);
  return MOE_OK;
}

/* Only where the offsets do not say it already. */
static moe_status make_starts(moe_tokens *t) {
  t->starts = moe_alloc_array(t->ctx, (size_t)t->sequences, sizeof *t->starts);
  if (t->starts == NULL) return MOE_MEMORY;
  int64_t at = 0;
  for (int64_t i = 0; i < t->sequences; i++) {
    t->starts[i] = at;
    at += moe_load_i32(t->lengths + 4 * i);
  }
  return MOE_OK;
}

static moe_status open_files(moe_tokens *t) {
  uint64_t sequences = 0, documents = 0;
  bool in_order;
  MOE_TRY(map_file(t->ctx, t->prefix, ".idx", &t->idx, &t->idx_bytes));
  MOE_TRY(check_header(t, &sequences, &documents));
  MOE_TRY(check_sizes(t, sequences, documents));
  MOE_TRY(map_file(t->ctx, t->prefix, ".bin", &t->bin, &t->bin_bytes));
  MOE_TRY(check_sequences(t, &in_order));
  MOE_TRY(check_documents(t));
  if (!in_order) return make_starts(t);
  if ((uint64_t)t->tokens * (uint64_t)t->id_bytes != t->bin_bytes)
    moe_log(t->ctx, MOE_LOG_WARN, "%s.bin has %zu bytes, its index uses %lld of them", t->prefix,
            t->bin_bytes, (long long)t->tokens * t->id_bytes);
  return MOE_OK;
}

moe_status moe_tokens_open(moe_ctx *ctx, const char *prefix, moe_tokens **out) {
  *out = NULL;
  if (prefix == NULL || *prefix == 0)
    return moe_fail(ctx, MOE_INVALID, "the prefix of a token file is empty");
  moe_tokens *t = moe_alloc(ctx, sizeof *t);
  if (t == NULL) return MOE_MEMORY;
  t->ctx = ctx;
  t->max_id = -1;
  t->prefix = moe_strdup(ctx, prefix);
  moe_status status = t->prefix ? open_files(t) : MOE_MEMORY;
  if (status != MOE_OK) {
    moe_tokens_close(t);
    return status;
  }
  *out = t;
  return MOE_OK;
}

void moe_tokens_close(moe_tokens *t) {
  if (t == NULL) return;
  if (t->idx) munmap((void *)(uintptr_t)t->idx, t->idx_bytes);
  if (t->bin) munmap((void *)(uintptr_t)t->bin, t->bin_bytes);
  moe_release(t->ctx, t->starts);
  moe_release(t->ctx, t->prefix);
  moe_release(t->ctx, t);
}

moe_status moe_tokens_get_info(const moe_tokens *t, moe_tokens_info *out) {
  MOE_CHECK_SIZE(t->ctx, out);
  out->sequences = t->sequences;
  out->documents = t->documents;
  out->tokens = t->tokens;
  out->id_bytes = t->id_bytes;
  out->max_id = t->max_id;
  return MOE_OK;
}

uint64_t moe_tokens_hash(const moe_tokens *t) {
  enum { PART = 65536 };
  uint64_t sizes[2] = {t->idx_bytes, t->bin_bytes};
  uint64_t hash = XXH3_64bits(sizes, sizeof sizes);
  const unsigned char *const files[2] = {t->idx, t->bin};
  for (int i = 0; i < 2; i++) {
    size_t n = sizes[i] < PART ? (size_t)sizes[i] : PART;
    hash = XXH3_64bits_withSeed(files[i], n, hash);
    hash = XXH3_64bits_withSeed(files[i] + sizes[i] - n, n, hash);
  }
  return hash;
}
