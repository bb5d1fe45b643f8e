/* Streaming through the slices of a checkpoint, file by file, through one buffer of MOE_PIECE
 * elements, checking digests on the way. */
#ifndef MOE_CHECKPOINTS_SCAN_H
#define MOE_CHECKPOINTS_SCAN_H

#include "checkpoints/catalog.h"

struct moe_scan {
  const char *folder;
  const struct moe_catalog *catalog;
  /* Which slices to read; NULL: all. */
  bool (*want)(void *arg, const struct moe_stored *tensor, const struct moe_slice *slice);
  /* Gets a slice's values, piece after piece; NULL: nobody. */
  moe_status (*piece)(void *arg, const struct moe_stored *tensor, const struct moe_box *piece,
                      const float *values);
  void *arg;
};
/* Damage (a file or dataset that cannot be read, a wrong digest) is added to errors, a line each,
 * and the scan goes on; pieces of a slice are handed out before its digest is known. Other errors
 * end it. */
moe_status moe_scan_run(const struct moe_scan *scan, struct moe_text *errors);
/* The digest of a whole tensor: the sum over its slices, or, where they cut segments, from the
 * data. */
moe_status moe_scan_digest(const char *folder, const struct moe_catalog *catalog,
                           const struct moe_stored *tensor, uint64_t *digest);

#endif
