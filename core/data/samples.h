/* The samples of one source: which of its tokens belong to the split, and in which order they are
 * read. An epoch puts the documents in a shuffled order, cuts their tokens into windows of S+1 that
 * overlap by one token (so that each token is predicted once), and shuffles the windows; less than
 * S tokens at its end are left out. Invariant: sample `index` depends on (data, split, S, seed,
 * index) only; the table is a cache of the last epoch entered. */
#ifndef MOE_DATA_SAMPLES_H
#define MOE_DATA_SAMPLES_H

#include "base/rng.h"
#include "data/tokens.h"

struct moe_samples {
  moe_ctx *ctx;
  moe_tokens *tokens;          /* owned */
  int64_t begin, end;          /* the split: positions in the stream */
  int64_t document, documents; /* the first that reaches into the split, and how many do */
  int64_t seq;                 /* S */
  int64_t per_epoch;           /* samples of one epoch, > 0 */
  bool shuffle;
  uint64_t seed;
  int32_t source; /* its number: part of the keys */
  int64_t epoch;  /* that `ends` and the keys are of; -1: none yet */
  struct moe_rng_key document_key, sample_key;
  int64_t *ends; /* owned, [documents]: tokens up to the end of each document in shuffled order;
                    NULL when there is nothing to shuffle */
};

/* Opens prefix and cuts the split. On failure nothing is left open. */
moe_status moe_samples_init(moe_ctx *ctx, const moe_loader_config *config, int32_t source,
                            struct moe_samples *out);
void moe_samples_destroy(struct moe_samples *samples);
/* ids: S+1 of sample `index` >= 0 of the endless order. Ids must be below limit. Does not allocate;
 * the first sample of another epoch costs a pass over the documents. */
moe_status moe_samples_read(struct moe_samples *samples, int64_t index, int64_t limit,
                            int32_t *ids);

#endif
