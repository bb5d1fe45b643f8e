/* Status codes: every function that can fail returns one. The text of the last error is kept by
 * the context (moe_ctx_error). */
#ifndef MOELUA_STATUS_H
#define MOELUA_STATUS_H

#include "moelua/export.h"

MOE_BEGIN

/* X(NAME, value, text). Values never change: they are part of the ABI. */
#define MOE_STATUS_MAP(X)                                     \
  X(OK, 0, "ok")                                              \
  X(INVALID, 1, "invalid argument or configuration")          \
  X(MEMORY, 2, "out of memory")                               \
  X(IO, 3, "input or output failed")                          \
  X(FORMAT, 4, "malformed file")                              \
  X(NOTFOUND, 5, "not found")                                 \
  X(UNSUPPORTED, 6, "not supported by this build or machine") \
  X(NOFIT, 7, "does not fit this machine")                    \
  X(NUMERIC, 8, "not a number or infinite")                   \
  X(STATE, 9, "called in the wrong state")                    \
  X(COMM, 10, "communication failed")                         \
  X(INTERNAL, 11, "internal error")

#define MOE_STATUS_ENUM(name, value, text) MOE_##name = value,
typedef enum moe_status { MOE_STATUS_MAP(MOE_STATUS_ENUM) } moe_status;

/* The code's name ("INVALID"), or "UNKNOWN". Static storage. */
MOE_API const char *moe_status_name(moe_status status);
/* One line of English about the code. Static storage. */
MOE_API const char *moe_status_text(moe_status status);

MOE_END

#endif
