/* Reads a tokenizer.json: the file, its vocabulary, merges and added tokens. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "data/tokenizer_parts.h"

/* ---- messages and members ---- */

struct moe_json_at moe_json_at(const struct moe_json_at *parent, const char *fmt, ...) {
  struct moe_json_at at = *parent;
  size_t n = strlen(at.field);
  va_list args;
  va_start(args, fmt);
  vsnprintf(at.field + n, sizeof at.field - n, fmt, args);
  va_end(args);
  return at;
}

moe_status moe_json_fail(const struct moe_json_at *at, moe_status status, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return moe_fail(at->ctx, status, "%s: %s: %s", at->path, at->field, text);
}

static moe_status wrong_type(const struct moe_json_at *at, const char *key, const char *want) {
  return moe_json_fail(at, MOE_FORMAT, "\"%s\" must be %s", key, want);
}

moe_status moe_json_bool(const struct moe_json_at *at, const struct json_t *object, const char *key,
                         bool fallback, bool *out) {
  const json_t *value = json_object_get(object, key);
  *out = fallback;
  if (value == NULL || json_is_null(value)) return MOE_OK;
  if (!json_is_boolean(value)) return wrong_type(at, key, "true or false");
  *out = json_is_true(value);
  return MOE_OK;
}

moe_status moe_json_int(const struct moe_json_at *at, const struct json_t *object, const char *key,
                        int64_t fallback, int64_t *out) {
  const json_t *value = json_object_get(object, key);
  *out = fallback;
  if (value == NULL || json_is_null(value)) return MOE_OK;
  if (!json_is_integer(value)) return wrong_type(at, key, "a whole number");
  *out = json_integer_value(value);
  return MOE_OK;
}

moe_status moe_json_string(const struct moe_json_at *at, const struct json_t *object,
                           const char *key, bool required, const char **out, size_t *n) {
  const json_t *value = json_object_get(object, key);
  *out = NULL;
  if (n) *n = 0;
  if (!required && (value == NULL || json_is_null(value))) return MOE_OK;
  if (!json_is_string(value)) return wrong_type(at, key, "a string");
  *out = json_string_value(value);
  if (n) *n = json_string_length(value);
  return MOE_OK;
}

moe_status moe_json_type(const struct moe_json_at *at, const struct json_t *object,
                         const char **out) {
  if (!json_is_object(object)) return moe_json_fail(at, MOE_FORMAT, "must be an object");
  return moe_json_string(at, object, "type", true, out, NULL);
}

/* ---- vocabulary ---- */

/* Memory follows the largest id, so it may exceed the number of entries only so far. */
static int64_t id_limit(size_t entries) { return 65536 + 16 * (int64_t)entries; }

static moe_status check_id(const struct moe_json_at *at, const char *token, const json_t *value,
                           int64_t limit) {
  if (!json_is_integer(value))
    return moe_json_fail(at, MOE_FORMAT, "the id of \"%.60s\" must be a whole number", token);
  int64_t id = json_integer_value(value);
  if (id < 0 || id >= limit)
    return moe_json_fail(at, MOE_FORMAT,
                         "the id of \"%.60s\" is %lld, must be from 0 to %lld for a vocabulary "
                         "of this size",
                         token, (long long)id, (long long)limit - 1);
  return MOE_OK;
}

static moe_status read_vocab(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *vocab,
                             size_t n_added, int64_t max_id) {
  const char *token;
  json_t *value;
  size_t entries = json_object_size(vocab);
  if (!json_is_object(vocab)) return moe_json_fail(at, MOE_FORMAT, "must be an object");
  if (entries == 0) return moe_json_fail(at, MOE_FORMAT, "has no entries");
  json_object_foreach(vocab, token, value) {
    MOE_TRY(check_id(at, token, value, id_limit(entries + n_added)));
    max_id = moe_max64(max_id, json_integer_value(value));
  }
  MOE_TRY(moe_vocab_reserve(&t->vocab, max_id + 1, entries));
  json_object_foreach(vocab, token, value) {
    int32_t id = (int32_t)json_integer_value(value);
    const struct moe_vocab_entry *other = moe_vocab_get(&t->vocab, id);
    if (other)
      return moe_json_fail(at, MOE_FORMAT, "id %d belongs to both \"%.*s\" and \"%.60s\"", id,
                           (int)moe_min64(other->bytes, 60), t->vocab.text.s + other->at, token);
    MOE_TRY(moe_vocab_add(&t->vocab, id, token, strlen(token), MOE_TOKEN_MODEL));
  }
  return MOE_OK;
}

/* ---- merges ---- */

struct pair {
  const char *left, *right;
  size_t n_left, n_right;
};

static moe_status read_pair(const struct moe_json_at *at, size_t i, const json_t *item,
                            struct pair *out) {
  if (json_is_string(item)) {
    const char *s = json_string_value(item);
    size_t n = json_string_length(item);
    const char *space = memchr(s, ' ', n);
    size_t k = space ? (size_t)(space - s) : 0;
    if (space && memchr(space + 1, ' ', n - k - 1) == NULL) {
      *out = (struct pair){s, space + 1, k, n - k - 1};
      return MOE_OK;
    }
  } else if (json_array_size(item) == 2) {
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_is_string(left) && json_is_string(right)) {
      *out = (struct pair){json_string_value(left), json_string_value(right),
                           json_string_length(left), json_string_length(right)};
      return MOE_OK;
    }
  }
  return moe_json_fail(at, MOE_FORMAT, "[%zu] must be [\"a\", \"b\"] or \"a b\"", i);
}

static moe_status read_merge(struct moe_tokenizer *t, const struct moe_json_at *at, size_t i,
                             const struct pair *pair, struct moe_text *joined) {
  joined->len = 0;
  moe_text_append(joined, pair->left, pair->n_left);
  moe_text_append(joined, pair->right, pair->n_right);
  if (joined->failed) return MOE_MEMORY;
  int32_t left = moe_vocab_find(&t->vocab, pair->left, pair->n_left);
  int32_t right = moe_vocab_find(&t->vocab, pair->right, pair->n_right);
  int32_t id = moe_vocab_find(&t->vocab, joined->s, joined->len);
  const char *missing = left < 0 ? pair->left : right < 0 ? pair->right : joined->s;
  size_t n = left < 0 ? pair->n_left : right < 0 ? pair->n_right : joined->len;
  if (left < 0 || right < 0 || id < 0)
    return moe_json_fail(at, MOE_FORMAT, "[%zu] needs \"%.*s\", which is not in model.vocab", i,
                         (int)moe_min64((int64_t)n, 60), missing);
  moe_bpe_add(&t->bpe, left, right, (int32_t)i, id);
  return MOE_OK;
}

static moe_status read_merges(struct moe_tokenizer *t, const struct moe_json_at *at,
                              const json_t *merges) {
  if (!json_is_array(merges)) return moe_json_fail(at, MOE_FORMAT, "must be an array");
  size_t n = json_array_size(merges);
  MOE_TRY(moe_bpe_reserve(&t->bpe, n));
  struct moe_text joined;
  moe_text_init(t->ctx, &joined);
  moe_status status = MOE_OK;
  for (size_t i = 0; i < n && status == MOE_OK; i++) {
    const json_t *item = json_array_get(merges, i);
    const char *s = json_string_value(item);
    if (i == 0 && s && strncmp(s, "#version", 8) == 0) continue;
    struct pair pair = {0};
    status = read_pair(at, i, item, &pair);
    if (status == MOE_OK) status = read_merge(t, at, i, &pair, &joined);
  }
  moe_text_destroy(&joined);
  return status;
}

/* ---- model ---- */

static moe_status refuse_affix(const struct moe_json_at *at, const json_t *model, const char *key) {
  const char *value;
  size_t n;
  MOE_TRY(moe_json_string(at, model, key, false, &value, &n));
  if (n) return moe_json_fail(at, MOE_UNSUPPORTED, "%s \"%.60s\" is not supported", key, value);
  return MOE_OK;
}

static moe_status check_kind(const struct moe_json_at *at, const json_t *model) {
  if (!json_is_object(model)) return moe_json_fail(at, MOE_FORMAT, "must be an object");
  const char *type;
  MOE_TRY(moe_json_string(at, model, "type", false, &type, NULL));
  if (type ? strcmp(type, "BPE") != 0 : json_object_get(model, "merges") == NULL)
    return moe_json_fail(at, MOE_UNSUPPORTED, "type \"%.60s\" is not supported, only \"BPE\" is",
                         type ? type : "");
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
    return moe_json_fail(at, MOE_UNSUPPORTED, "dropout must be null or 0");
  MOE_TRY(refuse_affix(at, model, "continuing_subword_prefix"));
  return refuse_affix(at, model, "end_of_word_suffix");
}

moe_status moe_tokenizer_json_model(struct moe_tokenizer *t, const struct moe_json_at *at,
                                    json_t *model, size_t n_added, int64_t max_added) {
  MOE_TRY(check_kind(at, model));
  MOE_TRY(moe_json_bool(at, model, "byte_fallback", false, &t->bpe.byte_fallback));
  MOE_TRY(moe_json_bool(at, model, "fuse_unk", false, &t->bpe.fuse_unk));
  MOE_TRY(moe_json_bool(at, model, "ignore_merges", false, &t->bpe.ignore_merges));
  struct moe_json_at in_vocab = moe_json_at(at, ".vocab"), in_merges = moe_json_at(at, ".merges");
  MOE_TRY(read_vocab(t, &in_vocab, json_object_get(model, "vocab"), n_added, max_added));
  MOE_TRY(read_merges(t, &in_merges, json_object_get(model, "merges")));
  const char *unk;
  size_t n;
  MOE_TRY(moe_json_string(at, model, "unk_token", false, &unk, &n));
  if (unk) t->bpe.unk = moe_vocab_find(&t->vocab, unk, n);
  return MOE_OK;
}

/* ---- added tokens ---- */

static moe_status check_added(const struct moe_tokenizer *t, const struct moe_json_at *at,
                              const struct moe_added *item) {
  int32_t in_model = moe_vocab_find(&t->vocab, item->s, item->n);
  if (in_model >= 0 && in_model != item->id)
    return moe_json_fail(at, MOE_FORMAT, "\"%.60s\" has id %d here and %d in model.vocab", item->s,
                         item->id, in_model);
  const struct moe_vocab_entry *other = moe_vocab_get(&t->vocab, item->id);
  if (other && (in_model < 0 || !(other->flags & MOE_TOKEN_MODEL)))
    return moe_json_fail(at, MOE_FORMAT, "id %d of \"%.60s\" is taken by \"%.*s\"", item->id,
                         item->s, (int)moe_min64(other->bytes, 60), t->vocab.text.s + other->at);
  return MOE_OK;
}

static moe_status read_added(struct moe_tokenizer *t, const struct moe_json_at *at,
                             const json_t *object) {
  struct moe_added item = {0};
  bool special, normalized;
  const char *s;
  MOE_TRY(moe_json_string(at, object, "content", true, &s, &item.n));
  MOE_TRY(moe_json_bool(at, object, "special", false, &special));
  MOE_TRY(moe_json_bool(at, object, "normalized", !special, &normalized));
  MOE_TRY(moe_json_bool(at, object, "lstrip", false, &item.lstrip));
  MOE_TRY(moe_json_bool(at, object, "rstrip", false, &item.rstrip));
  MOE_TRY(moe_json_bool(at, object, "single_word", false, &item.single_word));
  item.id = (int32_t)json_integer_value(json_object_get(object, "id"));
  if (item.n == 0) return moe_json_fail(at, MOE_FORMAT, "\"content\" is empty");
  item.s = (char *)(uintptr_t)s; /* copied by moe_added_add */
  MOE_TRY(check_added(t, at, &item));
  uint8_t flags = special ? MOE_TOKEN_SPECIAL : 0;
  if (moe_vocab_get(&t->vocab, item.id))
    t->vocab.entries_V[item.id].flags |= flags;
  else
    MOE_TRY(moe_vocab_add(&t->vocab, item.id, item.s, item.n, flags));
  size_t n = item.n;
  if (normalized) {
    MOE_TRY(moe_normal_run(&t->normal, &s, &n));
    item.s = (char *)(uintptr_t)s;
    item.n = n;
  }
  return item.n ? moe_added_add(&t->added[normalized], &item) : MOE_OK;
}

/* Checks the ids; *max_id is the largest, -1 for none. */
static moe_status scan_added(const struct moe_json_at *at, const json_t *list, int64_t limit,
                             int64_t *max_id) {
  *max_id = -1;
  if (list == NULL || json_is_null(list)) return MOE_OK;
  if (!json_is_array(list)) return moe_json_fail(at, MOE_FORMAT, "must be an array");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *object = json_array_get(list, i);
    struct moe_json_at in = moe_json_at(at, "[%zu]", i);
    const char *content;
    if (!json_is_object(object)) return moe_json_fail(&in, MOE_FORMAT, "must be an object");
    MOE_TRY(moe_json_string(&in, object, "content", true, &content, NULL));
    MOE_TRY(check_id(&in, content, json_object_get(object, "id"), limit));
    *max_id = moe_max64(*max_id, json_integer_value(json_object_get(object, "id")));
  }
  return MOE_OK;
}

static moe_status read_added_list(struct moe_tokenizer *t, const struct moe_json_at *at,
                                  const json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    struct moe_json_at in = moe_json_at(at, "[%zu]", i);
    MOE_TRY(read_added(t, &in, json_array_get(list, i)));
  }
  for (int i = 0; i < 2; i++) moe_added_finish(&t->added[i]);
  return MOE_OK;
}

/* ---- the file ---- */

static moe_status find_bytes(struct moe_tokenizer *t, const struct moe_json_at *at) {
  struct moe_bpe *bpe = &t->bpe;
  for (int b = 0; b < 256 && (bpe->byte_level || bpe->byte_fallback); b++) {
    char s[16];
    size_t n = bpe->byte_level ? moe_byte_alphabet_put((uint8_t)b, s)
                               : (size_t)snprintf(s, sizeof s, "<0x%02X>", (unsigned)b);
    bpe->byte_ids[b] = moe_vocab_find(&t->vocab, s, n);
    if (!bpe->byte_level && bpe->byte_ids[b] < 0)
      return moe_json_fail(at, MOE_FORMAT, "byte_fallback is true, but vocab has no \"%s\"", s);
  }
  return MOE_OK;
}

/* Where no merge has a character before U+2581 on the left and it on the right, cutting before
 * each run of it changes nothing and keeps pieces short. */
static moe_status cut_runs(struct moe_tokenizer *t) {
  static const char mark[] = "\xE2\x96\x81";
  const struct moe_bpe *bpe = &t->bpe;
  if (bpe->byte_level || bpe->ignore_merges || t->cutter.n == MOE_CUT_STEPS) return MOE_OK;
  if (moe_vocab_find(&t->vocab, mark, 3) < 0) return MOE_OK; /* runs of unknowns may fuse */
  for (size_t i = 0; i < bpe->n_slots; i++) {
    const struct moe_bpe_merge *merge = &bpe->merges[i];
    if (merge->left < 0) continue;
    const struct moe_vocab_entry *left = moe_vocab_get(&t->vocab, merge->left);
    const struct moe_vocab_entry *right = moe_vocab_get(&t->vocab, merge->right);
    const char *l = t->vocab.text.s + left->at, *r = t->vocab.text.s + right->at;
    bool runs_on = left->bytes >= 3 && memcmp(l + left->bytes - 3, mark, 3) == 0;
    if (!runs_on && right->bytes >= 3 && memcmp(r, mark, 3) == 0) return MOE_OK;
  }
  struct moe_cut_step *step = &t->cutter.steps[t->cutter.n++];
  step->kind = MOE_CUT_RUNS;
  memcpy(step->with, mark, sizeof mark);
  return MOE_OK;
}

/* The file does not say which of its special tokens ends a document: the names in use for it. */
static void find_eod(struct moe_tokenizer *t) {
  static const char *const names[] = {"<|endoftext|>",
                                      "</s>",
                                      "<|end_of_text|>",
                                      "<\xEF\xBD\x9C"
                                      "end\xE2\x96\x81of\xE2\x96\x81"
                                      "sentence\xEF\xBD\x9C>",
                                      "<eos>",
                                      "<|eos|>",
                                      "[EOS]",
                                      "<EOS>"};
  for (size_t k = 0; k < MOE_COUNTOF(names) && t->eod < 0; k++)
    for (int64_t id = 0; id < t->vocab.size && t->eod < 0; id++) {
      const struct moe_vocab_entry *entry = moe_vocab_get(&t->vocab, id);
      if (entry && (entry->flags & MOE_TOKEN_SPECIAL) && entry->bytes == strlen(names[k]) &&
          memcmp(t->vocab.text.s + entry->at, names[k], entry->bytes) == 0)
        t->eod = (int32_t)id;
    }
}

static moe_status read_root(struct moe_tokenizer *t, const struct moe_json_at *root, json_t *json) {
  if (!json_is_object(json))
    return moe_fail(t->ctx, MOE_FORMAT, "%s: not a tokenizer.json: must be an object", root->path);
  const char *version;
  struct moe_json_at at = moe_json_at(root, "version");
  MOE_TRY(moe_json_string(&at, json, "version", false, &version, NULL));
  if (version && strcmp(version, "1.0") != 0)
    return moe_json_fail(&at, MOE_UNSUPPORTED, "\"%.60s\" is not supported, only \"1.0\" is",
                         version);
  json_t *model = json_object_get(json, "model"), *added = json_object_get(json, "added_tokens");
  size_t n_added = json_array_size(added);
  int64_t max_added;
  struct moe_json_at in_added = moe_json_at(root, "added_tokens");
  size_t entries = json_object_size(json_object_get(model, "vocab")) + n_added;
  MOE_TRY(scan_added(&in_added, added, id_limit(entries), &max_added));
  at = moe_json_at(root, "model");
  MOE_TRY(moe_tokenizer_json_model(t, &at, model, n_added, max_added));
  struct moe_json_at part = moe_json_at(root, "normalizer");
  MOE_TRY(moe_tokenizer_json_normalizer(t, &part, json_object_get(json, "normalizer")));
  MOE_TRY(read_added_list(t, &in_added, added)); /* needs the normalizer */
  part = moe_json_at(root, "pre_tokenizer");
  MOE_TRY(moe_tokenizer_json_cutter(t, &part, json_object_get(json, "pre_tokenizer")));
  part = moe_json_at(root, "post_processor");
  MOE_TRY(moe_tokenizer_json_post(t, &part, json_object_get(json, "post_processor")));
  part = moe_json_at(root, "decoder");
  MOE_TRY(moe_tokenizer_json_decoder(t, &part, json_object_get(json, "decoder")));
  MOE_TRY(find_bytes(t, &at));
  MOE_TRY(cut_runs(t));
  find_eod(t);
  return MOE_OK;
}

moe_status moe_tokenizer_json(struct moe_tokenizer *t, const char *path) {
  struct moe_json_at root = {t->ctx, path, ""};
  FILE *file = fopen(path, "rb");
  if (file == NULL)
    return moe_fail_errno(t->ctx, errno == ENOENT ? MOE_NOTFOUND : MOE_IO, errno,
                          "cannot open the tokenizer %s (a tokenizer.json, or \"bytes\")", path);
  json_error_t error;
  errno = 0;
  json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  int err = ferror(file) ? errno : 0;
  fclose(file);
  if (err) {
    json_decref(json);
    return moe_fail_errno(t->ctx, MOE_IO, err, "cannot read the tokenizer %s", path);
  }
  if (json == NULL)
    return moe_fail(t->ctx, MOE_FORMAT, "%s: line %d, column %d: %s", path, error.line,
                    error.column, error.text);
  moe_status status = read_root(t, &root, json);
  json_decref(json);
  return status;
}
