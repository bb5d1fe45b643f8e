/* Reads a safetensors file: u64 header length, JSON header, data. Invariant: an open file has
 * passed every check (names unique, ranges contiguous from 0 to the end of the file, sizes = shape
 * * type), so a tensor's bytes lie inside the map. Data may be unaligned. */
#ifndef MOE_CHECKPOINTS_SAFETENSORS_H
#define MOE_CHECKPOINTS_SAFETENSORS_H

#include "base/base.h"
#include "moelua/config.h"

enum { MOE_SAFETENSORS_DIMS = 8 };

struct moe_safetensor {
  char *name;
  const char *type;  /* as written in the file: "F32", "BF16", ... */
  int32_t dims;
  int64_t dim[MOE_SAFETENSORS_DIMS];
  int64_t elements;
  const unsigned char *data;
  size_t bytes;
};

struct moe_safetensors {
  moe_ctx *ctx;
  char *path;
  void *map;
  size_t map_bytes;
  struct moe_safetensor *tensor; /* in order of their data */
  int64_t tensors;
};

moe_status moe_safetensors_open(moe_ctx *ctx, const char *path, struct moe_safetensors *out);
void moe_safetensors_close(struct moe_safetensors *file);
/* NULL when there is none. */
const struct moe_safetensor *moe_safetensors_find(const struct moe_safetensors *file,
                                                  const char *name);
/* Elements [first, first + count) as fp32 from F32, F16 or BF16; as int32 from I32 or I64. Another
 * type, or an id that int32 cannot hold, is an error that names the tensor. */
moe_status moe_safetensors_read_f32(const struct moe_safetensors *file,
                                    const struct moe_safetensor *tensor, int64_t first,
                                    int64_t count, float *out);
moe_status moe_safetensors_read_i32(const struct moe_safetensors *file,
                                    const struct moe_safetensor *tensor, int64_t first,
                                    int64_t count, int32_t *out);

#endif
