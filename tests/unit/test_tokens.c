/* Token files: reading, every fault of an index, writing. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "token_files.h"

enum { U8 = 1, I8, I16, I32, I64, F64, F32, U16 };

/* What Megatron's writer makes of the documents {7, 300} and {5}. */
static void test_writes_the_known_bytes(void **state) {
  struct world *w = *state;
  static const unsigned char bin[] = {7, 0, 44, 1, 5, 0};
  static const unsigned char idx[] = {
      'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, /* version, u16 */
      2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0,       /* S, D */
      2,   0,   0,   0,   1,   0,   0,   0,                               /* lengths */
      0,   0,   0,   0,   0,   0,   0,   0, 4, 0, 0, 0, 0, 0, 0, 0,       /* offsets */
      0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
  unsigned char got[200];
  moe_tokens_writer *writer;
  OK(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, 65499, &writer));
  OK(w->ctx, moe_tokens_writer_add(writer, (int32_t[]){7, 300}, 2));
  OK(w->ctx, moe_tokens_writer_add(writer, (int32_t[]){5}, 1));
  OK(w->ctx, moe_tokens_writer_finish(writer));
  moe_tokens_writer_destroy(writer);
  assert_int_equal(read_file(w->prefix, ".bin", got, sizeof got), sizeof bin);
  assert_memory_equal(got, bin, sizeof bin);
  assert_int_equal(read_file(w->prefix, ".idx", got, sizeof got), sizeof idx);
  assert_memory_equal(got, idx, sizeof idx);
  assert_int_equal(folder_files(w->folder, 0), 2);
}

static void test_width_follows_the_vocabulary(void **state) {
  struct world *w = *state;
  static const struct {
    int64_t vocab;
    int32_t bytes;
  } cases[] = {{1, 2}, {65499, 2}, {65500, 4}, {151936, 4}, {(int64_t)1 << 31, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moe_tokens_writer *writer;
    moe_tokens *tokens;
    moe_tokens_info info = {.size = sizeof info};
    int32_t ids[3] = {0, (int32_t)(cases[i].vocab - 1), 0}, got[3];
    OK(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, cases[i].vocab, &writer));
    OK(w->ctx, moe_tokens_writer_add(writer, ids, 3));
    OK(w->ctx, moe_tokens_writer_add(writer, ids, 0));
    OK(w->ctx, moe_tokens_writer_finish(writer));
    FAILS(w->ctx, moe_tokens_writer_finish(writer), MOE_STATE, "already finished");
    FAILS(w->ctx, moe_tokens_writer_add(writer, ids, 1), MOE_STATE, "already finished");
    moe_tokens_writer_destroy(writer);
    OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
    OK(w->ctx, moe_tokens_get_info(tokens, &info));
    assert_int_equal(info.id_bytes, cases[i].bytes);
    assert_int_equal(info.max_id, -1);
    assert_int_equal(info.documents, 2);
    OK(w->ctx, moe_tokens_verify(tokens, cases[i].vocab, &info));
    assert_int_equal(info.max_id, cases[i].vocab - 1);
    OK(w->ctx, moe_tokens_read(tokens, 0, 0, 3, got));
    assert_memory_equal(got, ids, sizeof ids);
    moe_tokens_close(tokens);
  }
}

/* Sequences 0..3 lie out of order in the .bin, in two documents; ids 0..11 by place in the .bin. */
static void test_reads_every_integer_type(void **state) {
  struct world *w = *state;
  static const struct {
    int type;
    int64_t bytes;
  } types[] = {{U8, 1}, {I8, 1}, {I16, 2}, {I32, 4}, {I64, 8}, {U16, 2}};
  static const int32_t lengths[] = {3, 0, 4, 2};
  static const int64_t places[] = {8, 0, 0, 5};
  for (size_t t = 0; t < 2 * sizeof types / sizeof *types; t++) {
    int64_t bytes = types[t / 2].bytes, offsets[4];
    unsigned char bin[12 * 8] = {0}, idx[300];
    for (int i = 0; i < 12; i++) bin[i * bytes] = (unsigned char)(100 + i);
    for (int i = 0; i < 4; i++) offsets[i] = places[i] * bytes;
    size_t n = make_index(
        &(struct index_text){types[t / 2].type, 4, 3, lengths, offsets, (int64_t[]){0, 1, 4}}, idx);
    if (t % 2) memset(idx + n, 0, 4), n += 4; /* modes */
    write_file(w->prefix, ".idx", idx, n);
    write_file(w->prefix, ".bin", bin, (size_t)(12 * bytes));
    moe_tokens *tokens;
    moe_tokens_info info = {.size = sizeof info};
    OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
    OK(w->ctx, moe_tokens_verify(tokens, 112, &info));
    assert_int_equal(info.sequences, 4);
    assert_int_equal(info.documents, 2);
    assert_int_equal(info.tokens, 9);
    assert_int_equal(info.id_bytes, bytes);
    assert_int_equal(info.max_id, 110);
    for (int s = 0; s < 4; s++) {
      int64_t length;
      int32_t ids[4];
      OK(w->ctx, moe_tokens_length(tokens, s, &length));
      assert_int_equal(length, lengths[s]);
      OK(w->ctx, moe_tokens_read(tokens, s, 0, length, ids));
      for (int i = 0; i < length; i++) assert_int_equal(ids[i], 100 + places[s] + i);
    }
    int32_t two[2];
    OK(w->ctx, moe_tokens_read(tokens, 2, 1, 2, two));
    assert_int_equal(two[0], 101);
    FAILS(w->ctx, moe_tokens_read(tokens, 2, 3, 2, two), MOE_INVALID, "sequence 2 has 4 tokens");
    FAILS(w->ctx, moe_tokens_read(tokens, 2, -1, 2, two), MOE_INVALID, "from -1");
    FAILS(w->ctx, moe_tokens_read(tokens, 4, 0, 1, two), MOE_INVALID, "no sequence 4");
    FAILS(w->ctx, moe_tokens_verify(tokens, 110, NULL), MOE_FORMAT,
          "token 2 of sequence 0 is 110, ids must be below 110");
    FAILS(w->ctx, moe_tokens_verify(tokens, 110, NULL), MOE_FORMAT, w->prefix);
    moe_tokens_close(tokens);
  }
}

static moe_status read_one(struct world *w, int type, const void *id, size_t bytes, int32_t *out) {
  unsigned char idx[100];
  moe_tokens *tokens;
  size_t n = make_index(
      &(struct index_text){type, 1, 2, (int32_t[]){1}, (int64_t[]){0}, (int64_t[]){0, 1}}, idx);
  write_file(w->prefix, ".idx", idx, n);
  write_file(w->prefix, ".bin", id, bytes);
  OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
  moe_status status = moe_tokens_read(tokens, 0, 0, 1, out);
  assert_int_equal(moe_tokens_verify(tokens, 0, NULL), status);
  moe_tokens_close(tokens);
  return status;
}

static void test_ids_that_do_not_fit(void **state) {
  struct world *w = *state;
  int32_t id;
  FAILS(w->ctx, read_one(w, I64, &(int64_t){2147483648}, 8, &id), MOE_FORMAT,
        "is 2147483648, ids must be below 2147483648");
  FAILS(w->ctx, read_one(w, I64, &(int64_t){1LL << 32}, 8, &id), MOE_FORMAT, "is 4294967296");
  FAILS(w->ctx, read_one(w, I64, &(int64_t){-1}, 8, &id), MOE_FORMAT, "negative: -1");
  FAILS(w->ctx, read_one(w, I64, &(int64_t){5 - (1LL << 32)}, 8, &id), MOE_FORMAT,
        "negative: -4294967291");
  FAILS(w->ctx, read_one(w, I32, &(int32_t){-5}, 4, &id), MOE_FORMAT, "negative: -5");
  FAILS(w->ctx, read_one(w, I16, &(int16_t){-6}, 2, &id), MOE_FORMAT, "negative: -6");
  FAILS(w->ctx, read_one(w, I8, &(int8_t){-7}, 1, &id), MOE_FORMAT, "negative: -7");
  OK(w->ctx, read_one(w, I64, &(int64_t){INT32_MAX}, 8, &id));
  assert_int_equal(id, INT32_MAX);
  OK(w->ctx, read_one(w, U16, &(uint16_t){65535}, 2, &id));
  assert_int_equal(id, 65535);
  OK(w->ctx, read_one(w, U8, &(uint8_t){255}, 1, &id));
  assert_int_equal(id, 255);
}

/* Places in the index of test_every_fault: header 34, lengths 34, offsets 46, documents 70. */
enum { LENGTHS = 34, OFFSETS = 46, DOCUMENTS = 70, IDX_BYTES = 94, BIN_BYTES = 20 };

struct fault {
  int at, bytes; /* a patch of the index; bytes 0: none */
  int64_t value;
  int idx_cut, bin_cut; /* new length, -1 whole, -2 no such file */
  moe_status status;
  const char *text;
};

static const struct fault faults[] = {
    {0, 1, 'X', -1, -1, MOE_FORMAT, ".idx does not begin with MMIDIDX"},
    {7, 1, 1, -1, -1, MOE_FORMAT, ".idx does not begin with MMIDIDX"},
    {0, 8, 0x584449544e54 /* TNTIDX */, -1, -1, MOE_UNSUPPORTED, "older TNTIDX"},
    {9, 8, 2, -1, -1, MOE_UNSUPPORTED, ".idx has version 2"},
    {9, 8, 1LL << 32, -1, -1, MOE_UNSUPPORTED, ".idx has version 4294967296"},
    {17, 1, 0, -1, -1, MOE_FORMAT, "unknown id type 0"},
    {17, 1, 9, -1, -1, MOE_FORMAT, "unknown id type 9"},
    {17, 1, F64, -1, -1, MOE_UNSUPPORTED, ".idx holds f64 values"},
    {17, 1, F32, -1, -1, MOE_UNSUPPORTED, ".idx holds f32 values"},
    {18, 8, 4, -1, -1, MOE_FORMAT, ".idx is truncated: 94 bytes, 4 sequences"},
    {18, 8, 2, -1, -1, MOE_FORMAT, "the counts in the header do not match"},
    {18, 8, -1, -1, -1, MOE_FORMAT, "the sizes in the header overflow"},
    {18, 8, 1LL << 60, -1, -1, MOE_FORMAT, ".idx is truncated"},
    {18, 8, 1LL << 62, -1, -1, MOE_FORMAT, "the sizes in the header overflow"},
    {26, 8, 1LL << 61, -1, -1, MOE_FORMAT, "the sizes in the header overflow"},
    {26, 8, 4, -1, -1, MOE_FORMAT, ".idx is truncated"},
    {26, 8, 0, DOCUMENTS, -1, MOE_FORMAT, "no document table"},
    {LENGTHS, 4, -1, -1, -1, MOE_FORMAT, ".idx: sequence 0 has the negative length -1"},
    {LENGTHS + 8, 4, 4, -1, -1, MOE_FORMAT, "lies past the end"},
    {LENGTHS + 8, 4, INT32_MAX, -1, -1, MOE_FORMAT, "lies past the end"},
    {OFFSETS + 8, 8, -4, -1, -1, MOE_FORMAT, "sequence 1 has the negative offset -4"},
    {OFFSETS + 8, 8, 24, -1, -1, MOE_FORMAT, "sequence 1 (0 ids of 4 bytes at offset 24)"},
    {OFFSETS + 16, 8, 6, -1, -1, MOE_FORMAT, "offset 6, not a multiple of the id size 4"},
    {OFFSETS, 8, INT64_MAX - 3, -1, -1, MOE_FORMAT, "lies past the end"},
    {DOCUMENTS, 8, 1, -1, -1, MOE_FORMAT, "the document table begins with 1, not 0"},
    {DOCUMENTS + 8, 8, 4, -1, -1, MOE_FORMAT, "begins at sequence 3, before"},
    {DOCUMENTS + 8, 8, -1, -1, -1, MOE_FORMAT, "begins at sequence -1, before"},
    {DOCUMENTS + 16, 8, 2, -1, -1, MOE_FORMAT, "ends in 2, must end in the number of sequences, 3"},
    {DOCUMENTS + 16, 8, 4, -1, -1, MOE_FORMAT, "ends in 4, must end in the number of sequences, 3"},
    {0, 0, 0, 0, -1, MOE_FORMAT, ".idx is empty"},
    {0, 0, 0, 5, -1, MOE_FORMAT, ".idx is truncated: 5 bytes"},
    {0, 0, 0, 33, -1, MOE_FORMAT, ".idx is truncated: 33 bytes"},
    {0, 0, 0, IDX_BYTES - 1, -1, MOE_FORMAT, ".idx is truncated: 93 bytes"},
    {0, 0, 0, -2, -1, MOE_NOTFOUND, "data.idx: No such file"},
    {0, 0, 0, -1, -2, MOE_NOTFOUND, "data.bin: No such file"},
    {0, 0, 0, -1, 0, MOE_FORMAT, ".bin is empty"},
    {0, 0, 0, -1, BIN_BYTES - 1, MOE_FORMAT, "lies past the end of"},
};

static void put_or_remove(struct world *w, const char *suffix, const void *bytes, size_t n,
                          int cut) {
  char path[400];
  write_file(w->prefix, suffix, bytes, cut >= 0 ? (size_t)cut : n);
  snprintf(path, sizeof path, "%s%s", w->prefix, suffix);
  if (cut == -2) assert_int_equal(unlink(path), 0);
}

static void test_every_fault_has_its_message(void **state) {
  struct world *w = *state;
  const struct index_text good = {
      I32, 3, 3, (int32_t[]){2, 0, 3}, (int64_t[]){0, 8, 8}, (int64_t[]){0, 1, 3}};
  const int32_t bin[5] = {1, 2, 3, 4, 5};
  unsigned char idx[IDX_BYTES + 8];
  moe_tokens *tokens;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    const struct fault *f = &faults[i];
    assert_int_equal(make_index(&good, idx), IDX_BYTES);
    memcpy(idx + f->at, &f->value, (size_t)f->bytes);
    put_or_remove(w, ".idx", idx, IDX_BYTES, f->idx_cut);
    put_or_remove(w, ".bin", bin, sizeof bin, f->bin_cut);
    FAILS(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens), f->status, f->text);
    FAILS(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens), f->status, w->prefix);
    assert_null(tokens);
  }
  make_index(&good, idx);
  put_or_remove(w, ".idx", idx, IDX_BYTES, -1);
  put_or_remove(w, ".bin", bin, sizeof bin, -1);
  OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens)); /* the patches are what failed */
  moe_tokens_close(tokens);
}

static void test_other_wrong_paths(void **state) {
  struct world *w = *state;
  moe_tokens *tokens;
  unsigned char idx[100];
  char path[400];
  FAILS(w->ctx, moe_tokens_open(w->ctx, "", &tokens), MOE_INVALID, "empty");
  FAILS(w->ctx, moe_tokens_open(w->ctx, NULL, &tokens), MOE_INVALID, "empty");
  snprintf(path, sizeof path, "%s.bin", w->prefix);
  FAILS(w->ctx, moe_tokens_open(w->ctx, path, &tokens), MOE_NOTFOUND, "give the prefix, without");
  write_file(w->prefix, ".bin", "12", 2);
  size_t n = make_index(&(struct index_text){U16, 0, 1, NULL, NULL, (int64_t[]){0}}, idx);
  write_file(w->prefix, ".idx", idx, n);
  FAILS(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens), MOE_FORMAT,
        "no tokens in 0 sequences");
  snprintf(path, sizeof path, "%s.idx", w->prefix);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0777), 0);
  FAILS(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens), MOE_IO, "not a regular file");
  assert_int_equal(rmdir(path), 0);
}

static void test_offsets_past_4_gib(void **state) {
  struct world *w = *state;
  const int64_t far = ((int64_t)5 << 30) + 2;
  unsigned char idx[100];
  char path[400];
  moe_tokens *tokens;
  const int32_t ids[3] = {1, 400, 65535};
  const uint16_t stored[3] = {1, 400, 65535};
  int32_t got[3];
  size_t n = make_index(&(struct index_text){U16, 2, 3, (int32_t[]){INT32_MAX, 3},
                                             (int64_t[]){0, far}, (int64_t[]){0, 1, 2}},
                        idx);
  write_file(w->prefix, ".idx", idx, n);
  snprintf(path, sizeof path, "%s.bin", w->prefix);
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  assert_int_equal(pwrite(fd, stored, sizeof stored, far), sizeof stored);
  close(fd);
  OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
  OK(w->ctx, moe_tokens_read(tokens, 1, 0, 3, got));
  assert_memory_equal(got, ids, sizeof ids);
  moe_tokens_close(tokens);
}

static void test_writer_refuses(void **state) {
  struct world *w = *state;
  moe_tokens_writer *writer;
  int32_t ids[2] = {1, 10};
  char path[600];
  FAILS(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, 0, &writer), MOE_INVALID, "vocab is 0");
  FAILS(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, (1LL << 31) + 1, &writer), MOE_INVALID,
        "vocab is 2147483649");
  FAILS(w->ctx, moe_tokens_writer_create(w->ctx, "", 1, &writer), MOE_INVALID, "empty");
  snprintf(path, sizeof path, "%s/none/data", w->folder);
  FAILS(w->ctx, moe_tokens_writer_create(w->ctx, path, 9, &writer), MOE_NOTFOUND, "must exist");
  OK(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, 10, &writer));
  FAILS(w->ctx, moe_tokens_writer_add(writer, ids, 2), MOE_INVALID,
        "token 1 of document 0 is 10, must be in [0, 10)");
  ids[1] = -1;
  FAILS(w->ctx, moe_tokens_writer_add(writer, ids, 2), MOE_INVALID, "is -1");
  FAILS(w->ctx, moe_tokens_writer_add(writer, ids, 1LL << 31), MOE_INVALID,
        "has 2147483648 tokens");
  OK(w->ctx, moe_tokens_writer_add(writer, ids, 0));
  FAILS(w->ctx, moe_tokens_writer_finish(writer), MOE_STATE, "no tokens were added");
  OK(w->ctx, moe_tokens_writer_add(writer, ids, 1)); /* a refusal is not the end */
  assert_int_equal(folder_files(w->folder, 0), 2);
  moe_tokens_writer_destroy(writer);
  assert_int_equal(folder_files(w->folder, 0), 0); /* not finished: nothing stays */
}

/* A disk that is full: here, the limit on the size of a file. */
static void test_writer_reports_a_full_disk(void **state) {
  struct world *w = *state;
  static int32_t ids[100000];
  struct rlimit old, small;
  moe_tokens_writer *writer;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  for (int documents = 1; documents <= 2; documents++) {
    small.rlim_cur = documents == 1 ? 100000 : 300000; /* within a write, or at the end of many */
    OK(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, 10, &writer));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    moe_status status = MOE_OK;
    for (int d = 0; d < documents && status == MOE_OK; d++)
      status = moe_tokens_writer_add(writer, ids, 100000);
    if (status == MOE_OK) status = moe_tokens_writer_finish(writer);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, MOE_IO);
    assert_non_null(strstr(moe_ctx_error(w->ctx), strerror(EFBIG)));
    assert_non_null(strstr(moe_ctx_error(w->ctx), w->prefix));
    FAILS(w->ctx, moe_tokens_writer_finish(writer), MOE_STATE, "an earlier write failed");
    FAILS(w->ctx, moe_tokens_writer_add(writer, ids, 1), MOE_STATE, "an earlier write failed");
    moe_tokens_writer_destroy(writer);
    assert_int_equal(folder_files(w->folder, 0), 0);
  }
}

static void test_writer_replaces_only_at_the_end(void **state) {
  struct world *w = *state;
  moe_tokens_writer *writer;
  moe_tokens *tokens;
  int32_t id;
  write_counting(w->ctx, w->prefix, 70, (int32_t[]){4}, 1);
  OK(w->ctx, moe_tokens_writer_create(w->ctx, w->prefix, 10, &writer));
  OK(w->ctx, moe_tokens_writer_add(writer, (int32_t[]){3}, 1));
  OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
  OK(w->ctx, moe_tokens_read(tokens, 0, 0, 1, &id));
  assert_int_equal(id, 70);
  OK(w->ctx, moe_tokens_writer_finish(writer));
  OK(w->ctx, moe_tokens_read(tokens, 0, 3, 1, &id)); /* what is mapped stays whole */
  assert_int_equal(id, 73);
  moe_tokens_close(tokens);
  moe_tokens_writer_destroy(writer);
  OK(w->ctx, moe_tokens_open(w->ctx, w->prefix, &tokens));
  OK(w->ctx, moe_tokens_read(tokens, 0, 0, 1, &id));
  assert_int_equal(id, 3);
  moe_tokens_close(tokens);
  assert_int_equal(folder_files(w->folder, 0), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WORLD_TEST(test_writes_the_known_bytes),
      WORLD_TEST(test_width_follows_the_vocabulary),
      WORLD_TEST(test_reads_every_integer_type),
      WORLD_TEST(test_ids_that_do_not_fit),
      WORLD_TEST(test_every_fault_has_its_message),
      WORLD_TEST(test_other_wrong_paths),
      WORLD_TEST(test_offsets_past_4_gib),
      WORLD_TEST(test_writer_refuses),
      WORLD_TEST(test_writer_reports_a_full_disk),
      WORLD_TEST(test_writer_replaces_only_at_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
