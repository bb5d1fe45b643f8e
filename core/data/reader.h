/* Reads a text file in blocks: line by line or as a whole, never more than one document in memory.
 * Invariant: a byte order mark at the start is passed over. */
#ifndef MOE_DATA_READER_H
#define MOE_DATA_READER_H

#include <stdio.h>

#include "base/text.h"

enum { MOE_READER_BLOCK = 1 << 16 };

struct moe_reader {
  moe_ctx *ctx;
  const char *path; /* borrowed */
  FILE *file;
  int64_t line;  /* lines read */
  int64_t bytes; /* read from the file */
  size_t at, n;  /* what is left of the block */
  char block[MOE_READER_BLOCK];
};

/* Bytes of a file that can be read as text: MOE_NOTFOUND or MOE_IO where it is not one. */
moe_status moe_reader_stat(moe_ctx *ctx, const char *path, int64_t *bytes);
moe_status moe_reader_open(moe_ctx *ctx, const char *path, struct moe_reader *reader);
void moe_reader_close(struct moe_reader *reader);
/* Appends the next line, line end included, to *out; *more is 0 at the end of the file.
 * MOE_INVALID when *out would pass `limit` bytes. */
moe_status moe_reader_line(struct moe_reader *reader, size_t limit, struct moe_text *out,
                           bool *more);
/* Appends the next block. */
moe_status moe_reader_block(struct moe_reader *reader, size_t limit, struct moe_text *out,
                            bool *more);

#endif
