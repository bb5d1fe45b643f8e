/* The context: everything a use of the library owns hangs from one. Two contexts in a process are
 * independent. A context and its handles are used by one thread at a time. */
#ifndef MOELUA_CTX_H
#define MOELUA_CTX_H

#include "moelua/export.h"
#include "moelua/status.h"

MOE_BEGIN

typedef struct moe_ctx moe_ctx;

typedef enum moe_log_level {
  MOE_LOG_DEBUG,
  MOE_LOG_INFO,
  MOE_LOG_WARN,
  MOE_LOG_ERROR
} moe_log_level;

/* Called from the thread that uses the context; text has no newline and is valid for the call. */
typedef void (*moe_log_fn)(void *user, moe_log_level level, const char *text);

typedef struct moe_ctx_options {
  size_t size;     /* sizeof(moe_ctx_options) */
  int32_t threads; /* compute threads including the caller; 0: as many as this process may use */
  const char *isa; /* kernel set: "generic", "avx2", "avx512", "avx512bf16"; NULL: the best here */
  moe_log_fn log;  /* NULL: silent. The library itself never prints */
  void *log_user;
  void *(*alloc)(void *user, size_t bytes); /* NULL: malloc. 64-byte alignment is not required */
  void (*release)(void *user, void *ptr);   /* NULL: free. Both or neither */
  void *alloc_user;
} moe_ctx_options;

/* Fills *options with defaults, size included. */
MOE_API void moe_ctx_options_init(moe_ctx_options *options);
/* options may be NULL (defaults). On failure *out is NULL. Starts threads-1 worker threads. */
MOE_API moe_status moe_ctx_create(const moe_ctx_options *options, moe_ctx **out);
/* NULL is allowed. Handles made from the context must be destroyed before. */
MOE_API void moe_ctx_destroy(moe_ctx *ctx);
/* Text of the last error on this context, "" if none. Valid until the next failing call. */
MOE_API const char *moe_ctx_error(const moe_ctx *ctx);
MOE_API int32_t moe_ctx_threads(const moe_ctx *ctx);
/* The kernel set in use, e.g. "avx512bf16"; "" when the one asked for cannot run here. */
MOE_API const char *moe_ctx_isa(moe_ctx *ctx);
/* Allocations made through the context so far: steady training adds none. */
MOE_API uint64_t moe_ctx_alloc_count(const moe_ctx *ctx);
/* Bytes allocated now and at the highest point. Arenas and packs count with their full size. */
MOE_API uint64_t moe_ctx_alloc_bytes(const moe_ctx *ctx);
MOE_API uint64_t moe_ctx_alloc_peak(const moe_ctx *ctx);

/* "major.minor.patch" of the library that runs. */
MOE_API const char *moe_version(void);

MOE_END

#endif
