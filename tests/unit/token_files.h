/* Token files and folders for tests. Every failure to make one fails the test. */
#ifndef TESTS_UNIT_TOKEN_FILES_H
#define TESTS_UNIT_TOKEN_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
/* clang-format off: needs the headers above */
#include <cmocka.h>
/* clang-format on */

#include "base/rng.h"
#include "moelua/data.h"

#define UNUSED __attribute__((unused))

/* Each test gets an empty folder and a context. */
struct world {
  moe_ctx *ctx;
  char folder[256];
  char prefix[300]; /* folder/data */
  uint64_t bytes;   /* allocated by the context alone */
};

UNUSED static int world_enter(void **state) {
  struct world *w = calloc(1, sizeof *w);
  const char *base = getenv("TMPDIR");
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  if (w == NULL || moe_ctx_create(&options, &w->ctx) != MOE_OK) return -1;
  w->bytes = moe_ctx_alloc_bytes(w->ctx);
  snprintf(w->folder, sizeof w->folder, "%s/moelua-test-XXXXXX", base ? base : "/tmp");
  if (mkdtemp(w->folder) == NULL) return -1;
  snprintf(w->prefix, sizeof w->prefix, "%s/data", w->folder);
  *state = w;
  return 0;
}

/* Names in the folder, removed when asked. */
UNUSED static int folder_files(const char *folder, int remove_them) {
  DIR *dir = opendir(folder);
  int n = 0;
  if (dir == NULL) return -1;
  for (struct dirent *e; (e = readdir(dir)) != NULL;) {
    char path[600];
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (remove_them) unlink(path);
    n++;
  }
  closedir(dir);
  return n;
}

UNUSED static int world_leave(void **state) {
  struct world *w = *state;
  uint64_t leaked = moe_ctx_alloc_bytes(w->ctx) - w->bytes;
  if (leaked) fprintf(stderr, "%llu bytes leaked\n", (unsigned long long)leaked);
  folder_files(w->folder, 1);
  rmdir(w->folder);
  moe_ctx_destroy(w->ctx);
  free(w);
  return leaked ? -1 : 0;
}

#define WORLD_TEST(fn) cmocka_unit_test_setup_teardown(fn, world_enter, world_leave)

#define OK(ctx_, expr)                                                 \
  do {                                                                 \
    moe_status ok_ = (expr);                                           \
    if (ok_ != MOE_OK) fail_msg("%s: %s", #expr, moe_ctx_error(ctx_)); \
  } while (0)

#define FAILS(ctx_, expr, status_, text_)                                           \
  do {                                                                              \
    assert_int_equal(expr, status_);                                                \
    if (strstr(moe_ctx_error(ctx_), text_) == NULL)                                 \
      fail_msg("%s: the error '%s' lacks '%s'", #expr, moe_ctx_error(ctx_), text_); \
  } while (0)

UNUSED static void write_file(const char *prefix, const char *suffix, const void *bytes, size_t n) {
  char path[400];
  snprintf(path, sizeof path, "%s%s", prefix, suffix);
  unlink(path); /* some file systems flush a file that is cut and written again */
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

UNUSED static size_t read_file(const char *prefix, const char *suffix, void *bytes, size_t n) {
  char path[400];
  snprintf(path, sizeof path, "%s%s", prefix, suffix);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t got = fread(bytes, 1, n, f);
  fclose(f);
  return got;
}

struct index_text {
  int type;
  int64_t sequences, entries;
  const int32_t *lengths;
  const int64_t *offsets, *documents;
};

/* An index as the format says; returns its bytes. */
UNUSED static size_t make_index(const struct index_text *in, unsigned char *out) {
  const uint64_t version = 1;
  unsigned char *p = out;
  memcpy(p, "MMIDIDX\0", 9), p += 9;
  memcpy(p, &version, 8), p += 8;
  *p++ = (unsigned char)in->type;
  memcpy(p, &in->sequences, 8), p += 8;
  memcpy(p, &in->entries, 8), p += 8;
  if (in->sequences) {
    memcpy(p, in->lengths, 4 * (size_t)in->sequences), p += 4 * in->sequences;
    memcpy(p, in->offsets, 8 * (size_t)in->sequences), p += 8 * in->sequences;
  }
  if (in->entries) memcpy(p, in->documents, 8 * (size_t)in->entries), p += 8 * in->entries;
  return (size_t)(p - out);
}

/* Documents of the given lengths; ids count up from `first`, so that an id tells its place. */
UNUSED static void write_counting(moe_ctx *ctx, const char *prefix, int32_t first,
                                  const int32_t *lengths, int documents) {
  moe_tokens_writer *writer;
  int32_t *ids = NULL, id = first;
  OK(ctx, moe_tokens_writer_create(ctx, prefix, INT32_MAX, &writer));
  for (int d = 0; d < documents; d++) {
    ids = realloc(ids, (size_t)(lengths[d] + 1) * sizeof *ids);
    for (int32_t i = 0; i < lengths[d]; i++) ids[i] = id++;
    OK(ctx, moe_tokens_writer_add(writer, ids, lengths[d]));
  }
  OK(ctx, moe_tokens_writer_finish(writer));
  moe_tokens_writer_destroy(writer);
  free(ids);
}

#endif
