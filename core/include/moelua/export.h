/* Visibility and linkage of the public interface. MOE_CDEF is set while the text for LuaJIT's
 * ffi.cdef is generated from these headers: then no system header and no attribute may appear. */
#ifndef MOELUA_EXPORT_H
#define MOELUA_EXPORT_H

#ifdef MOE_CDEF
#define MOE_API
#define MOE_BEGIN
#define MOE_END
#else
#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#else
#define MOE_API
#endif
#ifdef __cplusplus
#define MOE_BEGIN extern "C" {
#define MOE_END }
#else
#define MOE_BEGIN
#define MOE_END
#endif
#endif

#endif
