/* Reads the parts of a tokenizer.json around its model: normalizer, pre-tokenizer, post-processor
 * and decoder. What a part cannot do exactly is refused by name. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "data/tokenizer_parts.h"
#include "data/utf8.h"

enum { DEPTH = 8 }; /* of sequences in sequences */

typedef moe_status (*part_fn)(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                              int depth);

static moe_status sequence(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                           const char *key, int depth, part_fn read) {
  json_t *list = json_object_get(part, key);
  struct moe_json_at in = moe_json_at(at, ".%s", key);
  if (!json_is_array(list)) return moe_json_fail(&in, MOE_FORMAT, "must be an array");
  if (depth == DEPTH)
    return moe_json_fail(at, MOE_UNSUPPORTED, "sequences nested more than %d deep", DEPTH);
  for (size_t i = 0; i < json_array_size(list); i++) {
    struct moe_json_at item = moe_json_at(&in, "[%zu]", i);
    MOE_TRY(read(t, &item, json_array_get(list, i), depth + 1));
  }
  return MOE_OK;
}

static moe_status unsupported(const struct moe_json_at *at, const char *type, const char *known) {
  return moe_json_fail(at, MOE_UNSUPPORTED, "type \"%.60s\" is not supported, only %s are", type,
                       known);
}

static moe_status too_many(const struct moe_json_at *at, size_t limit) {
  return moe_json_fail(at, MOE_UNSUPPORTED, "more than %zu steps", limit);
}

/* A copy of a string of the file that may hold zero bytes. */
static moe_status copy(moe_ctx *ctx, const char *s, size_t n, char **out) {
  *out = moe_alloc(ctx, n + 1);
  if (*out == NULL) return MOE_MEMORY;
  memcpy(*out, s, n);
  return MOE_OK;
}

/* {"String": s} or {"Regex": s} of `key`. */
static moe_status pattern(const struct moe_json_at *at, json_t *part, const char **s, size_t *n,
                          bool *literal) {
  json_t *object = json_object_get(part, "pattern");
  struct moe_json_at in = moe_json_at(at, ".pattern");
  *literal = json_object_get(object, "String") != NULL;
  if (!*literal && !json_object_get(object, "Regex"))
    return moe_json_fail(&in, MOE_FORMAT, "must be {\"String\": ...} or {\"Regex\": ...}");
  MOE_TRY(moe_json_string(&in, object, *literal ? "String" : "Regex", true, s, n));
  if (*n == 0) return moe_json_fail(&in, MOE_FORMAT, "is empty");
  return MOE_OK;
}

/* ---- normalizer ---- */

static moe_status find_and_with(moe_ctx *ctx, const struct moe_json_at *at, json_t *part,
                                char **find, size_t *n_find, char **with, size_t *n_with) {
  const char *s;
  bool literal;
  MOE_TRY(pattern(at, part, &s, n_find, &literal));
  if (!literal)
    return moe_json_fail(at, MOE_UNSUPPORTED,
                         "Replace with a Regex is not supported, only with "
                         "a String");
  MOE_TRY(copy(ctx, s, *n_find, find));
  MOE_TRY(moe_json_string(at, part, "content", true, &s, n_with));
  return copy(ctx, s, *n_with, with);
}

static moe_status normalizer(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                             int depth) {
  static const struct {
    const char *name;
    enum moe_normal_kind kind;
  } forms[] = {{"NFC", MOE_NORMAL_NFC},
               {"NFD", MOE_NORMAL_NFD},
               {"NFKC", MOE_NORMAL_NFKC},
               {"NFKD", MOE_NORMAL_NFKD}};
  const char *type, *s;
  MOE_TRY(moe_json_type(at, part, &type));
  if (strcmp(type, "Sequence") == 0) return sequence(t, at, part, "normalizers", depth, normalizer);
  if (t->normal.n == MOE_NORMAL_STEPS) return too_many(at, MOE_NORMAL_STEPS);
  struct moe_normal_step *step = &t->normal.steps[t->normal.n++];
  for (size_t i = 0; i < MOE_COUNTOF(forms); i++)
    if (strcmp(type, forms[i].name) == 0) {
      step->kind = forms[i].kind;
      return MOE_OK;
    }
  if (strcmp(type, "Prepend") == 0) {
    step->kind = MOE_NORMAL_PREPEND;
    MOE_TRY(moe_json_string(at, part, "prepend", true, &s, &step->n_with));
    return copy(t->ctx, s, step->n_with, &step->with);
  }
  if (strcmp(type, "Replace") == 0) {
    step->kind = MOE_NORMAL_REPLACE;
    return find_and_with(t->ctx, at, part, &step->find, &step->n_find, &step->with, &step->n_with);
  }
  return unsupported(at, type, "Sequence, NFC, NFD, NFKC, NFKD, Prepend and Replace");
}

moe_status moe_tokenizer_json_normalizer(struct moe_tokenizer *t, const struct moe_json_at *at,
                                         json_t *part) {
  return part == NULL || json_is_null(part) ? MOE_OK : normalizer(t, at, part, 0);
}

/* ---- pre-tokenizer ---- */

static const char gpt2_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A new step, zeroed; NULL with the error set when there are too many. */
static struct moe_cut_step *new_step(struct moe_tokenizer *t, const struct moe_json_at *at,
                                     enum moe_cut_kind kind) {
  if (t->cutter.n == MOE_CUT_STEPS) {
    too_many(at, MOE_CUT_STEPS);
    return NULL;
  }
  struct moe_cut_step *step = &t->cutter.steps[t->cutter.n++];
  step->kind = kind;
  return step;
}

static moe_status add_split(struct moe_tokenizer *t, const struct moe_json_at *at, const char *s,
                            size_t n, bool literal, enum moe_cut_behavior behavior, bool invert) {
  struct moe_cut_step *step = new_step(t, at, MOE_CUT_SPLIT);
  if (step == NULL) return MOE_UNSUPPORTED;
  step->behavior = behavior;
  step->invert = invert;
  char where[512];
  snprintf(where, sizeof where, "%.300s: %s", at->path, at->field);
  return moe_regex_create(t->ctx, where, s, n, literal, &step->regex);
}

static moe_status split(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part) {
  static const char *const names[] = {
      [MOE_CUT_ISOLATED] = "Isolated",        [MOE_CUT_REMOVED] = "Removed",
      [MOE_CUT_CONTIGUOUS] = "Contiguous",    [MOE_CUT_WITH_PREVIOUS] = "MergedWithPrevious",
      [MOE_CUT_WITH_NEXT] = "MergedWithNext",
  };
  const char *s, *behavior;
  size_t n;
  bool literal, invert;
  MOE_TRY(pattern(at, part, &s, &n, &literal));
  MOE_TRY(moe_json_string(at, part, "behavior", true, &behavior, NULL));
  MOE_TRY(moe_json_bool(at, part, "invert", false, &invert));
  for (size_t i = 0; i < MOE_COUNTOF(names); i++)
    if (strcmp(behavior, names[i]) == 0)
      return add_split(t, at, s, n, literal, (enum moe_cut_behavior)i, invert);
  return moe_json_fail(at, MOE_UNSUPPORTED,
                       "behavior \"%.60s\" is not supported, only Isolated, Removed, Contiguous, "
                       "MergedWithPrevious and MergedWithNext are",
                       behavior);
}

static moe_status byte_level(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part) {
  bool prefix, regex;
  MOE_TRY(moe_json_bool(at, part, "add_prefix_space", true, &prefix));
  MOE_TRY(moe_json_bool(at, part, "use_regex", true, &regex));
  t->bpe.byte_level = true;
  if (prefix) {
    struct moe_cut_step *step = new_step(t, at, MOE_CUT_REWRITE);
    if (step == NULL) return MOE_UNSUPPORTED;
    strcpy(step->with, " ");
    step->prefix = MOE_PREFIX_ALWAYS;
  }
  return regex ? add_split(t, at, gpt2_regex, strlen(gpt2_regex), false, MOE_CUT_ISOLATED, false)
               : MOE_OK;
}

/* The one character `key` must hold. */
static moe_status one_char(const struct moe_json_at *at, json_t *part, const char *key,
                           const char **s, size_t *n) {
  MOE_TRY(moe_json_string(at, part, key, true, s, n));
  if (*n == 0 || **s == 0 || moe_utf8_length(*s) != *n)
    return moe_json_fail(at, MOE_FORMAT, "\"%s\" must be one character", key);
  return MOE_OK;
}

/* Files from before prepend_scheme say add_prefix_space. */
static moe_status prepend_scheme(const struct moe_json_at *at, json_t *part,
                                 enum moe_cut_prefix *out) {
  static const char *const names[] = {"never", "first", "always"};
  const char *scheme;
  bool prefix;
  MOE_TRY(moe_json_bool(at, part, "add_prefix_space", true, &prefix));
  MOE_TRY(moe_json_string(at, part, "prepend_scheme", false, &scheme, NULL));
  *out = prefix ? MOE_PREFIX_ALWAYS : MOE_PREFIX_NEVER;
  for (int i = 0; scheme && i < 3; i++)
    if (strcmp(scheme, names[i]) == 0) {
      *out = (enum moe_cut_prefix)i;
      return MOE_OK;
    }
  if (scheme)
    return moe_json_fail(at, MOE_FORMAT,
                         "prepend_scheme is \"%.60s\", must be always, first or never", scheme);
  return MOE_OK;
}

static moe_status metaspace(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part) {
  const char *s;
  size_t n;
  bool cut;
  MOE_TRY(one_char(at, part, "replacement", &s, &n));
  MOE_TRY(moe_json_bool(at, part, "split", true, &cut));
  struct moe_cut_step *step = new_step(t, at, MOE_CUT_REWRITE);
  if (step == NULL) return MOE_UNSUPPORTED;
  memcpy(step->with, s, n);
  step->spaces = true;
  MOE_TRY(prepend_scheme(at, part, &step->prefix));
  return cut ? add_split(t, at, s, n, true, MOE_CUT_WITH_NEXT, false) : MOE_OK;
}

static moe_status cutter(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                         int depth) {
  const char *type;
  MOE_TRY(moe_json_type(at, part, &type));
  if (strcmp(type, "Sequence") == 0) return sequence(t, at, part, "pretokenizers", depth, cutter);
  if (t->bpe.byte_level)
    return moe_json_fail(at, MOE_UNSUPPORTED, "\"%.60s\" after ByteLevel: ByteLevel must be last",
                         type);
  if (strcmp(type, "Split") == 0) return split(t, at, part);
  if (strcmp(type, "ByteLevel") == 0) return byte_level(t, at, part);
  if (strcmp(type, "Metaspace") == 0) return metaspace(t, at, part);
  if (strcmp(type, "Digits") == 0) {
    bool each;
    MOE_TRY(moe_json_bool(at, part, "individual_digits", false, &each));
    return add_split(t, at, "\\p{N}", 5, false, each ? MOE_CUT_ISOLATED : MOE_CUT_CONTIGUOUS,
                     false);
  }
  return unsupported(at, type, "Sequence, Split, ByteLevel, Metaspace and Digits");
}

moe_status moe_tokenizer_json_cutter(struct moe_tokenizer *t, const struct moe_json_at *at,
                                     json_t *part) {
  return part == NULL || json_is_null(part) ? MOE_OK : cutter(t, at, part, 0);
}

/* ---- post-processor ---- */

/* Appends the ids of the special token that a template calls `name`. */
static moe_status template_ids(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                               const char *name, struct moe_ids *out) {
  json_t *token = json_object_get(json_object_get(part, "special_tokens"), name);
  json_t *ids = json_object_get(token, "ids");
  if (!json_is_array(ids))
    return moe_json_fail(at, MOE_FORMAT, "special_tokens has no ids for \"%.60s\"", name);
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *id = json_array_get(ids, i);
    if (!json_is_integer(id) || moe_vocab_get(&t->vocab, json_integer_value(id)) == NULL)
      return moe_json_fail(at, MOE_FORMAT,
                           "special_tokens: an id of \"%.60s\" is not in the "
                           "vocabulary",
                           name);
    int32_t value = (int32_t)json_integer_value(id);
    MOE_TRY(moe_ids_append(out, &value, 1));
  }
  return MOE_OK;
}

static moe_status template(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part) {
  json_t *single = json_object_get(part, "single");
  struct moe_json_at in = moe_json_at(at, ".single");
  if (!json_is_array(single)) return moe_json_fail(&in, MOE_FORMAT, "must be an array");
  if (t->before.n || t->after.n)
    return moe_json_fail(at, MOE_UNSUPPORTED, "more than one TemplateProcessing");
  int texts = 0;
  for (size_t i = 0; i < json_array_size(single); i++) {
    json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
    if (json_object_get(item, "Sequence")) {
      texts++;
      continue;
    }
    const char *name;
    if (special == NULL)
      return moe_json_fail(&in, MOE_FORMAT, "[%zu] must be a SpecialToken or a Sequence", i);
    MOE_TRY(moe_json_string(&in, special, "id", true, &name, NULL));
    MOE_TRY(template_ids(t, at, part, name, texts ? &t->after : &t->before));
  }
  if (texts != 1)
    return moe_json_fail(&in, MOE_UNSUPPORTED, "holds the text %d times, must be once", texts);
  return MOE_OK;
}

static moe_status post(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                       int depth) {
  const char *type;
  MOE_TRY(moe_json_type(at, part, &type));
  if (strcmp(type, "Sequence") == 0) return sequence(t, at, part, "processors", depth, post);
  if (strcmp(type, "ByteLevel") == 0) return MOE_OK; /* moves offsets, changes no id */
  if (strcmp(type, "TemplateProcessing") == 0) return template(t, at, part);
  return unsupported(at, type, "Sequence, ByteLevel and TemplateProcessing");
}

moe_status moe_tokenizer_json_post(struct moe_tokenizer *t, const struct moe_json_at *at,
                                   json_t *part) {
  return part == NULL || json_is_null(part) ? MOE_OK : post(t, at, part, 0);
}

/* ---- decoder ---- */

static moe_status decode_strip(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                               struct moe_decode_step *step) {
  const char *s;
  step->kind = MOE_DECODE_STRIP;
  MOE_TRY(one_char(at, part, "content", &s, &step->n_find));
  MOE_TRY(moe_json_int(at, part, "start", 0, &step->start));
  MOE_TRY(moe_json_int(at, part, "stop", 0, &step->stop));
  return copy(t->ctx, s, step->n_find, &step->find);
}

static moe_status decode_metaspace(struct moe_tokenizer *t, const struct moe_json_at *at,
                                   json_t *part, struct moe_decode_step *step) {
  const char *s;
  enum moe_cut_prefix prefix;
  step->kind = MOE_DECODE_METASPACE;
  MOE_TRY(one_char(at, part, "replacement", &s, &step->n_find));
  MOE_TRY(prepend_scheme(at, part, &prefix));
  step->start = prefix != MOE_PREFIX_NEVER;
  return copy(t->ctx, s, step->n_find, &step->find);
}

static moe_status decoder(struct moe_tokenizer *t, const struct moe_json_at *at, json_t *part,
                          int depth) {
  const char *type;
  MOE_TRY(moe_json_type(at, part, &type));
  if (strcmp(type, "Sequence") == 0) return sequence(t, at, part, "decoders", depth, decoder);
  if (t->decoder.n == MOE_DECODE_STEPS) return too_many(at, MOE_DECODE_STEPS);
  struct moe_decode_step *step = &t->decoder.steps[t->decoder.n++];
  if (strcmp(type, "Strip") == 0) return decode_strip(t, at, part, step);
  if (strcmp(type, "Metaspace") == 0) return decode_metaspace(t, at, part, step);
  if (strcmp(type, "Replace") == 0) {
    step->kind = MOE_DECODE_REPLACE;
    return find_and_with(t->ctx, at, part, &step->find, &step->n_find, &step->with, &step->n_with);
  }
  if (strcmp(type, "ByteLevel") == 0)
    step->kind = MOE_DECODE_BYTE_LEVEL;
  else if (strcmp(type, "ByteFallback") == 0)
    step->kind = MOE_DECODE_BYTE_FALLBACK;
  else if (strcmp(type, "Fuse") == 0)
    step->kind = MOE_DECODE_FUSE;
  else
    return unsupported(at, type,
                       "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace");
  return MOE_OK;
}

moe_status moe_tokenizer_json_decoder(struct moe_tokenizer *t, const struct moe_json_at *at,
                                      json_t *part) {
  return part == NULL || json_is_null(part) ? MOE_OK : decoder(t, at, part, 0);
}
