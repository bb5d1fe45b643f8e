/* What the checkers of memory are told about memory that we hand out ourselves: AddressSanitizer,
 * and valgrind's memcheck where its header is installed. Nothing happens in a run under neither. */
#ifndef MOE_BASE_MEMCHECK_H
#define MOE_BASE_MEMCHECK_H

#include <stddef.h>

#if defined(MOE_HAVE_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif
#if defined(MOE_HAVE_VALGRIND)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_NOACCESS(p, n) ((void)(p), (void)(n))
#define VALGRIND_MAKE_MEM_UNDEFINED(p, n) ((void)(p), (void)(n))
#endif

/* Bytes beside a mapping that nobody may touch: a page, so that mappings stay page-aligned. */
#if defined(MOE_HAVE_ASAN)
enum { MOE_GUARD = 4096 };
#else
enum { MOE_GUARD = 0 };
#endif

/* From now on touching these bytes is a fault. */
static inline void moe_memory_gone(void *p, size_t n) {
  ASAN_POISON_MEMORY_REGION(p, n);
  (void)VALGRIND_MAKE_MEM_NOACCESS(p, n);
}

/* These may be written; reading one before is a fault (valgrind only). */
static inline void moe_memory_fresh(void *p, size_t n) {
  ASAN_UNPOISON_MEMORY_REGION(p, n);
  (void)VALGRIND_MAKE_MEM_UNDEFINED(p, n);
}

/* The address range goes back to the system. */
static inline void moe_memory_returned(void *p, size_t n) { ASAN_UNPOISON_MEMORY_REGION(p, n); }

#endif
