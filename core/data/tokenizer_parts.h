/* Inside of a tokenizer: what its file said, as the parts that run it. Invariant: after a
 * successful open every id in any part is in the vocabulary. */
#ifndef MOE_DATA_TOKENIZER_PARTS_H
#define MOE_DATA_TOKENIZER_PARTS_H

#include "data/added.h"
#include "data/bpe.h"
#include "data/ids.h"
#include "data/normalize.h"
#include "data/pretokenize.h"
#include "data/vocab.h"
#include "moelua/tokenizer.h"

enum moe_decode_kind {
  MOE_DECODE_BYTE_LEVEL,    /* the byte alphabet back to bytes */
  MOE_DECODE_REPLACE,       /* every `find` by `with` */
  MOE_DECODE_BYTE_FALLBACK, /* runs of <0xNN> to the text they spell */
  MOE_DECODE_FUSE,          /* all tokens to one string */
  MOE_DECODE_STRIP,         /* up to `start`, `stop` times `find` at the ends of each string */
  MOE_DECODE_METASPACE      /* `find` to a space; dropped in the first token when `start` */
};

struct moe_decode_step {
  enum moe_decode_kind kind;
  char *find, *with; /* owned */
  size_t n_find, n_with;
  int64_t start, stop;
};

enum { MOE_DECODE_STEPS = 16 };

struct moe_strings { /* string i ends at end[i]; they follow each other */
  struct moe_text text;
  size_t *end;
  size_t n, cap;
};

struct moe_decoder {
  moe_ctx *ctx;
  struct moe_decode_step steps[MOE_DECODE_STEPS];
  size_t n;
  bool bytes; /* not byte-level text but plain bytes */
  struct moe_strings strings[2];
};

void moe_decoder_init(moe_ctx *ctx, struct moe_decoder *decoder);
void moe_decoder_destroy(struct moe_decoder *decoder);
/* The strings of ids, through the steps; the result is valid until the next run. No step at all
 * joins them with spaces, as Hugging Face does. */
moe_status moe_decoder_run(struct moe_decoder *decoder, const struct moe_vocab *vocab,
                           const int32_t *ids, int64_t count, bool skip_special,
                           const struct moe_text **out);

struct moe_tokenizer {
  moe_ctx *ctx;
  bool bytes; /* the built-in one: no part but `vocab.size` and `decoder` is used */
  struct moe_vocab vocab;
  struct moe_added_set added[2]; /* looked for in the raw text, in normalised text */
  struct moe_normal normal;
  struct moe_cutter cutter;
  struct moe_bpe bpe;
  struct moe_decoder decoder;
  struct moe_ids before, after; /* what the post-processor puts around a text */
  int32_t eod;
  struct moe_ids ids; /* the last result */
  struct moe_text repaired;
};

/* ---- reading tokenizer.json ---- */

struct json_t;

/* Where in which file, for messages. */
struct moe_json_at {
  moe_ctx *ctx;
  const char *path;
  char field[160];
};

struct moe_json_at moe_json_at(const struct moe_json_at *parent, const char *fmt, ...)
    MOE_PRINTF(2, 3);
/* "PATH: FIELD: ..." */
moe_status moe_json_fail(const struct moe_json_at *at, moe_status status, const char *fmt, ...)
    MOE_PRINTF(3, 4);
/* Members of an object; absent and null give `fallback`, another type is MOE_FORMAT. */
moe_status moe_json_bool(const struct moe_json_at *at, const struct json_t *object, const char *key,
                         bool fallback, bool *out);
moe_status moe_json_int(const struct moe_json_at *at, const struct json_t *object, const char *key,
                        int64_t fallback, int64_t *out);
/* NULL where absent or null and not required. Borrowed from the object; n may be NULL. */
moe_status moe_json_string(const struct moe_json_at *at, const struct json_t *object,
                           const char *key, bool required, const char **out, size_t *n);
/* "type" of a part that must be an object. */
moe_status moe_json_type(const struct moe_json_at *at, const struct json_t *object,
                         const char **out);

/* Fills an initialised tokenizer. */
moe_status moe_tokenizer_json(struct moe_tokenizer *tokenizer, const char *path);
/* n_added, max_added: how many added tokens the file has, and their largest id. */
moe_status moe_tokenizer_json_model(struct moe_tokenizer *tokenizer, const struct moe_json_at *at,
                                    struct json_t *model, size_t n_added, int64_t max_added);
/* After the model; part is NULL or JSON null when there is none. */
moe_status moe_tokenizer_json_normalizer(struct moe_tokenizer *tokenizer,
                                         const struct moe_json_at *at, struct json_t *part);
moe_status moe_tokenizer_json_cutter(struct moe_tokenizer *tokenizer, const struct moe_json_at *at,
                                     struct json_t *part);
moe_status moe_tokenizer_json_post(struct moe_tokenizer *tokenizer, const struct moe_json_at *at,
                                   struct json_t *part);
moe_status moe_tokenizer_json_decoder(struct moe_tokenizer *tokenizer, const struct moe_json_at *at,
                                      struct json_t *part);

#endif
