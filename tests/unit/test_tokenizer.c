/* Tokenizers against ids written by Hugging Face `tokenizers` (tests/vectors/tokenizers), known
 * answers, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "data/bpe.h"
#include "data/utf8.h"
#include "moelua/moelua.h"

#define VECTORS "tests/vectors/tokenizers/"

static moe_ctx *ctx;

static int setup(void **state) {
  (void)state;
  moe_ctx_options options;
  moe_ctx_options_init(&options);
  options.threads = 1;
  return moe_ctx_create(&options, &ctx) != MOE_OK;
}

static int teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return 0;
}

static moe_tokenizer *open_ok(const char *path) {
  moe_tokenizer *t;
  if (moe_tokenizer_open(ctx, path, &t) != MOE_OK) fail_msg("%s", moe_ctx_error(ctx));
  return t;
}

/* ---- vectors ---- */

static void check_ids(moe_tokenizer *t, const char *name, size_t i, const json_t *text,
                      const json_t *want, int32_t add_special) {
  const int32_t *ids;
  int64_t n;
  if (moe_tokenizer_encode(t, json_string_value(text), json_string_length(text), add_special, &ids,
                           &n) != MOE_OK)
    fail_msg("%s case %zu: %s", name, i, moe_ctx_error(ctx));
  size_t differ = 0, size = json_array_size(want);
  while (differ < size && differ < (size_t)n &&
         ids[differ] == json_integer_value(json_array_get(want, differ)))
    differ++;
  if (differ < size || (size_t)n != size)
    fail_msg("%s case %zu \"%s\": id %zu is %d, want %d (%d ids, want %zu)", name, i,
             json_string_value(text), differ, differ < (size_t)n ? ids[differ] : -1,
             (int)json_integer_value(json_array_get(want, differ)), (int)n, size);
}

static void check_text(moe_tokenizer *t, const char *name, size_t i, const json_t *ids,
                       const json_t *want, int32_t skip) {
  int32_t list[4096];
  size_t n = json_array_size(ids), bytes;
  const char *text;
  assert_true(n <= MOE_COUNTOF(list));
  for (size_t k = 0; k < n; k++) list[k] = (int32_t)json_integer_value(json_array_get(ids, k));
  if (moe_tokenizer_decode(t, list, (int64_t)n, skip, &text, &bytes) != MOE_OK)
    fail_msg("%s case %zu: %s", name, i, moe_ctx_error(ctx));
  if (bytes != json_string_length(want) || memcmp(text, json_string_value(want), bytes) != 0)
    fail_msg("%s case %zu: decoded \"%s\", want \"%s\"", name, i, text, json_string_value(want));
  assert_int_equal(text[bytes], 0);
}

static const json_t *or_else(const json_t *object, const char *key, const json_t *other) {
  const json_t *value = json_object_get(object, key);
  return value ? value : other;
}

static void check_vectors(const char *name) {
  char path[256];
  snprintf(path, sizeof path, VECTORS "%s.json", name);
  moe_tokenizer *t = open_ok(path);
  snprintf(path, sizeof path, VECTORS "%s.cases.json", name);
  json_t *cases = json_load_file(path, JSON_ALLOW_NUL, NULL);
  assert_true(json_array_size(cases) > 30);
  for (int round = 0; round < 2; round++) /* the second finds pieces in the cache */
    for (size_t i = 0; i < json_array_size(cases); i++) {
      const json_t *c = json_array_get(cases, i);
      const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
      const json_t *special = or_else(c, "special", ids), *decoded = or_else(c, "decoded", text);
      check_ids(t, name, i, text, ids, 0);
      check_ids(t, name, i, text, special, 1);
      check_text(t, name, i, special, decoded, 0);
      check_text(t, name, i, special, or_else(c, "skipped", decoded), 1);
    }
  json_decref(cases);
  moe_tokenizer_close(t);
}

static void test_vectors(void **state) {
  (void)state;
  static const char *const names[] = {
      "qwen",           "gpt2",           "gptoss",           "deepseek",
      "split_isolated", "split_removed",  "split_contiguous", "split_merged_with_previous",
      "split_merged_with_next", "mixtral", "metaspace_always", "metaspace_first",
      "metaspace_never"};
  for (size_t i = 0; i < MOE_COUNTOF(names); i++) check_vectors(names[i]);
}

/* ---- bytes ---- */

static void test_bytes(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    moe_tokenizer *t = open_ok(i ? "bytes" : NULL);
    assert_int_equal(moe_tokenizer_vocab(t), 257);
    assert_int_equal(moe_tokenizer_eod(t), 256);
    const int32_t *ids;
    int64_t n;
    assert_int_equal(moe_tokenizer_encode(t, "a\0\xFF", 3, 1, &ids, &n), MOE_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 'a');
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], 255);
    const int32_t with_eod[] = {'a', 0, 256, 255};
    const char *text;
    size_t bytes;
    assert_int_equal(moe_tokenizer_decode(t, with_eod, 4, 1, &text, &bytes), MOE_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "a\0\xFF", 4);
    const int32_t bad[] = {257};
    assert_int_equal(moe_tokenizer_decode(t, bad, 1, 0, &text, &bytes), MOE_INVALID);
    assert_non_null(strstr(moe_ctx_error(ctx), "257"));
    moe_tokenizer_close(t);
  }
}

/* ---- what open says of a file ---- */

static void test_ends_of_documents(void **state) {
  (void)state;
  static const struct {
    const char *file, *eod;
    int64_t vocab;
  } cases[] = {{VECTORS "qwen.json", "<|endoftext|>", 0},
               {VECTORS "mixtral.json", "</s>", 1000},
               {VECTORS "deepseek.json", "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence"
                                         "\xEF\xBD\x9C>", 702},
               {VECTORS "split_removed.json", NULL, 300}};
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    moe_tokenizer *t = open_ok(cases[i].file);
    int32_t eod = moe_tokenizer_eod(t);
    if (cases[i].vocab) assert_int_equal(moe_tokenizer_vocab(t), cases[i].vocab);
    assert_true(cases[i].eod ? eod >= 0 : eod == -1);
    const char *text;
    size_t bytes;
    if (cases[i].eod) {
      assert_int_equal(moe_tokenizer_decode(t, &eod, 1, 0, &text, &bytes), MOE_OK);
      assert_string_equal(text, cases[i].eod);
    }
    moe_tokenizer_close(t);
  }
}

/* ---- the published example of Mixtral, from a vocabulary with holes ---- */

static void test_mixtral_hello(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int32_t ids[8];
    int64_t n;
  } cases[] = {{"Hello world!", {1, 22557, 1526, 28808}, 4},
               {"Hello", {1, 22557}, 2},
               {"", {1}, 1},
               {"world", {1, 1526}, 2},
               {"Hello  world", {1, 22557, 28705, 1526}, 4},
               {"\xE4\xBD\xA0", {1, 28705, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0}, 5},
               {"</s>!", {1, 2, 28705, 28808}, 4}};
  moe_tokenizer *t = open_ok(VECTORS "mixtral_hello.json");
  assert_int_equal(moe_tokenizer_vocab(t), 28809);
  assert_int_equal(moe_tokenizer_eod(t), 2);
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    const int32_t *ids;
    int64_t n;
    assert_int_equal(
        moe_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), 1, &ids, &n), MOE_OK);
    assert_int_equal(n, cases[i].n);
    for (int64_t k = 0; k < n; k++) assert_int_equal(ids[k], cases[i].ids[k]);
  }
  const char *text;
  size_t bytes;
  assert_int_equal(moe_tokenizer_decode(t, cases[0].ids, 4, 1, &text, &bytes), MOE_OK);
  assert_string_equal(text, "Hello world!");
  const int32_t hole[] = {1, 5000};
  assert_int_equal(moe_tokenizer_decode(t, hole, 2, 0, &text, &bytes), MOE_INVALID);
  assert_non_null(strstr(moe_ctx_error(ctx), "5000"));
  const int32_t negative[] = {-1};
  assert_int_equal(moe_tokenizer_decode(t, negative, 1, 0, &text, &bytes), MOE_INVALID);
  moe_tokenizer_close(t);
}

/* ---- ill-formed UTF-8 ---- */

/* Expected texts: Unicode 15 section 3.9 tables 3-8 to 3-11 and their kind; the same as Python's
 * decode("utf-8", "replace"). */
static void test_utf8_repair(void **state) {
  (void)state;
#define R "\xEF\xBF\xBD"
  static const struct {
    const char *in, *out;
  } cases[] = {{"plain", "plain"},
               {"a\xFFz", "a" R "z"},
               {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
               {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
               {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
               {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
               {"\xE4\xBD", R},
               {"x\xF0\x9F\x98", "x" R},
               {"12345678\xE4\xBD\xA0\x80", "12345678\xE4\xBD\xA0" R}};
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++) {
    struct moe_text out;
    moe_text_init(ctx, &out);
    moe_utf8_repair(&out, cases[i].in, strlen(cases[i].in));
    assert_string_equal(out.s, cases[i].out);
    assert_int_equal(moe_utf8_valid(out.s, out.len), out.len);
    moe_text_destroy(&out);
  }
  moe_tokenizer *t = open_ok(VECTORS "qwen.json");
  const int32_t *ids;
  int64_t n, m;
  int32_t first[8];
  assert_int_equal(moe_tokenizer_encode(t, "a\xFFz", 3, 0, &ids, &n), MOE_OK);
  assert_true(n <= 8);
  memcpy(first, ids, (size_t)n * sizeof *ids);
  assert_int_equal(moe_tokenizer_encode(t, "a" R "z", 5, 0, &ids, &m), MOE_OK);
  assert_int_equal(n, m);
  assert_memory_equal(ids, first, (size_t)n * sizeof *ids);
  moe_tokenizer_close(t);
#undef R
}

static void test_byte_alphabet(void **state) {
  (void)state;
  bool seen[324] = {false};
  for (int b = 0; b < 256; b++) {
    int32_t c = moe_byte_alphabet_char((uint8_t)b);
    assert_true(c > 32 && c < 324 && !seen[c]);
    seen[c] = true;
    assert_int_equal(moe_byte_alphabet_byte(c), b);
  }
  assert_int_equal(moe_byte_alphabet_char(' '), 0x120);
  assert_int_equal(moe_byte_alphabet_char('\n'), 0x10A);
  assert_int_equal(moe_byte_alphabet_char(0xAD), 0x143);
  for (int32_t c = 0; c < 324; c++) assert_int_equal(moe_byte_alphabet_byte(c) >= 0, seen[c]);
  assert_int_equal(moe_byte_alphabet_byte(324), -1);
}

/* ---- files that must be refused ---- */

static char file[64]; /* a temporary file's name */

static void write_file(const char *text, size_t n) {
  FILE *f = fopen(file, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static int setup_file(void **state) {
  (void)state;
  strcpy(file, "/tmp/moelua-tokenizer-XXXXXX");
  int fd = mkstemp(file);
  return fd < 0 || close(fd) != 0;
}

static int teardown_file(void **state) {
  (void)state;
  return unlink(file);
}

static void expect_refused(const char *text, size_t n, moe_status want, const char *words) {
  moe_tokenizer *t;
  write_file(text, n);
  moe_status status = moe_tokenizer_open(ctx, file, &t);
  if (status != want)
    fail_msg("%.300s: status %s, want %s (%s)", text, moe_status_name(status),
             moe_status_name(want), moe_ctx_error(ctx));
  assert_null(t);
  if (!strstr(moe_ctx_error(ctx), words) || !strstr(moe_ctx_error(ctx), file))
    fail_msg("%.300s: \"%s\" does not say \"%s\"", text, moe_ctx_error(ctx), words);
}

#define MODEL(vocab, merges, more) \
  "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges more "}"
#define AB MODEL("{\"a\":0,\"b\":1,\"ab\":2}", "[]", "")
#define CUT(part) "{" AB ",\"pre_tokenizer\":" part "}"
#define SPLIT(regex) \
  CUT("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"}")
#define ADDED(list) "{" AB ",\"added_tokens\":" list "}"
#define TEMPLATE(single) \
  "{" AB ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":" \
  "{\"x\":{\"id\":\"x\",\"ids\":[9]}},\"single\":" single "}}"

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text;
    moe_status status;
    const char *words;
  } cases[] = {
      {"", MOE_FORMAT, "line 1"},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,", MOE_FORMAT, "end of file"},
      {"[]", MOE_FORMAT, "must be an object"},
      {"{}", MOE_FORMAT, "model: must be an object"},
      {"{\"version\":\"2.0\"}", MOE_UNSUPPORTED, "version"},
      {"{\"model\":{\"type\":\"WordPiece\"}}", MOE_UNSUPPORTED, "WordPiece"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", MOE_UNSUPPORTED, "only \"BPE\""},
      {"{\"model\":{\"type\":3}}", MOE_FORMAT, "\"type\" must be a string"},
      {"{" MODEL("[]", "[]", "") "}", MOE_FORMAT, "model.vocab: must be an object"},
      {"{" MODEL("{}", "[]", "") "}", MOE_FORMAT, "model.vocab: has no entries"},
      {"{" MODEL("{\"a\":0,\"a\":1}", "[]", "") "}", MOE_FORMAT, "duplicate"},
      {"{" MODEL("{\"a\":0,\"b\":0}", "[]", "") "}", MOE_FORMAT, "id 0 belongs to both"},
      {"{" MODEL("{\"a\":-1}", "[]", "") "}", MOE_FORMAT, "is -1, must be from 0"},
      {"{" MODEL("{\"a\":2000000000}", "[]", "") "}", MOE_FORMAT, "2000000000, must be from 0"},
      {"{" MODEL("{\"a\":9223372036854775807}", "[]", "") "}", MOE_FORMAT, "must be from 0"},
      {"{" MODEL("{\"a\":99999999999999999999}", "[]", "") "}", MOE_FORMAT, "too big"},
      {"{" MODEL("{\"a\":1.5}", "[]", "") "}", MOE_FORMAT, "whole number"},
      {"{" MODEL("{\"a\":\"0\"}", "[]", "") "}", MOE_FORMAT, "whole number"},
      {"{" MODEL("{\"a\":0}", "{}", "") "}", MOE_FORMAT, "model.merges: must be an array"},
      {"{" MODEL("{\"a\":0}", "[\"ax\"]", "") "}", MOE_FORMAT, "model.merges: [0]"},
      {"{" MODEL("{\"a\":0}", "[\"a b c\"]", "") "}", MOE_FORMAT, "model.merges: [0]"},
      {"{" MODEL("{\"a\":0}", "[[\"a\"]]", "") "}", MOE_FORMAT, "model.merges: [0]"},
      {"{" MODEL("{\"a\":0}", "[[\"a\",1]]", "") "}", MOE_FORMAT, "model.merges: [0]"},
      {"{" MODEL("{\"a\":0}", "[7]", "") "}", MOE_FORMAT, "model.merges: [0]"},
      {"{" MODEL("{\"a\":0}", "[\"a b\"]", "") "}", MOE_FORMAT, "\"b\", which is not in"},
      {"{" MODEL("{\"b\":0}", "[\"a b\"]", "") "}", MOE_FORMAT, "\"a\", which is not in"},
      {"{" MODEL("{\"a\":0,\"b\":1}", "[\"a b\"]", "") "}", MOE_FORMAT, "\"ab\", which is not in"},
      {"{" MODEL("{\"a\":0}", "[]", ",\"dropout\":0.1") "}", MOE_UNSUPPORTED, "dropout"},
      {"{" MODEL("{\"a\":0}", "[]", ",\"fuse_unk\":3") "}", MOE_FORMAT, "fuse_unk"},
      {"{" MODEL("{\"a\":0}", "[]", ",\"byte_fallback\":true") "}", MOE_FORMAT, "<0x00>"},
      {"{" MODEL("{\"a\":0}", "[]", ",\"end_of_word_suffix\":\"</w>\"") "}", MOE_UNSUPPORTED,
       "end_of_word_suffix"},
      {"{" MODEL("{\"a\":0}", "[]", ",\"continuing_subword_prefix\":\"##\"") "}", MOE_UNSUPPORTED,
       "continuing_subword_prefix"},
      {"{" AB ",\"normalizer\":{\"type\":\"Lowercase\"}}", MOE_UNSUPPORTED, "normalizer: type"},
      {"{" AB ",\"normalizer\":{}}", MOE_FORMAT, "normalizer: \"type\""},
      {"{" AB ",\"normalizer\":[]}", MOE_FORMAT, "normalizer: must be an object"},
      {"{" AB ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},"
       "\"content\":\"\"}}", MOE_FORMAT, "normalizer.pattern: is empty"},
      {"{" AB ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},"
       "\"content\":\"\"}}", MOE_UNSUPPORTED, "Regex"},
      {CUT("{\"type\":\"BertPreTokenizer\"}"), MOE_UNSUPPORTED, "pre_tokenizer: type \"BertPre"},
      {CUT("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Whitespace\"}]}"),
       MOE_UNSUPPORTED, "pre_tokenizer.pretokenizers[0]: type \"Whitespace\""},
      {CUT("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
           "{\"type\":\"Digits\"}]}"), MOE_UNSUPPORTED, "ByteLevel must be last"},
      {CUT("{\"type\":\"Sequence\"}"), MOE_FORMAT, "pretokenizers: must be an array"},
      {CUT("{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), MOE_FORMAT, "one character"},
      {CUT("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"),
       MOE_FORMAT, "prepend_scheme"},
      {CUT("{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"}"), MOE_FORMAT,
       "pre_tokenizer.pattern"},
      {CUT("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Dropped\"}"),
       MOE_UNSUPPORTED, "behavior \"Dropped\""},
      {SPLIT("(a"), MOE_FORMAT, "pre_tokenizer: bad regex"},
      {SPLIT("[a"), MOE_FORMAT, "bad regex"},
      {SPLIT("a\\\\"), MOE_FORMAT, "backslash"},
      {SPLIT("a*"), MOE_UNSUPPORTED, "match nothing"},
      {SPLIT("\\\\h+"), MOE_UNSUPPORTED, "\\h"},
      {SPLIT("a\\\\b"), MOE_UNSUPPORTED, "\\b"},
      {SPLIT("[a[b]]"), MOE_UNSUPPORTED, "[b"},
      {SPLIT("[\\\\w&&a]"), MOE_UNSUPPORTED, "&&"},
      {SPLIT("(?m:a)"), MOE_UNSUPPORTED, "(?m"},
      {SPLIT("(*UCP)a"), MOE_UNSUPPORTED, "(*"},
      {SPLIT("a{1,2}+"), MOE_UNSUPPORTED, "}+"},
      {SPLIT("\\\\x41"), MOE_UNSUPPORTED, "\\x"},
      {SPLIT("\\\\p{Klingon}"), MOE_FORMAT, "bad regex"},
      {ADDED("{}"), MOE_FORMAT, "added_tokens: must be an array"},
      {ADDED("[3]"), MOE_FORMAT, "added_tokens[0]: must be an object"},
      {ADDED("[{\"id\":3}]"), MOE_FORMAT, "added_tokens[0]: \"content\""},
      {ADDED("[{\"content\":\"x\"}]"), MOE_FORMAT, "added_tokens[0]: the id of \"x\""},
      {ADDED("[{\"content\":\"x\",\"id\":-2}]"), MOE_FORMAT, "is -2"},
      {ADDED("[{\"content\":\"x\",\"id\":4294967296}]"), MOE_FORMAT, "4294967296"},
      {ADDED("[{\"content\":\"x\",\"id\":1}]"), MOE_FORMAT, "taken by \"b\""},
      {ADDED("[{\"content\":\"a\",\"id\":7}]"), MOE_FORMAT, "id 7 here and 0 in model.vocab"},
      {ADDED("[{\"content\":\"x\",\"id\":3},{\"content\":\"y\",\"id\":3}]"), MOE_FORMAT,
       "added_tokens[1]: id 3 of \"y\" is taken by \"x\""},
      {ADDED("[{\"content\":\"\",\"id\":3}]"), MOE_FORMAT, "\"content\" is empty"},
      {"{" AB ",\"post_processor\":{\"type\":\"BertProcessing\"}}", MOE_UNSUPPORTED,
       "post_processor: type"},
      {TEMPLATE("3"), MOE_FORMAT, "post_processor.single"},
      {TEMPLATE("[]"), MOE_UNSUPPORTED, "0 times"},
      {TEMPLATE("[{\"SpecialToken\":{\"id\":\"y\"}}]"), MOE_FORMAT, "no ids for \"y\""},
      {TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\"}}]"), MOE_FORMAT, "not in the vocabulary"},
      {"{" AB ",\"decoder\":{\"type\":\"WordPiece\"}}", MOE_UNSUPPORTED, "decoder: type"},
      {"{" AB ",\"decoder\":{\"type\":\"Strip\",\"content\":\"\"}}", MOE_FORMAT, "decoder: \"con"},
  };
  for (size_t i = 0; i < MOE_COUNTOF(cases); i++)
    expect_refused(cases[i].text, strlen(cases[i].text), cases[i].status, cases[i].words);
}

static void test_deep_nesting(void **state) {
  (void)state;
  struct moe_text text;
  moe_text_init(ctx, &text);
  for (int i = 0; i < 100000; i++) moe_text_append(&text, "[", 1);
  expect_refused(text.s, text.len, MOE_FORMAT, "depth");
  moe_text_destroy(&text);
  moe_text_add(&text, "{%s,\"normalizer\":", AB);
  for (int i = 0; i < 500; i++)
    moe_text_add(&text, "{\"type\":\"Sequence\",\"normalizers\":[");
  for (int i = 0; i < 500; i++) moe_text_add(&text, "]}");
  moe_text_add(&text, "}");
  expect_refused(text.s, text.len, MOE_UNSUPPORTED, "nested");
  moe_text_destroy(&text);
  moe_text_add(&text, "{%s,\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", AB);
  for (int i = 0; i < 100; i++) moe_text_add(&text, "%s{\"type\":\"NFC\"}", i ? "," : "");
  moe_text_add(&text, "]}}");
  expect_refused(text.s, text.len, MOE_UNSUPPORTED, "more than 16 steps");
  moe_text_destroy(&text);
}

static void test_missing_files(void **state) {
  (void)state;
  moe_tokenizer *t;
  assert_int_equal(moe_tokenizer_open(ctx, "/nonexistent/tokenizer.json", &t), MOE_NOTFOUND);
  assert_non_null(strstr(moe_ctx_error(ctx), "/nonexistent/tokenizer.json"));
  assert_int_equal(moe_tokenizer_open(ctx, "/tmp", &t), MOE_IO);
  assert_null(t);
}

/* A character that no entry and no unknown token can stand for is not dropped silently. */
static void test_unknown_characters(void **state) {
  (void)state;
  const char *text = "{" AB "}";
  write_file(text, strlen(text));
  moe_tokenizer *t = open_ok(file);
  const int32_t *ids;
  int64_t n;
  assert_int_equal(moe_tokenizer_encode(t, "abc", 3, 0, &ids, &n), MOE_UNSUPPORTED);
  assert_non_null(strstr(moe_ctx_error(ctx), "U+0063"));
  assert_int_equal(moe_tokenizer_encode(t, "ab", 2, 0, &ids, &n), MOE_OK);
  assert_int_equal(n, 2); /* no merge makes "ab" */
  moe_tokenizer_close(t);
  text = CUT("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}");
  write_file(text, strlen(text));
  t = open_ok(file);
  assert_int_equal(moe_tokenizer_encode(t, "ab ", 3, 0, &ids, &n), MOE_UNSUPPORTED);
  assert_non_null(strstr(moe_ctx_error(ctx), "0x20"));
  moe_tokenizer_close(t);
}

/* A file damaged anywhere opens or is refused, and one that opens encodes or refuses. */
static void test_mutations(void **state) {
  (void)state;
  static const char *const names[] = {VECTORS "split_removed.json", VECTORS "metaspace_first.json",
                                      VECTORS "mixtral_hello.json"};
  static const char *const bits[] = {"\"", "{", "}", "[", "]", ",", ":", "-", "null", "true", "1e9",
                                     "999999999999", "\\u0000", "\\", "", "\xFF", "Sequence"};
  uint64_t seed = 12345;
  int opened = 0;
  for (size_t f = 0; f < MOE_COUNTOF(names); f++) {
    FILE *in = fopen(names[f], "rb");
    assert_non_null(in);
    static char text[32768], changed[32768 + 64];
    size_t n = fread(text, 1, sizeof text, in);
    fclose(in);
    for (int round = 0; round < 300; round++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      size_t at = (size_t)(seed >> 33) % n, cut = (size_t)(seed >> 20) % 4;
      if (round % 2) at %= 900; /* the parts before the vocabulary */
      const char *bit = bits[(seed >> 50) % MOE_COUNTOF(bits)];
      if (cut > n - at) cut = n - at;
      memcpy(changed, text, at);
      memcpy(changed + at, bit, strlen(bit));
      memcpy(changed + at + strlen(bit), text + at + cut, n - at - cut);
      write_file(changed, n - cut + strlen(bit));
      moe_tokenizer *t;
      if (moe_tokenizer_open(ctx, file, &t) != MOE_OK) {
        assert_null(t);
        assert_int_not_equal(moe_ctx_error(ctx)[0], 0);
        continue;
      }
      opened++;
      const int32_t *ids;
      int64_t count;
      size_t bytes;
      const char *s = "Hello  world! <s>\n 12 e\xCC\x81 \xE4\xBD\xA0\xF0\x9F\x98\x80", *back;
      if (moe_tokenizer_encode(t, s, strlen(s), 1, &ids, &count) == MOE_OK)
        assert_int_equal(moe_tokenizer_decode(t, ids, count, 0, &back, &bytes), MOE_OK);
      moe_tokenizer_close(t);
    }
  }
  assert_true(opened > 20); /* else this tests the JSON reader only */
}

/* ---- time ---- */

/* Processor time, the shorter of two runs. */
static double seconds(moe_tokenizer *t, const char *pattern, size_t bytes) {
  char *text = malloc(bytes);
  assert_non_null(text);
  size_t n = strlen(pattern);
  for (size_t i = 0; i < bytes; i++) text[i] = pattern[i % n];
  const int32_t *ids;
  int64_t count;
  double best = 1e9;
  for (int i = 0; i < 2; i++) {
    clock_t start = clock();
    assert_int_equal(moe_tokenizer_encode(t, text, bytes, 0, &ids, &count), MOE_OK);
    double took = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (took < best) best = took;
  }
  free(text);
  return best;
}

/* Ten times the text takes about ten times as long: quadratic work would take a hundred times, and
 * many seconds. Other processes disturb caches, so a bad ratio is measured again. */
static void test_linear_time(void **state) {
  (void)state;
  static const char *const names[] = {VECTORS "qwen.json", VECTORS "gptoss.json",
                                      VECTORS "mixtral.json", VECTORS "metaspace_never.json"};
  static const char *const patterns[] = {"a", " ", "\xE4\xBD\xA0", "<", "A", "the model. ", "\n ",
                                         "\xE2\x96\x81", "<|im_", "1"};
  for (size_t i = 0; i < MOE_COUNTOF(names); i++) {
    moe_tokenizer *t = open_ok(names[i]);
    for (size_t k = 0; k < MOE_COUNTOF(patterns); k++) {
      double small = 0, large = 1;
      for (int round = 0; round < 5 && large > 30 * small + 0.05; round++) {
        small = seconds(t, patterns[k], 30000);
        large = seconds(t, patterns[k], 300000);
      }
      if (large > 30 * small + 0.05)
        fail_msg("%s, text of \"%s\": %.4f s for 30 kB, %.4f s for 300 kB", names[i], patterns[k],
                 small, large);
    }
    moe_tokenizer_close(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_ends_of_documents),
      cmocka_unit_test(test_mixtral_hello),
      cmocka_unit_test(test_utf8_repair),
      cmocka_unit_test(test_byte_alphabet),
      cmocka_unit_test_setup_teardown(test_refusals, setup_file, teardown_file),
      cmocka_unit_test_setup_teardown(test_deep_nesting, setup_file, teardown_file),
      cmocka_unit_test(test_missing_files),
      cmocka_unit_test_setup_teardown(test_unknown_characters, setup_file, teardown_file),
      cmocka_unit_test_setup_teardown(test_mutations, setup_file, teardown_file),
      cmocka_unit_test(test_linear_time),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
