#include "data/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "data/utf8.h"

void moe_normal_init(moe_ctx *ctx, struct moe_normal *normal) {
  *normal = (struct moe_normal){.ctx = ctx};
  for (int i = 0; i < 2; i++) moe_text_init(ctx, &normal->buffers[i]);
}

void moe_normal_destroy(struct moe_normal *normal) {
  for (size_t i = 0; i < normal->n; i++) {
    moe_release(normal->ctx, normal->steps[i].find);
    moe_release(normal->ctx, normal->steps[i].with);
  }
  for (int i = 0; i < 2; i++) moe_text_destroy(&normal->buffers[i]);
  moe_normal_init(normal->ctx, normal);
}

static const utf8proc_option_t options[] = {
    [MOE_NORMAL_NFC] = UTF8PROC_COMPOSE | UTF8PROC_STABLE,
    [MOE_NORMAL_NFD] = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE,
    [MOE_NORMAL_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE,
    [MOE_NORMAL_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE,
};

static moe_status map_part(struct moe_normal *normal, enum moe_normal_kind kind, const char *s,
                           size_t n, struct moe_text *out) {
  utf8proc_uint8_t *mapped = NULL;
  utf8proc_ssize_t got =
      utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &mapped, options[kind]);
  if (got < 0) {
    free(mapped);
    return moe_fail(normal->ctx, got == UTF8PROC_ERROR_NOMEM ? MOE_MEMORY : MOE_INVALID,
                    "normalising %zu bytes of text: %s", n, utf8proc_errmsg(got));
  }
  moe_text_append(out, (const char *)mapped, (size_t)got);
  free(mapped);
  return out->failed ? MOE_MEMORY : MOE_OK;
}

static bool ascii(char c) { return (unsigned char)c < 0x80; }

/* Nothing composes or reorders across the front of an ASCII character, and ASCII followed by ASCII
 * stays as it is in all forms: only the parts between go through utf8proc. This also bounds its
 * reordering of combining marks, which takes quadratic time in one part. */
static moe_status map_forms(struct moe_normal *normal, enum moe_normal_kind kind, const char *s,
                            size_t n, struct moe_text *out) {
  for (size_t at = 0; at < n;) {
    size_t end = at;
    while (end < n && ascii(s[end]) && (end + 1 == n || ascii(s[end + 1]))) end++;
    moe_text_append(out, s + at, end - at);
    if (out->failed) return MOE_MEMORY;
    at = end;
    if (at == n) break;
    end = at + 1; /* s[at] is not ASCII, or ASCII before what may combine with it */
    while (end < n && !ascii(s[end])) end++;
    MOE_TRY(map_part(normal, kind, s + at, end - at, out));
    at = end;
  }
  return MOE_OK;
}

static bool all_ascii(const char *s, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!ascii(s[i])) return false;
  return true;
}

moe_status moe_normal_run(struct moe_normal *normal, const char **text, size_t *bytes) {
  for (size_t i = 0; i<normal->n && * bytes> 0; i++) {
    const struct moe_normal_step *step = &normal->steps[i];
    struct moe_text *out = &normal->buffers[*text == normal->buffers[0].s];
    out->len = 0;
    moe_text_append(out, "", 0);
    if (step->kind == MOE_NORMAL_PREPEND) {
      moe_text_append(out, step->with, step->n_with);
      moe_text_append(out, *text, *bytes);
    } else if (step->kind == MOE_NORMAL_REPLACE) {
      moe_utf8_replace(out, *text, *bytes, step->find, step->n_find, step->with, step->n_with);
    } else {
      if (all_ascii(*text, *bytes)) continue;
      MOE_TRY(map_forms(normal, step->kind, *text, *bytes, out));
    }
    if (out->failed) return MOE_MEMORY;
    *text = out->s;
    *bytes = out->len;
  }
  return MOE_OK;
}
