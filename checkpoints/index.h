/* Making the index of a folder whose data files are complete. */
#ifndef MOE_CHECKPOINTS_INDEX_H
#define MOE_CHECKPOINTS_INDEX_H

#include "checkpoints/catalog.h"

/* Collects the slices of ranks 0 .. world-1, checks that they cover every tensor once, computes the
 * digests of whole tensors and writes index.h5. catalog: its header is filled in, the rest empty.
 */
moe_status moe_index_make(const char *folder, int32_t world, struct moe_catalog *catalog);

#endif
