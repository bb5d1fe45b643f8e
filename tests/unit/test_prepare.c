/* Token files made from text files, read back, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "moelua/moelua.h"

static moe_ctx *ctx;
static char dir[64], in_path[2][96], prefix[96];

static int setup(void **state) {
  (void)state;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  strcpy(dir, "/tmp/moelua-prepare-XXXXXX");
  if (moe_ctx_create(&options, &ctx) != MOE_OK || mkdtemp(dir) == NULL) return 1;
  for (int i = 0; i < 2; i++) snprintf(in_path[i], sizeof in_path[i], "%s/in%d", dir, i);
  snprintf(prefix, sizeof prefix, "%s/out", dir);
  return 0;
}

static void unlink_output(void) {
  char path[128];
  snprintf(path, sizeof path, "%s.bin", prefix);
  unlink(path);
  snprintf(path, sizeof path, "%s.idx", prefix);
  unlink(path);
}

static int teardown(void **state) {
  (void)state;
  unlink_output();
  for (int i = 0; i < 2; i++) unlink(in_path[i]);
  moe_ctx_destroy(ctx);
  return rmdir(dir); /* fails where a temporary file was left */
}

static void write_in(int i, const char *text, size_t n) {
  FILE *f = fopen(in_path[i], "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static moe_prepare_config config_for(int32_t format, int32_t n_inputs) {
  static const char *inputs[2];
  for (int i = 0; i < 2; i++) inputs[i] = in_path[i];
  moe_prepare_config c;
  moe_prepare_config_init(&c);
  c.inputs = inputs;
  c.n_inputs = n_inputs;
  c.tokenizer = "bytes";
  c.output = prefix;
  c.format = format;
  return c;
}

static moe_prepare_report prepare(const moe_prepare_config *c) {
  moe_prepare_report report = {.size = sizeof report};
  if (moe_data_prepare(ctx, c, &report) != MOE_OK) fail_msg("%s", moe_ctx_error(ctx));
  return report;
}

/* want: the documents as text, each ended by id 256 where eod. */
static void check_documents(const char *const *want, int64_t n, bool eod) {
  moe_tokens *tokens;
  assert_int_equal(moe_tokens_open(ctx, prefix, &tokens), MOE_OK);
  moe_tokens_info info = {.size = sizeof info};
  assert_int_equal(moe_tokens_get_info(tokens, &info), MOE_OK);
  assert_int_equal(info.documents, n);
  assert_int_equal(info.id_bytes, 2);
  for (int64_t i = 0; i < n; i++) {
    int64_t length;
    int32_t ids[256];
    assert_int_equal(moe_tokens_length(tokens, i, &length), MOE_OK);
    assert_int_equal(length, (int64_t)strlen(want[i]) + eod);
    assert_int_equal(moe_tokens_read(tokens, i, 0, length, ids), MOE_OK);
    for (size_t k = 0; k < strlen(want[i]); k++) assert_int_equal(ids[k], (uint8_t)want[i][k]);
    if (eod) assert_int_equal(ids[length - 1], 256);
  }
  moe_tokens_close(tokens);
}

static void test_lines(void **state) {
  (void)state;
  const char *first = "\n\na\nb\n\n\r\nc\r\n\n", *second = "\xEF\xBB\xBF" "d\n \n\ne";
  write_in(0, first, strlen(first));
  write_in(1, second, strlen(second));
  moe_prepare_config c = config_for(MOE_PREPARE_LINES, 2);
  moe_prepare_report r = prepare(&c);
  static const char *const want[] = {"a\nb\n", "c\r\n", "d\n \n", "e"};
  check_documents(want, 4, true);
  assert_int_equal(r.documents, 4);
  assert_int_equal(r.tokens, 4 + 3 + 4 + 1 + 4);
  assert_int_equal(r.bytes, (int64_t)(strlen(first) + strlen(second)));
  assert_int_equal(r.bytes_total, r.bytes);
  c.separator = "a";
  c.append_eod = 0;
  c.n_inputs = 1;
  prepare(&c);
  static const char *const other[] = {"\n\n", "b\n\n\r\nc\r\n\n"};
  check_documents(other, 2, false);
}

static void test_files(void **state) {
  (void)state;
  write_in(0, "a\n\nb", 4);
  write_in(1, "", 0);
  moe_prepare_config c = config_for(MOE_PREPARE_FILE, 2);
  moe_prepare_report r = prepare(&c);
  static const char *const want[] = {"a\n\nb"};
  check_documents(want, 1, true);
  assert_int_equal(r.empty, 1);
}

static void test_jsonl(void **state) {
  (void)state;
  const char *text =
      "{\"text\":\"a\\nb\",\"id\":1}\n\n  \r\n"
      "{\"text\":\"\"}\n{\"id\":2,\"text\":\"\\u4f60\"}";
  write_in(0, text, strlen(text));
  moe_prepare_config c = config_for(MOE_PREPARE_JSONL, 1);
  moe_prepare_report r = prepare(&c);
  static const char *const want[] = {"a\nb", "\xE4\xBD\xA0"};
  check_documents(want, 2, true);
  assert_int_equal(r.empty, 1);
}

/* Documents that cross the reader's blocks, and lines longer than one. */
static void test_long_lines(void **state) {
  (void)state;
  size_t n = 300001;
  char *text = malloc(n);
  assert_non_null(text);
  memset(text, 'x', n);
  text[65535] = text[65536] = text[200000] = '\n';
  write_in(0, text, n);
  free(text);
  moe_prepare_config c = config_for(MOE_PREPARE_LINES, 1);
  moe_prepare_report r = prepare(&c);
  assert_int_equal(r.documents, 2);
  assert_int_equal(r.tokens, 65536 + 1 + 300001 - 65537 + 1);
}

static void test_tokenizer_file(void **state) {
  (void)state;
  write_in(0, "Hello world!\n\nbad \xFF\n", 20);
  moe_prepare_config c = config_for(MOE_PREPARE_LINES, 1);
  c.tokenizer = "tests/vectors/tokenizers/qwen.json";
  moe_prepare_report r = prepare(&c);
  assert_int_equal(r.documents, 2);
  assert_int_equal(r.repaired, 1);
  moe_tokens *tokens;
  assert_int_equal(moe_tokens_open(ctx, prefix, &tokens), MOE_OK);
  moe_tokens_info info = {.size = sizeof info};
  assert_int_equal(moe_tokens_get_info(tokens, &info), MOE_OK);
  assert_int_equal(info.tokens, r.tokens);
  moe_tokenizer *t;
  assert_int_equal(moe_tokenizer_open(ctx, c.tokenizer, &t), MOE_OK);
  int32_t ids[64];
  int64_t length;
  const char *text;
  size_t bytes;
  assert_int_equal(moe_tokens_length(tokens, 0, &length), MOE_OK);
  assert_int_equal(moe_tokens_read(tokens, 0, 0, length, ids), MOE_OK);
  assert_int_equal(moe_tokenizer_decode(t, ids, length, 0, &text, &bytes), MOE_OK);
  assert_string_equal(text, "Hello world!\n<|endoftext|>");
  moe_tokenizer_close(t);
  moe_tokens_close(tokens);
}

static int32_t stop_at_once(void *user, const moe_prepare_report *report) {
  (void)report;
  return ++*(int32_t *)user;
}

static void expect(const moe_prepare_config *c, moe_status want, const char *words) {
  unlink_output();
  moe_status status = moe_data_prepare(ctx, c, NULL);
  if (status != want || !strstr(moe_ctx_error(ctx), words))
    fail_msg("%s: %s, want %s: %s", moe_status_name(status), moe_ctx_error(ctx),
             moe_status_name(want), words);
  char path[128];
  snprintf(path, sizeof path, "%s.bin", prefix);
  assert_int_not_equal(access(path, F_OK), 0);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
    int32_t format;
    moe_status status;
  } cases[] = {{"", "no text in 1 file", MOE_PREPARE_FILE, MOE_INVALID},
               {"\n\n\n", "no text", MOE_PREPARE_LINES, MOE_INVALID},
               {"{\"text\":\"a\"}\n{\"text\":", "in0:2: ", MOE_PREPARE_JSONL, MOE_FORMAT},
               {"\n\n{\"txt\":\"a\"}", "in0:3: must be an object with a string \"text\"",
                MOE_PREPARE_JSONL, MOE_FORMAT},
               {"{\"text\":3}", "in0:1: ", MOE_PREPARE_JSONL, MOE_FORMAT},
               {"[\"text\"]", "in0:1: must be a JSON object", MOE_PREPARE_JSONL, MOE_FORMAT},
               {"{\"text\":\"\xFF\"}", "in0:1: ", MOE_PREPARE_JSONL, MOE_FORMAT}};
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    write_in(0, cases[i].text, strlen(cases[i].text));
    moe_prepare_config c = config_for(cases[i].format, 1);
    expect(&c, cases[i].status, cases[i].words);
  }
  write_in(0, "text", 4);
  moe_prepare_config c = config_for(MOE_PREPARE_FILE, 1);
  int32_t calls = 0;
  c.progress = stop_at_once;
  c.progress_user = &calls;
  expect(&c, MOE_STATE, "stopped");
  assert_int_equal(calls, 1);
  c = config_for(MOE_PREPARE_FILE, 0);
  expect(&c, MOE_INVALID, "no file given");
  c = config_for(3, 1);
  expect(&c, MOE_INVALID, "format is 3");
  c = config_for(MOE_PREPARE_LINES, 1);
  c.separator = "a\n";
  expect(&c, MOE_INVALID, "separator");
  c = config_for(MOE_PREPARE_FILE, 1);
  c.inputs = (const char *const[]){dir};
  expect(&c, MOE_IO, "is a folder");
  c.inputs = (const char *const[]){"/nonexistent/text"};
  expect(&c, MOE_NOTFOUND, "/nonexistent/text");
  c = config_for(MOE_PREPARE_FILE, 1);
  c.output = "/nonexistent/out";
  expect(&c, MOE_NOTFOUND, "/nonexistent/out");
  c = config_for(MOE_PREPARE_FILE, 1);
  c.size = 0;
  expect(&c, MOE_INVALID, "size");
  write_in(0, "Hell\xC3\xB6", 6);
  c = config_for(MOE_PREPARE_FILE, 1);
  c.tokenizer = "/nonexistent.json";
  expect(&c, MOE_NOTFOUND, "/nonexistent.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines),          cmocka_unit_test(test_files),
      cmocka_unit_test(test_jsonl),          cmocka_unit_test(test_long_lines),
      cmocka_unit_test(test_tokenizer_file), cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
