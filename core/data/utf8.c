#include "data/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* One well-formed sequence: its length; or minus the length of the maximal ill-formed part. */
static int step(const unsigned char *s, size_t n) {
  if (s[0] < 0x80) return 1;
  int more;
  unsigned char low = 0x80, high = 0xBF;
  if (s[0] >= 0xC2 && s[0] <= 0xDF) {
    more = 1;
  } else if ((s[0] & 0xF0) == 0xE0) {
    more = 2;
    if (s[0] == 0xE0) low = 0xA0;
    if (s[0] == 0xED) high = 0x9F;
  } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
    more = 3;
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F;
  } else {
    return -1;
  }
  for (int i = 1; i <= more; i++) {
    if ((size_t)i >= n || s[i] < low || s[i] > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return more + 1;
}

size_t moe_utf8_valid(const char *s, size_t n) {
  size_t at = 0;
  while (at < n) {
    uint64_t word;
    if (n - at >= 8 && (memcpy(&word, s + at, 8), (word & 0x8080808080808080u) == 0)) {
      at += 8;
      continue;
    }
    int k = step((const unsigned char *)s + at, n - at);
    if (k < 0) break;
    at += (size_t)k;
  }
  return at;
}

void moe_utf8_repair(struct moe_text *out, const char *s, size_t n) {
  for (size_t at = 0; at < n && !out->failed;) {
    size_t good = moe_utf8_valid(s + at, n - at);
    moe_text_append(out, s + at, good);
    at += good;
    if (at == n) break;
    moe_text_append(out, "\xEF\xBF\xBD", 3);
    at += (size_t)-step((const unsigned char *)s + at, n - at);
  }
}

size_t moe_utf8_length(const char *s) {
  unsigned char c = (unsigned char)s[0];
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

int32_t moe_utf8_get(const char *s, size_t *length) {
  const unsigned char *u = (const unsigned char *)s;
  *length = moe_utf8_length(s);
  switch (*length) {
    case 1:
      return u[0];
    case 2:
      return (u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    case 3:
      return (u[0] & 0x0F) << 12 | (u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    default:
      return (u[0] & 0x07) << 18 | (u[1] & 0x3F) << 12 | (u[2] & 0x3F) << 6 | (u[3] & 0x3F);
  }
}

int32_t moe_utf8_before(const char *s, size_t at, size_t *length) {
  size_t start = at - 1;
  while (start > 0 && ((unsigned char)s[start] & 0xC0) == 0x80) start--;
  return moe_utf8_get(s + start, length);
}

size_t moe_utf8_put(int32_t cp, char out[MOE_UTF8_MAX]) {
  return (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out);
}

const char *moe_utf8_find(const char *s, size_t n, const char *find, size_t k) {
  const char *end = s + n;
  while ((size_t)(end - s) >= k) {
    s = memchr(s, find[0], (size_t)(end - s) - k + 1);
    if (s == NULL || memcmp(s, find, k) == 0) return s;
    s++;
  }
  return NULL;
}

void moe_utf8_replace(struct moe_text *out, const char *s, size_t n, const char *find, size_t k,
                      const char *with, size_t n_with) {
  const char *end = s + n, *hit;
  while ((hit = moe_utf8_find(s, (size_t)(end - s), find, k)) != NULL) {
    moe_text_append(out, s, (size_t)(hit - s));
    moe_text_append(out, with, n_with);
    s = hit + k;
  }
  moe_text_append(out, s, (size_t)(end - s));
}

bool moe_utf8_space(int32_t cp) {
  return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
         (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
         cp == 0x205F || cp == 0x3000;
}

static bool circled_letter(int32_t cp) { /* alphabetic, though their category is a symbol */
  return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
         (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

bool moe_utf8_word(int32_t cp) {
  switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return cp == 0x200C || cp == 0x200D || circled_letter(cp);
  }
}
