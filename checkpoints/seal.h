/* The index's last 16 bytes: "MOEINDEX" and XXH3_64 of all bytes before them. HDF5 ignores what
 * follows its own end of file. Invariant: HDF5 only ever parses an index whose seal holds, because
 * its readers trust lengths and links of damaged metadata. */
#ifndef MOE_CHECKPOINTS_SEAL_H
#define MOE_CHECKPOINTS_SEAL_H

#include "base/base.h"

/* Appends the seal and syncs the file. */
moe_status moe_seal_write(moe_ctx *ctx, const char *path);
/* MOE_FORMAT when the file is not what was sealed. */
moe_status moe_seal_check(moe_ctx *ctx, const char *path);

#endif
