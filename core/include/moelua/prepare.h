/* From text files to a token file. */
#ifndef MOELUA_PREPARE_H
#define MOELUA_PREPARE_H

#include "moelua/ctx.h"

MOE_BEGIN

/* What a document is. */
typedef enum moe_prepare_format {
  MOE_PREPARE_FILE,  /* each file is one, at most 1 GiB */
  MOE_PREPARE_LINES, /* ends at a line that is `separator` */
  MOE_PREPARE_JSONL  /* each line is a JSON object, the text its member `json_key` */
} moe_prepare_format;

typedef struct moe_prepare_report {
  size_t size;
  int64_t documents;       /* written */
  int64_t empty;           /* had no text and were left out */
  int64_t tokens;          /* written, ends of documents included */
  int64_t bytes;           /* read so far */
  int64_t bytes_total;     /* of all input files */
  int64_t repaired;        /* documents that were not valid UTF-8 */
} moe_prepare_report;

/* Called after every few MB and at the end of each file; not 0: stop. report lives for the call. */
typedef int32_t (*moe_prepare_fn)(void *user, const moe_prepare_report *report);

typedef struct moe_prepare_config {
  size_t size;
  const char *const *inputs;  /* text files in UTF-8, read in this order */
  int32_t n_inputs;
  const char *tokenizer;      /* as moe_tokenizer_open takes it */
  const char *output;         /* prefix: output.bin and output.idx are written */
  int32_t format;             /* moe_prepare_format */
  const char *separator;      /* LINES: a line without its line end; "": a blank line */
  const char *json_key;       /* JSONL */
  int32_t append_eod;         /* 1: documents end with the tokenizer's end of document */
  moe_prepare_fn progress;    /* NULL: none */
  void *progress_user;
} moe_prepare_config;

/* size; format LINES, separator "", json_key "text", append_eod 1. */
MOE_API void moe_prepare_config_init(moe_prepare_config *config);
/* Tokenises the inputs and writes the token file, document by document. report may be NULL. A
 * document takes no special tokens but its end; a byte order mark at the start of a file is left
 * out. MOE_FORMAT names file and line; MOE_INVALID where nothing came out; MOE_STATE where progress
 * stopped it. After any error no output file is touched. */
MOE_API moe_status moe_data_prepare(moe_ctx *ctx, const moe_prepare_config *config,
                                    moe_prepare_report *report);

MOE_END

#endif
