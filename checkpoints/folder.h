/* The run folder: step-NNNNNNNN/ folders, `latest`, and what an interrupted save leaves behind.
 * Invariant: a folder named step-NNNNNNNN was whole when it got its name; `latest` names one that
 * is. Names beginning with ".tmp-step-" belong to a save or a removal that has not ended. Entries
 * of other names are never touched. */
#ifndef MOE_CHECKPOINTS_FOLDER_H
#define MOE_CHECKPOINTS_FOLDER_H

#include "base/base.h"

#define MOE_LATEST_FILE "latest"
#define MOE_STEP_PREFIX "step-"
#define MOE_TMP_PREFIX ".tmp-step-"

enum { MOE_STEP_NAME = 32 };

/* "step-00000100" */
void moe_folder_step_name(int64_t step, char name[MOE_STEP_NAME]);
/* "a/b", to be released; NULL with the error set when there is no memory. */
char *moe_path_join(moe_ctx *ctx, const char *a, const char *b);
bool moe_path_exists(const char *path);

/* mkdir -p, durable: parents of new folders are synced. */
moe_status moe_folder_create(moe_ctx *ctx, const char *path);
/* fsync of a file or folder. */
moe_status moe_folder_sync(moe_ctx *ctx, const char *path);
/* Removes what interrupted saves left in dir. */
moe_status moe_folder_clean(moe_ctx *ctx, const char *dir);
/* Removes a folder and the checkpoint files in it; other files, and then the folder, stay. */
moe_status moe_folder_remove(moe_ctx *ctx, const char *path);
/* Gives dir/from the name `to`, replacing what has it, and syncs dir. */
moe_status moe_folder_publish(moe_ctx *ctx, const char *dir, const char *from, const char *to);
/* Lets dir/latest name `step`, atomically and durably. */
moe_status moe_folder_set_latest(moe_ctx *ctx, const char *dir, const char *step);
/* Removes all but the `keep` highest steps and the one named `latest`; failures are logged. */
void moe_folder_prune(moe_ctx *ctx, const char *dir, int32_t keep, const char *latest);
/* The checkpoint folder that path means (path itself, or by its `latest`), to be released. */
moe_status moe_folder_resolve(moe_ctx *ctx, const char *path, char **out);

#endif
