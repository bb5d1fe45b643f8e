/* Sums and maxima of what several ranks sent, on the host. */
#ifndef MOE_COMM_COMBINE_H
#define MOE_COMM_COMBINE_H

#include "comm/comm.h"

/* out[i] = part[0][i] + part[1][i] + ..., in this order: the bits depend on nothing else. bf16 is
 * summed in fp32 and rounded once. out may be one of the parts. */
typedef void (*moe_combine_fn)(int64_t n, const void *const *part, int32_t parts, void *out);
/* NULL: nothing sums this type. */
moe_combine_fn moe_combine_of(moe_dtype dtype, enum moe_reduce reduce);

#endif
