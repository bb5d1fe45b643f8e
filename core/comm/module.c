/* Loads the modules that are not part of the library itself. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/backend.h"

/* The folder of the environment's MOELUA_MODULES, else the one this library (or program) lies in.
 */
static bool module_path(const char *name, char *out, size_t bytes) {
  const char *folder = getenv("MOELUA_MODULES");
  int n;
  if (folder && folder[0]) {
    n = snprintf(out, bytes, "%s/%s", folder, name);
  } else {
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)&moe_world_mpi, &info) || info.dli_fname == NULL) return false;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) return false;
    n = snprintf(out, bytes, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, name);
  }
  return n > 0 && (size_t)n < bytes;
}

/* RTLD_GLOBAL: Open MPI's own plugins look for its symbols. It stays loaded: MPI does not start
 * twice in a process. */
static void *load(const char *name) {
  enum { FLAGS = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE };
  char path[4096];
  void *module = module_path(name, path, sizeof path) ? dlopen(path, FLAGS) : NULL;
  return module ? module : dlopen(name, FLAGS);
}

moe_status moe_world_mpi(moe_ctx *ctx, const void *host_comm, struct moe_world **out) {
  static const struct moe_module_host host = {moe_alloc, moe_release, moe_map,
                                              moe_unmap, moe_fail,    moe_combine_of};
  *out = NULL;
  void *module = load(MOE_MPI_MODULE);
  if (module == NULL)
    return moe_fail(ctx, MOE_UNSUPPORTED, "the MPI module cannot be loaded: %s", dlerror());
  moe_module_open_fn open;
  void *symbol = dlsym(module, MOE_MPI_MODULE_OPEN), *impl;
  memcpy(&open, &symbol, sizeof open);
  if (open == NULL)
    return moe_fail(ctx, MOE_UNSUPPORTED, MOE_MPI_MODULE " is not a module of this library");
  const struct moe_backend *backend;
  int32_t rank, size;
  MOE_TRY(open(&host, ctx, host_comm, &backend, &impl, &rank, &size));
  return moe_world_make(ctx, backend, impl, rank, size, out);
}
