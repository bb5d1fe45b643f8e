#include "checkpoints/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { MAX_HEADER = 100000000 }; /* as the format's reference reader has it */

struct type {
  const char *name;
  int bits;
};
static const struct type kTypes[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8},
                                     {"F8_E5M2", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},
                                     {"BF16", 16},   {"I32", 32}, {"U32", 32}, {"F32", 32},
                                     {"I64", 64},    {"U64", 64}, {"F64", 64}};

static const struct type *type_of(const char *name) {
  for (size_t i = 0; i < MOE_COUNTOF(kTypes); i++)
    if (strcmp(kTypes[i].name, name) == 0) return &kTypes[i];
  return NULL;
}

static moe_status bad(const struct moe_safetensors *f, const char *tensor, const char *what) {
  return moe_fail(f->ctx, MOE_FORMAT, "%s: %s%s%s", f->path, tensor ? tensor : "",
                  tensor ? ": " : "", what);
}

static moe_status map_file(struct moe_safetensors *f) {
  int fd = open(f->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return moe_fail_errno(f->ctx, errno == ENOENT ? MOE_NOTFOUND : MOE_IO, errno, "%s", f->path);
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_size < 10) {
    close(fd);
    return bad(f, NULL, "too short for a safetensors file");
  }
  f->map_bytes = (size_t)st.st_size;
  f->map = mmap(NULL, f->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  int err = errno;
  close(fd);
  if (f->map == MAP_FAILED) {
    f->map = NULL;
    return moe_fail_errno(f->ctx, MOE_IO, err, "%s: cannot map", f->path);
  }
  return MOE_OK;
}

static moe_status read_shape(const struct moe_safetensors *f, json_t *shape,
                             struct moe_safetensor *t) {
  if (!json_is_array(shape) || json_array_size(shape) > MOE_SAFETENSORS_DIMS)
    return bad(f, t->name, "shape is not a list of at most 8 numbers");
  t->dims = (int32_t)json_array_size(shape);
  t->elements = 1;
  for (int32_t d = 0; d < t->dims; d++) {
    json_t *n = json_array_get(shape, (size_t)d);
    if (!json_is_integer(n) || json_integer_value(n) < 0)
      return bad(f, t->name, "a dim of shape is not a number >= 0");
    t->dim[d] = json_integer_value(n);
    if (__builtin_mul_overflow(t->elements, t->dim[d], &t->elements))
      return bad(f, t->name, "shape overflows");
  }
  return MOE_OK;
}

/* data: first byte after the header, of `size`. */
static moe_status read_entry(const struct moe_safetensors *f, json_t *entry,
                             const unsigned char *data, size_t size, struct moe_safetensor *t) {
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  json_t *range = json_object_get(entry, "data_offsets");
  if (dtype == NULL || json_array_size(range) != 2)
    return bad(f, t->name, "has no dtype or no data_offsets [begin, end]");
  const struct type *type = type_of(dtype);
  if (type == NULL) return bad(f, t->name, "dtype is unknown");
  t->type = type->name;
  MOE_TRY(read_shape(f, json_object_get(entry, "shape"), t));
  json_t *b = json_array_get(range, 0), *e = json_array_get(range, 1);
  if (!json_is_integer(b) || !json_is_integer(e))
    return bad(f, t->name, "data_offsets are not numbers");
  int64_t begin = json_integer_value(b), end = json_integer_value(e), bytes;
  if (begin < 0 || end < begin || (uint64_t)end > size)
    return bad(f, t->name, "data_offsets lie outside the file");
  if (__builtin_mul_overflow(t->elements, (int64_t)type->bits / 8, &bytes) || bytes != end - begin)
    return bad(f, t->name, "data_offsets do not agree with shape and dtype");
  t->data = data + begin;
  t->bytes = (size_t)bytes;
  return MOE_OK;
}

static int by_data(const void *a, const void *b) {
  const struct moe_safetensor *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static moe_status check_contiguous(const struct moe_safetensors *f, const unsigned char *data) {
  const unsigned char *end = (const unsigned char *)f->map + f->map_bytes;
  for (int64_t i = 0; i < f->tensors; i++) {
    if (f->tensor[i].data != data)
      return bad(f, f->tensor[i].name, "there is a hole before it, or it overlaps another");
    data += f->tensor[i].bytes;
  }
  return data == end ? MOE_OK : bad(f, NULL, "bytes are left over behind the last tensor");
}

static moe_status read_header(struct moe_safetensors *f, json_t *root, const unsigned char *data,
                              size_t size) {
  f->tensor = moe_alloc_array(f->ctx, json_object_size(root), sizeof *f->tensor);
  if (f->tensor == NULL) return MOE_MEMORY;
  const char *name;
  json_t *entry;
  json_object_foreach(root, name, entry) {
    if (strcmp(name, "__metadata__") == 0) continue;
    struct moe_safetensor *t = &f->tensor[f->tensors];
    t->name = moe_strdup(f->ctx, name);
    if (t->name == NULL) return MOE_MEMORY;
    f->tensors++;
    if (!json_is_object(entry)) return bad(f, name, "is not an object");
    MOE_TRY(read_entry(f, entry, data, size, t));
  }
  qsort(f->tensor, (size_t)f->tensors, sizeof *f->tensor, by_data);
  return check_contiguous(f, data);
}

static moe_status parse(struct moe_safetensors *f) {
  const unsigned char *p = f->map;
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | p[i];
  if (n > MAX_HEADER || n > f->map_bytes - 8 || n < 2)
    return bad(f, NULL, "the header's length is outside the file or over 100 MB");
  if (p[8] != '{') return bad(f, NULL, "the header does not begin with {");
  json_error_t error;
  json_t *root = json_loadb((const char *)p + 8, n, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL)
    return moe_fail(f->ctx, MOE_FORMAT, "%s: header, byte %d: %s", f->path, error.position,
                    error.text);
  moe_status status = json_is_object(root)
                          ? read_header(f, root, p + 8 + n, f->map_bytes - 8 - (size_t)n)
                          : bad(f, NULL, "the header is not an object");
  json_decref(root);
  return status;
}

moe_status moe_safetensors_open(moe_ctx *ctx, const char *path, struct moe_safetensors *out) {
  *out = (struct moe_safetensors){.ctx = ctx, .path = moe_strdup(ctx, path)};
  if (out->path == NULL) return MOE_MEMORY;
  moe_status status = map_file(out);
  if (status == MOE_OK) status = parse(out);
  if (status != MOE_OK) moe_safetensors_close(out);
  return status;
}

void moe_safetensors_close(struct moe_safetensors *f) {
  if (f->ctx == NULL) return;
  for (int64_t i = 0; i < f->tensors; i++) moe_release(f->ctx, f->tensor[i].name);
  moe_release(f->ctx, f->tensor);
  moe_release(f->ctx, f->path);
  if (f->map) munmap(f->map, f->map_bytes);
  *f = (struct moe_safetensors){0};
}

const struct moe_safetensor *moe_safetensors_find(const struct moe_safetensors *f,
                                                  const char *name) {
  for (int64_t i = 0; i < f->tensors; i++)
    if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
  return NULL;
}

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023, u;
  if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
  }
  u = exponent == 31 ? 0x7f800000u | fraction << 13 : (exponent + 112) << 23 | fraction << 13;
  u |= sign;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static moe_status check_range(const struct moe_safetensors *f, const struct moe_safetensor *t,
                              int64_t first, int64_t count) {
  if (first >= 0 && count >= 0 && first <= t->elements - count) return MOE_OK;
  return moe_fail(f->ctx, MOE_INVALID, "%s: %s: elements [%lld, +%lld) of %lld", f->path, t->name,
                  (long long)first, (long long)count, (long long)t->elements);
}

moe_status moe_safetensors_read_f32(const struct moe_safetensors *f, const struct moe_safetensor *t,
                                    int64_t first, int64_t count, float *out) {
  MOE_TRY(check_range(f, t, first, count));
  if (strcmp(t->type, "F32") == 0) {
    memcpy(out, t->data + 4 * first, (size_t)count * 4);
    return MOE_OK;
  }
  bool bf16 = strcmp(t->type, "BF16") == 0;
  if (!bf16 && strcmp(t->type, "F16") != 0)
    return moe_fail(f->ctx, MOE_UNSUPPORTED, "%s: %s is %s; weights are F32, F16 or BF16", f->path,
                    t->name, t->type);
  for (int64_t i = 0; i < count; i++) {
    uint16_t h;
    memcpy(&h, t->data + 2 * (first + i), 2);
    uint32_t u = (uint32_t)h << 16;
    if (bf16)
      memcpy(&out[i], &u, 4);
    else
      out[i] = half_to_float(h);
  }
  return MOE_OK;
}

moe_status moe_safetensors_read_i32(const struct moe_safetensors *f, const struct moe_safetensor *t,
                                    int64_t first, int64_t count, int32_t *out) {
  MOE_TRY(check_range(f, t, first, count));
  if (strcmp(t->type, "I32") == 0) {
    memcpy(out, t->data + 4 * first, (size_t)count * 4);
    return MOE_OK;
  }
  if (strcmp(t->type, "I64") != 0)
    return moe_fail(f->ctx, MOE_UNSUPPORTED, "%s: %s is %s; ids are I32 or I64", f->path, t->name,
                    t->type);
  for (int64_t i = 0; i < count; i++) {
    int64_t id;
    memcpy(&id, t->data + 8 * (first + i), 8);
    if (id < INT32_MIN || id > INT32_MAX)
      return moe_fail(f->ctx, MOE_FORMAT, "%s: %s: element %lld does not fit 32 bits", f->path,
                      t->name, (long long)(first + i));
    out[i] = (int32_t)id;
  }
  return MOE_OK;
}
