#include "checkpoints/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "checkpoints/catalog.h"
#include "moelua/checkpoint.h"

char *moe_path_join(moe_ctx *ctx, const char *a, const char *b) {
  size_t n = strlen(a) + strlen(b) + 2;
  char *path = moe_alloc(ctx, n);
  if (path) snprintf(path, n, "%s/%s", a, b);
  return path;
}

bool moe_path_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

moe_status moe_folder_sync(moe_ctx *ctx, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be opened to sync it", path);
  int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  if (failed) return moe_fail_errno(ctx, MOE_IO, failed, "%s: cannot be synced to the disk", path);
  return MOE_OK;
}

/* Syncs the folder that holds path. */
static moe_status sync_parent(moe_ctx *ctx, const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL) return moe_folder_sync(ctx, ".");
  if (slash == path) return moe_folder_sync(ctx, "/");
  char *parent = moe_strdup(ctx, path);
  if (parent == NULL) return MOE_MEMORY;
  parent[slash - path] = 0;
  moe_status status = moe_folder_sync(ctx, parent);
  moe_release(ctx, parent);
  return status;
}

static moe_status create_one(moe_ctx *ctx, const char *path) {
  if (mkdir(path, 0777) == 0) return sync_parent(ctx, path);
  int failed = errno;
  struct stat info;
  if (failed == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return MOE_OK;
  return moe_fail_errno(ctx, MOE_IO, failed, "%s: cannot make the folder", path);
}

moe_status moe_folder_create(moe_ctx *ctx, const char *path) {
  char *part = moe_strdup(ctx, path);
  if (part == NULL) return MOE_MEMORY;
  moe_status status = MOE_OK;
  for (size_t n = strlen(part); n > 1 && part[n - 1] == '/'; n--) part[n - 1] = 0;
  for (char *at = part + 1; status == MOE_OK && *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    if (!moe_path_exists(part)) status = create_one(ctx, part);
    *at = '/';
  }
  if (status == MOE_OK) status = create_one(ctx, part);
  moe_release(ctx, part);
  return status;
}

/* rank-DDDDD.h5 or the index: a file that this library writes. */
static bool is_ours(const char *name) {
  int rank, end = 0;
  if (strcmp(name, MOE_INDEX_FILE) == 0) return true;
  return sscanf(name, "rank-%d.h5%n", &rank, &end) == 1 && end > 0 && name[end] == 0;
}

void moe_folder_step_name(int64_t step, char name[MOE_STEP_NAME]) {
  snprintf(name, MOE_STEP_NAME, MOE_STEP_PREFIX "%08lld", (long long)step);
}

/* The step whose folder has exactly this name, else -1. */
static int64_t step_of(const char *name) {
  char exact[MOE_STEP_NAME];
  size_t prefix = strlen(MOE_STEP_PREFIX);
  if (strncmp(name, MOE_STEP_PREFIX, prefix) != 0) return -1;
  if (name[prefix] < '0' || name[prefix] > '9') return -1;
  int64_t step = strtoll(name + prefix, NULL, 10);
  moe_folder_step_name(step, exact);
  return strcmp(name, exact) == 0 ? step : -1;
}

/* Calls fn for every entry of path but . and .., until it fails. */
static moe_status each_entry(moe_ctx *ctx, const char *path, void *arg,
                             moe_status (*fn)(void *arg, const char *name)) {
  DIR *dir = opendir(path);
  if (dir == NULL) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be listed", path);
  moe_status status = MOE_OK;
  for (struct dirent *e; status == MOE_OK && (e = readdir(dir));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = fn(arg, e->d_name);
  closedir(dir);
  return status;
}

struct removal {
  moe_ctx *ctx;
  const char *path;
  int foreign; /* entries that are not ours */
};

static moe_status remove_entry(void *arg, const char *name) {
  struct removal *r = arg;
  if (!is_ours(name)) return MOE_OK;
  char *path = moe_path_join(r->ctx, r->path, name);
  if (path == NULL) return MOE_MEMORY;
  moe_status status = MOE_OK;
  if (unlink(path) != 0 && errno != ENOENT)
    status = moe_fail_errno(r->ctx, MOE_IO, errno, "%s: cannot be removed", path);
  moe_release(r->ctx, path);
  return status;
}

static moe_status count_foreign(void *arg, const char *name) {
  ((struct removal *)arg)->foreign += !is_ours(name);
  return MOE_OK;
}

moe_status moe_folder_remove(moe_ctx *ctx, const char *path) {
  struct removal r = {.ctx = ctx, .path = path};
  MOE_TRY(each_entry(ctx, path, &r, remove_entry));
  if (rmdir(path) != 0 && errno != ENOENT)
    return moe_fail_errno(ctx, MOE_IO, errno, "%s: the folder cannot be removed", path);
  return MOE_OK;
}

static moe_status clean_entry(void *arg, const char *name) {
  struct removal *r = arg;
  if (strncmp(name, MOE_TMP_PREFIX, strlen(MOE_TMP_PREFIX)) != 0) return MOE_OK;
  char *path = moe_path_join(r->ctx, r->path, name);
  if (path == NULL) return MOE_MEMORY;
  if (moe_folder_remove(r->ctx, path) != MOE_OK)
    moe_log(r->ctx, MOE_LOG_WARN, "left from an interrupted save: %s", moe_ctx_error(r->ctx));
  moe_release(r->ctx, path);
  return MOE_OK;
}

moe_status moe_folder_clean(moe_ctx *ctx, const char *dir) {
  struct removal r = {.ctx = ctx, .path = dir};
  return each_entry(ctx, dir, &r, clean_entry);
}

/* Renames inside of dir; flags as renameat2. Returns errno, 0 when done. */
static int rename_in(int dir, const char *from, const char *to, unsigned flags) {
  return renameat2(dir, from, dir, to, flags) == 0 ? 0 : errno;
}

/* `to` is taken: change places, or where the file system cannot, move it away before. */
static int replace(int dir, const char *from, const char *to) {
  int failed = rename_in(dir, from, to, RENAME_EXCHANGE);
  if (failed != EINVAL && failed != ENOSYS) return failed;
  failed = rename_in(dir, to, MOE_TMP_PREFIX "old", 0);
  if (failed) return failed;
  failed = rename_in(dir, from, to, 0);
  if (failed) return failed;
  return rename_in(dir, MOE_TMP_PREFIX "old", from, 0);
}

moe_status moe_folder_publish(moe_ctx *ctx, const char *dir, const char *from, const char *to) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be opened", dir);
  bool taken = faccessat(fd, to, F_OK, 0) == 0;
  int failed = taken ? replace(fd, from, to) : rename_in(fd, from, to, 0);
  if (failed == 0 && fsync(fd) != 0) failed = errno;
  close(fd);
  if (failed)
    return moe_fail_errno(ctx, MOE_IO, failed, "%s/%s: cannot get its name %s", dir, from, to);
  if (!taken) return MOE_OK;
  char *old = moe_path_join(ctx, dir, from);
  if (old == NULL) return MOE_MEMORY;
  if (moe_folder_remove(ctx, old) != MOE_OK)
    moe_log(ctx, MOE_LOG_WARN, "replaced checkpoint: %s", moe_ctx_error(ctx));
  moe_release(ctx, old);
  return MOE_OK;
}

/* Writes text to a new file and syncs it. Returns errno, 0 when done. */
static int write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  size_t n = strlen(text);
  ssize_t done = write(fd, text, n);
  int failed = done < 0 ? errno : (size_t)done != n ? ENOSPC : 0;
  if (!failed && fsync(fd) != 0) failed = errno;
  if (close(fd) != 0 && !failed) failed = errno;
  return failed;
}

moe_status moe_folder_set_latest(moe_ctx *ctx, const char *dir, const char *step) {
  char text[MOE_STEP_NAME + 1];
  snprintf(text, sizeof text, "%s\n", step);
  char *path = moe_path_join(ctx, dir, MOE_LATEST_FILE);
  char *temporary = moe_path_join(ctx, dir, ".tmp-" MOE_LATEST_FILE);
  moe_status status = path && temporary ? MOE_OK : MOE_MEMORY;
  if (status == MOE_OK) {
    int failed = write_text(temporary, text);
    if (!failed && rename(temporary, path) != 0) failed = errno;
    if (failed) {
      unlink(temporary);
      status = moe_fail_errno(ctx, MOE_IO, failed, "%s: cannot be written", path);
    }
  }
  if (status == MOE_OK) status = moe_folder_sync(ctx, dir);
  moe_release(ctx, temporary);
  moe_release(ctx, path);
  return status;
}

struct steps {
  moe_ctx *ctx;
  int64_t *step;
  int64_t n, room;
};

static moe_status collect_step(void *arg, const char *name) {
  struct steps *s = arg;
  int64_t step = step_of(name);
  if (step < 0) return MOE_OK;
  if (s->n == s->room) {
    s->room = s->room ? s->room * 2 : 32;
    int64_t *more = moe_realloc(s->ctx, s->step, (size_t)s->room * sizeof *more);
    if (more == NULL) return MOE_MEMORY;
    s->step = more;
  }
  s->step[s->n++] = step;
  return MOE_OK;
}

static int descending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x > y ? -1 : x < y;
}

/* Gives the folder a temporary name first, so that a removal that is cut short leaves no half of a
 * checkpoint under a checkpoint's name. */
static moe_status drop_step(moe_ctx *ctx, const char *dir, const char *name) {
  char temporary[MOE_STEP_NAME + 16];
  snprintf(temporary, sizeof temporary, MOE_TMP_PREFIX "old-%s", name + strlen(MOE_STEP_PREFIX));
  char *from = moe_path_join(ctx, dir, name), *to = moe_path_join(ctx, dir, temporary);
  struct removal r = {.ctx = ctx};
  moe_status status = from && to ? each_entry(ctx, from, &r, count_foreign) : MOE_MEMORY;
  if (status == MOE_OK && r.foreign > 0) {
    moe_log(ctx, MOE_LOG_WARN, "%s is kept: files that no checkpoint has are in it", from);
  } else if (status == MOE_OK) {
    if (rename(from, to) != 0)
      status = moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be removed", from);
    else
      status = moe_folder_remove(ctx, to);
  }
  moe_release(ctx, to);
  moe_release(ctx, from);
  return status;
}

void moe_folder_prune(moe_ctx *ctx, const char *dir, int32_t keep, const char *latest) {
  struct steps s = {.ctx = ctx};
  if (keep <= 0) return;
  moe_status status = each_entry(ctx, dir, &s, collect_step);
  if (status == MOE_OK && s.n > 0) qsort(s.step, (size_t)s.n, sizeof *s.step, descending);
  for (int64_t i = keep; status == MOE_OK && i < s.n; i++) {
    char name[MOE_STEP_NAME];
    moe_folder_step_name(s.step[i], name);
    if (strcmp(name, latest) != 0) status = drop_step(ctx, dir, name);
  }
  if (status != MOE_OK) moe_log(ctx, MOE_LOG_WARN, "old checkpoints: %s", moe_ctx_error(ctx));
  moe_release(ctx, s.step);
}

/* Reads dir/latest into name. MOE_NOTFOUND when there is no such file. */
static moe_status read_latest(moe_ctx *ctx, const char *path, char name[MOE_STEP_NAME]) {
  FILE *file = fopen(path, "re");
  if (file == NULL && (errno == ENOENT || errno == ENOTDIR))
    return moe_fail(ctx, MOE_NOTFOUND, "%s: there is no such file", path);
  if (file == NULL) return moe_fail_errno(ctx, MOE_IO, errno, "%s: cannot be read", path);
  size_t n = fread(name, 1, MOE_STEP_NAME - 1, file);
  fclose(file);
  name[n] = 0;
  name[strcspn(name, "\r\n")] = 0;
  if (step_of(name) >= 0) return MOE_OK;
  return moe_fail(ctx, MOE_FORMAT,
                  "%s: should name a folder like step-00000100 (write the name of a whole "
                  "checkpoint into it)",
                  path);
}

/* The folder that dir/latest names, to be released. */
static moe_status follow_latest(moe_ctx *ctx, const char *dir, char **out) {
  char name[MOE_STEP_NAME];
  *out = NULL;
  char *path = moe_path_join(ctx, dir, MOE_LATEST_FILE);
  if (path == NULL) return MOE_MEMORY;
  moe_status status = read_latest(ctx, path, name);
  char *folder = status == MOE_OK ? moe_path_join(ctx, dir, name) : NULL;
  if (status == MOE_OK && folder == NULL) status = MOE_MEMORY;
  if (status == MOE_OK && !moe_path_exists(folder))
    status = moe_fail(ctx, MOE_IO, "%s: names %s, which is not there", path, name);
  moe_release(ctx, path);
  if (status != MOE_OK)
    moe_release(ctx, folder);
  else
    *out = folder;
  return status;
}

moe_status moe_checkpoint_latest(moe_ctx *ctx, const char *dir, char *buffer, size_t bytes) {
  char *folder;
  MOE_TRY(follow_latest(ctx, dir, &folder));
  moe_status status = MOE_OK;
  if (strlen(folder) >= bytes)
    status = moe_fail(ctx, MOE_INVALID, "latest: the path has %zu bytes, the buffer %zu",
                      strlen(folder) + 1, bytes);
  else
    strcpy(buffer, folder);
  moe_release(ctx, folder);
  return status;
}

moe_status moe_folder_resolve(moe_ctx *ctx, const char *path, char **out) {
  *out = NULL;
  char *index = moe_path_join(ctx, path, MOE_INDEX_FILE);
  if (index == NULL) return MOE_MEMORY;
  bool is_checkpoint = moe_path_exists(index);
  moe_release(ctx, index);
  if (is_checkpoint) {
    *out = moe_strdup(ctx, path);
    return *out ? MOE_OK : MOE_MEMORY;
  }
  moe_status status = follow_latest(ctx, path, out);
  if (status != MOE_NOTFOUND) return status;
  return moe_fail(ctx, MOE_NOTFOUND,
                  "%s: neither a checkpoint (it has no " MOE_INDEX_FILE
                  ") nor a folder of "
                  "checkpoints (it has no " MOE_LATEST_FILE ")",
                  path);
}
