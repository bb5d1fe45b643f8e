/* Inside of an open token file. The stream of a file is all its sequences one after the other;
 * positions in it are 64-bit. Invariant: after moe_tokens_open every length, offset and document
 * was checked against the sizes of both files, so reading needs no further check of the index. */
#ifndef MOE_DATA_TOKENS_H
#define MOE_DATA_TOKENS_H

#include "base/base.h"
#include "moelua/data.h"

/* What an .idx begins with; all arrays behind it are unaligned. */
enum { MOE_TOKENS_MAGIC_BYTES = 9, MOE_TOKENS_HEADER_BYTES = 34 };
#define MOE_TOKENS_MAGIC "MMIDIDX\0" /* with the terminator: nine bytes */

/* Ids of any file are below this. */
#define MOE_TOKENS_ID_LIMIT ((int64_t)1 << 31)

enum moe_tokens_type {
  MOE_TOKENS_U8 = 1,
  MOE_TOKENS_I8,
  MOE_TOKENS_I16,
  MOE_TOKENS_I32,
  MOE_TOKENS_I64,
  MOE_TOKENS_F64,
  MOE_TOKENS_F32,
  MOE_TOKENS_U16,
  MOE_TOKENS_TYPES
};

struct moe_tokens {
  moe_ctx *ctx;
  char *prefix;                   /* owned */
  const unsigned char *idx, *bin; /* read-only mappings */
  size_t idx_bytes, bin_bytes;
  const unsigned char *lengths; /* i32[sequences] inside idx */
  const unsigned char *offsets; /* i64[sequences], bytes into bin */
  const unsigned char *first;   /* i64[documents + 1]: first sequence of each document */
  int64_t sequences, documents, tokens;
  int64_t *starts; /* owned; NULL when the .bin holds the stream in order */
  int64_t max_id;
  int32_t type, id_bytes;
};

/* Position of the first token of a sequence (index may be `sequences`) or document (likewise). */
int64_t moe_tokens_start(const moe_tokens *tokens, int64_t sequence);
int64_t moe_tokens_document_start(const moe_tokens *tokens, int64_t document);
/* Copies ids [first, first+count) of the stream, which must lie inside. An id that is negative or
 * >= limit (at most MOE_TOKENS_ID_LIMIT) is MOE_FORMAT. */
moe_status moe_tokens_copy(const moe_tokens *tokens, int64_t first, int64_t count, int64_t limit,
                           int32_t *ids);
/* Of the sizes and of the beginning and end of both files: differs when data was replaced. */
uint64_t moe_tokens_hash(const moe_tokens *tokens);

/* Unaligned little-endian loads. */
static inline int32_t moe_load_i32(const unsigned char *p) {
  int32_t v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
static inline int64_t moe_load_i64(const unsigned char *p) {
  int64_t v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

#endif
