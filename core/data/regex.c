#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

struct moe_regex {
  moe_ctx *ctx;
  char *where;
  pcre2_code *code;
  pcre2_match_data *data;
  pcre2_match_context *match;
  pcre2_jit_stack *stack;
};

enum { HEAP_KIB = 256 * 1024, JIT_STACK_START = 64 * 1024, JIT_STACK_MAX = 16 * 1024 * 1024 };

/* White_Space and its complement, and Oniguruma's word characters, as the inside of a class:
 * PCRE2's own \s has U+180E too, and its \w lacks marks and connectors. */
#define SPACE                                                                        \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
  "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"   \
  "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
  "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD                                                                  \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
  "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

#define PUNCTUATION "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ "

struct translation {
  moe_ctx *ctx;
  const char *where, *p, *end;
  struct moe_text out;
  bool in_class;
};

static moe_status refuse(const struct translation *t, const char *what, size_t n) {
  return moe_fail(t->ctx, MOE_UNSUPPORTED,
                  "%s: regex with \"%.*s\" is not supported: it may mean different things to the "
                  "regex engines involved",
                  t->where, (int)n, what);
}

/* The end of the {...} at p, or NULL. */
static const char *braces(const struct translation *t) {
  if (t->p == t->end || *t->p != '{') return NULL;
  const char *close = memchr(t->p, '}', (size_t)(t->end - t->p));
  return close ? close + 1 : NULL;
}

/* p is at a backslash. */
static moe_status escape(struct translation *t) {
  if (t->end - t->p < 2)
    return moe_fail(t->ctx, MOE_FORMAT, "%s: regex ends in a backslash", t->where);
  const char *p = t->p;
  char c = p[1];
  const char *close = NULL;
  t->p += 2;
  if (c == 's')
    moe_text_add(&t->out, t->in_class ? "%s" : "[%s]", SPACE);
  else if (c == 'S')
    moe_text_add(&t->out, t->in_class ? "%s" : "[^%s]", t->in_class ? NOT_SPACE : SPACE);
  else if (c == 'w')
    moe_text_add(&t->out, t->in_class ? "%s" : "[%s]", WORD);
  else if (c == 'W' && !t->in_class)
    moe_text_add(&t->out, "[^%s]", WORD);
  else if (c > 0 && strchr("dDrntf" PUNCTUATION, c))
    moe_text_append(&t->out, p, 2);
  else if (c > 0 && strchr("pPx", c) && (close = braces(t)) != NULL) {
    moe_text_append(&t->out, p, (size_t)(close - p));
    t->p = close;
  } else
    return refuse(t, p, 2);
  return MOE_OK;
}

/* p is at an opening parenthesis. */
static moe_status group(struct translation *t) {
  static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
  size_t left = (size_t)(t->end - t->p);
  if (left > 1 && t->p[1] == '*') return refuse(t, t->p, 2);
  if (left > 1 && t->p[1] == '?') {
    bool ok = false;
    for (size_t i = 0; i < MOE_COUNTOF(known); i++)
      ok |= left >= strlen(known[i]) && memcmp(t->p, known[i], strlen(known[i])) == 0;
    if (!ok) return refuse(t, t->p, left < 4 ? left : 4);
  }
  moe_text_append(&t->out, t->p++, 1);
  return MOE_OK;
}

static moe_status translate(struct translation *t) {
  const char *class_start = NULL;
  while (t->p < t->end) {
    char c = *t->p;
    if (c == '\\') {
      MOE_TRY(escape(t));
      continue;
    }
    if (!t->in_class && c == '(') {
      MOE_TRY(group(t));
      continue;
    }
    bool two = t->end - t->p > 1;
    if (t->in_class && (c == '[' || (c == '&' && two && t->p[1] == '&')))
      return refuse(t, t->p, two ? 2 : 1);
    if (!t->in_class && c == '}' && two && t->p[1] == '+') return refuse(t, t->p, 2);
    if (!t->in_class && c == '[') {
      t->in_class = true;
      class_start = t->p + (two && t->p[1] == '^' ? 2 : 1);
    } else if (t->in_class && c == ']') {
      if (t->p == class_start) return refuse(t, "[]", 2);
      t->in_class = false;
    }
    moe_text_append(&t->out, t->p++, 1);
  }
  return t->out.failed ? MOE_MEMORY : MOE_OK;
}

static moe_status compile(struct moe_regex *re, const char *pattern, size_t bytes, bool literal) {
  int error;
  PCRE2_SIZE at;
  uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return moe_fail(re->ctx, MOE_MEMORY, "no memory for a regex");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  re->code = pcre2_compile((PCRE2_SPTR)pattern, bytes, options, &error, &at, context);
  pcre2_compile_context_free(context);
  if (re->code == NULL) {
    char text[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return moe_fail(re->ctx, MOE_FORMAT, "%s: bad regex: %s", re->where, text);
  }
  uint32_t empty = 0;
  pcre2_pattern_info(re->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty)
    return moe_fail(re->ctx, MOE_UNSUPPORTED,
                    "%s: a pattern that can match nothing is not supported", re->where);
  re->data = pcre2_match_data_create(1, NULL);
  re->match = pcre2_match_context_create(NULL);
  if (re->data == NULL || re->match == NULL)
    return moe_fail(re->ctx, MOE_MEMORY, "no memory for a regex");
  pcre2_set_heap_limit(re->match, HEAP_KIB);
  /* Where the system has no JIT, or forbids it, the interpreter gives the same matches. */
  if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0) {
    re->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    pcre2_jit_stack_assign(re->match, NULL, re->stack);
  }
  return MOE_OK;
}

moe_status moe_regex_create(moe_ctx *ctx, const char *where, const char *pattern, size_t bytes,
                            bool literal, struct moe_regex **out) {
  *out = NULL;
  struct moe_regex *re = moe_alloc(ctx, sizeof *re);
  if (re == NULL) return MOE_MEMORY;
  re->ctx = ctx;
  struct translation t = {ctx, where, pattern, pattern + bytes, {0}, false};
  moe_text_init(ctx, &t.out);
  moe_status status = MOE_MEMORY;
  re->where = moe_strdup(ctx, where);
  if (re->where == NULL) goto fail;
  if (literal)
    moe_text_append(&t.out, pattern, bytes);
  else
    MOE_TRY_GOTO(translate(&t), fail);
  if (t.out.failed) goto fail;
  MOE_TRY_GOTO(compile(re, t.out.s ? t.out.s : "", t.out.len, literal), fail);
  moe_text_destroy(&t.out);
  *out = re;
  return MOE_OK;
fail:
  moe_text_destroy(&t.out);
  moe_regex_destroy(re);
  return status;
}

void moe_regex_destroy(struct moe_regex *re) {
  if (re == NULL) return;
  pcre2_jit_stack_free(re->stack);
  pcre2_match_context_free(re->match);
  pcre2_match_data_free(re->data);
  pcre2_code_free(re->code);
  moe_release(re->ctx, re->where);
  moe_release(re->ctx, re);
}

moe_status moe_regex_next(struct moe_regex *re, const char *text, size_t bytes, size_t from,
                          bool *found, size_t *start, size_t *end) {
  PCRE2_SPTR s = (PCRE2_SPTR)text;
  int rc = pcre2_match(re->code, s, bytes, from, PCRE2_NO_UTF_CHECK, re->data, re->match);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(re->code, s, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, re->data,
                     re->match);
  *found = rc >= 0;
  if (rc == PCRE2_ERROR_NOMATCH) return MOE_OK;
  if (rc < 0) {
    char message[128] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
    return moe_fail(re->ctx, MOE_UNSUPPORTED,
                    "%s: matching failed %zu bytes into a text of %zu: %s", re->where, from, bytes,
                    message);
  }
  const PCRE2_SIZE *span = pcre2_get_ovector_pointer(re->data);
  *start = span[0];
  *end = span[1];
  return MOE_OK;
}
