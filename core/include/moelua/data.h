/* Token files and samples. Token files are the .bin/.idx pairs of Megatron (checkpoints and data of
 * other tools open here and the other way round). */
#ifndef MOELUA_DATA_H
#define MOELUA_DATA_H

#include "moelua/ctx.h"

MOE_BEGIN

/* ---- reading a token file ---- */
typedef struct moe_tokens moe_tokens; /* one prefix.bin + prefix.idx, memory-mapped */

typedef struct moe_tokens_info {
  size_t size;
  int64_t sequences, documents, tokens;
  int32_t id_bytes; /* 1, 2, 4 or 8 */
  int64_t max_id;   /* largest id, -1 before moe_tokens_verify */
} moe_tokens_info;

/* prefix: the path without .bin and .idx. Checks the whole index, and that all offsets lie inside
 * the .bin. MOE_NOTFOUND, MOE_IO, MOE_FORMAT, MOE_UNSUPPORTED (TNTIDX, another version, floats). */
MOE_API moe_status moe_tokens_open(moe_ctx *ctx, const char *prefix, moe_tokens **out);
MOE_API void moe_tokens_close(moe_tokens *tokens);
MOE_API moe_status moe_tokens_get_info(const moe_tokens *tokens, moe_tokens_info *out);
/* Reads every id; MOE_FORMAT where one is negative or >= vocab (vocab 0: no limit but that of
 * int32). out may be NULL. */
MOE_API moe_status moe_tokens_verify(moe_tokens *tokens, int64_t vocab, moe_tokens_info *out);
/* Copies `count` ids of sequence `index` from `first` on; MOE_FORMAT where one is negative or does
 * not fit int32. */
MOE_API moe_status moe_tokens_read(const moe_tokens *tokens, int64_t index, int64_t first,
                                   int64_t count, int32_t *ids);
MOE_API moe_status moe_tokens_length(const moe_tokens *tokens, int64_t index, int64_t *out);

/* ---- writing a token file (temporary names, synced and renamed by finish) ---- */
typedef struct moe_tokens_writer moe_tokens_writer;

/* vocab decides the id type: u16 below 65,500, else i32. */
MOE_API moe_status moe_tokens_writer_create(moe_ctx *ctx, const char *prefix, int64_t vocab,
                                            moe_tokens_writer **out);
/* Appends one document of one sequence (it may be empty). An id outside [0, vocab) is MOE_INVALID
 * and nothing is appended. After MOE_IO the writer can only be destroyed. */
MOE_API moe_status moe_tokens_writer_add(moe_tokens_writer *writer, const int32_t *ids,
                                         int64_t count);
/* Replaces prefix.bin and prefix.idx. MOE_STATE when no token was added. */
MOE_API moe_status moe_tokens_writer_finish(moe_tokens_writer *writer);
/* Without finish: removes the temporary files. */
MOE_API void moe_tokens_writer_destroy(moe_tokens_writer *writer);

/* ---- samples ---- */
typedef struct moe_loader moe_loader;

typedef struct moe_source_config {
  size_t size;
  const char *prefix;
  double weight; /* share in the blend, any positive scale; shares are rounded to 2^-20 of the whole
                    where no shorter period is exact */
} moe_source_config;

typedef enum moe_split { MOE_SPLIT_TRAIN, MOE_SPLIT_VALID } moe_split;

typedef struct moe_loader_config {
  size_t size;
  const moe_source_config *sources;
  int32_t n_sources;
  int32_t seq;          /* S: a sample is S+1 tokens, tokens and labels shifted by one */
  int64_t vocab;        /* ids must be below; 0: no check */
  uint64_t seed;
  int32_t shuffle;      /* 1: documents and samples are shuffled, anew each epoch */
  int32_t split;        /* moe_split */
  double valid_fraction;/* last share of each source's tokens held out; 0: none. The cut may fall
                           inside a document; both parts get a token at least */
  int32_t mask_id;      /* labels equal to this id become -1 (masked); -1: none */
} moe_loader_config;

/* Sets size and weight 1. */
MOE_API void moe_source_config_init(moe_source_config *config);
/* Sets size, shuffle 1, no mask and no sources. */
MOE_API void moe_loader_config_init(moe_loader_config *config);
/* Opens all sources; keeps maps of them, no descriptors. MOE_INVALID when the split of a source is
 * smaller than one sample. */
MOE_API moe_status moe_loader_create(moe_ctx *ctx, const moe_loader_config *config,
                                     moe_loader **out);
MOE_API void moe_loader_destroy(moe_loader *loader);
/* Samples [cursor, cursor+count) of the endless global order: tokens_BS and labels_BS, each
 * (count, S); labels are -1 where masked. A pure function of (config, cursor): a resume or another
 * data-parallel size continues exactly by keeping the one global cursor. A source whose weight asks
 * for more samples than it has begins another epoch. Does not allocate. */
MOE_API moe_status moe_loader_read(moe_loader *loader, int64_t cursor, int64_t count,
                                   int32_t *tokens_BS, int32_t *labels_BS);
/* Samples in one epoch of all sources together. */
MOE_API int64_t moe_loader_epoch_samples(const moe_loader *loader);
/* Differs when a cursor would no longer mean the same samples: other data, weights, seq, seed,
 * split or mask. Names of files do not count. */
MOE_API uint64_t moe_loader_fingerprint(const moe_loader *loader);

MOE_END

#endif
