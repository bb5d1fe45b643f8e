/* Memory of a context: counted, through the host's functions for small objects, mapped with huge
 * pages for big ones. Invariant: what moe_alloc gave goes to moe_release, what moe_map gave to
 * moe_unmap. */
#ifndef MOE_BASE_ALLOC_H
#define MOE_BASE_ALLOC_H

#include "base/base.h"

/* Zeroed. NULL with the error set when there is no memory. bytes 0 gives a unique pointer. */
void *moe_alloc(moe_ctx *ctx, size_t bytes);
/* As moe_alloc for count objects; overflow is out of memory. */
void *moe_alloc_array(moe_ctx *ctx, size_t count, size_t bytes);
/* Grows or shrinks; new bytes are not initialised. The old block stays valid on failure. */
void *moe_realloc(moe_ctx *ctx, void *ptr, size_t bytes);
void moe_release(moe_ctx *ctx, void *ptr); /* NULL is allowed */
char *moe_strdup(moe_ctx *ctx, const char *text);

/* Zeroed pages, 64-byte (in fact page) aligned, huge pages where the system gives them; touched
 * lazily. NULL with the error set on failure. */
void *moe_map(moe_ctx *ctx, size_t bytes);
void moe_unmap(moe_ctx *ctx, void *ptr, size_t bytes);

#endif
