/* moe_trainer_save. Order of events: data files, one a rank; then the first rank alone: index, all
 * synced and read back under a temporary name; its real name; `latest`; old ones go. Whatever is
 * interrupted, `latest` names a whole checkpoint. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/folder.h"
#include "checkpoints/format.h"
#include "checkpoints/index.h"
#include "checkpoints/model_json.h"
#include "checkpoints/source.h"
#include "mesh/layout.h"
#include "moelua/train.h"

static moe_status fill_header(const struct moe_trainer *t, const char *meta,
                              struct moe_header *out) {
  const struct moe_place *p = &t->model->place;
  const char *order = t->config.layout.order ? t->config.layout.order : MOE_ORDER_DEFAULT;
  *out = (struct moe_header){.step = t->state.step,
                             .cursor = t->state.cursor,
                             .seed = t->state.seed,
                             .tp = p->tp.size,
                             .cp = p->cp.size,
                             .dp = p->dp.size,
                             .pp = p->pp.size,
                             .etp = p->etp.size,
                             .ep = p->ep.size,
                             .edp = p->edp.size,
                             .chunks = t->config.layout.chunks > 1 ? t->config.layout.chunks : 1};
  out->order = moe_strdup(t->ctx, order);
  out->dtype = moe_strdup(t->ctx, t->config.dtype == MOE_BF16 ? "bf16" : "f32");
  out->writer = moe_strdup(t->ctx, moe_version());
  out->model = moe_model_json(t->ctx, &t->model->config);
  if (meta) out->meta = moe_strdup(t->ctx, meta);
  bool whole = out->order && out->dtype && out->writer && out->model && (!meta || out->meta);
  return whole ? MOE_OK : MOE_MEMORY;
}

static moe_status write_index(struct moe_trainer *t, const char *folder, const char *meta) {
  struct moe_catalog catalog;
  moe_catalog_init(t->ctx, &catalog);
  moe_status status = fill_header(t, meta, &catalog.header);
  if (status == MOE_OK) status = moe_index_make(folder, t->world->size, &catalog);
  moe_catalog_destroy(&catalog);
  return status;
}

/* Reads everything back. */
static moe_status check_folder(moe_ctx *ctx, const char *folder) {
  moe_checkpoint *c;
  MOE_TRY(moe_checkpoint_open(ctx, folder, &c));
  moe_status status = moe_checkpoint_verify(c);
  moe_checkpoint_close(c);
  return status;
}

static moe_status write_data(struct moe_trainer *t, const char *folder) {
  struct moe_source source = moe_source_of_trainer(t);
  struct moe_writer *writer;
  MOE_TRY(
      moe_writer_create(t->ctx, folder, t->world->rank, t->world->size, t->state.step, &writer));
  return moe_writer_destroy(writer, moe_source_write(&source, writer));
}

static moe_status complete(struct moe_trainer *t, const char *folder, const char *meta) {
  MOE_TRY(write_index(t, folder, meta));
  MOE_TRY(moe_folder_sync(t->ctx, folder));
  return check_folder(t->ctx, folder);
}

/* Removes a folder that could not be finished; the error that led here stays the context's. */
static moe_status give_up(moe_ctx *ctx, const char *folder, moe_status status) {
  char *text = moe_strdup(ctx, moe_ctx_error(ctx));
  if (text && moe_path_exists(folder) && moe_folder_remove(ctx, folder) != MOE_OK) {
    moe_log(ctx, MOE_LOG_WARN, "unfinished checkpoint: %s", moe_ctx_error(ctx));
    moe_fail(ctx, status, "%s", text);
  }
  moe_release(ctx, text);
  return status;
}

/* What the first rank does before the others write. */
static moe_status begin(struct moe_trainer *t, const char *dir, const char *folder) {
  MOE_TRY(moe_folder_create(t->ctx, dir));
  MOE_TRY(moe_folder_clean(t->ctx, dir));
  return moe_folder_create(t->ctx, folder);
}

/* All ranks go through the same steps and agree after each. */
static moe_status save_step(struct moe_trainer *t, const char *dir, const char *meta,
                            const char *step) {
  struct moe_group all = t->groups.of[MOE_GROUP_WORLD];
  char temporary[MOE_STEP_NAME + 8];
  bool first = t->world->rank == 0;
  snprintf(temporary, sizeof temporary, ".tmp-%s", step);
  char *folder = moe_path_join(t->ctx, dir, temporary);
  moe_status status = folder ? MOE_OK : MOE_MEMORY;
  if (first && status == MOE_OK) status = begin(t, dir, folder);
  status = moe_comm_agree(all, t->stream, status);
  if (status == MOE_OK) status = moe_comm_agree(all, t->stream, write_data(t, folder));
  if (first && status == MOE_OK) status = complete(t, folder, meta);
  if (first && status == MOE_OK) status = moe_folder_publish(t->ctx, dir, temporary, step);
  if (first && status != MOE_OK && folder) status = give_up(t->ctx, folder, status);
  moe_release(t->ctx, folder);
  return status;
}

static moe_status check_arguments(struct moe_trainer *t, const char *dir, int32_t keep) {
  if (dir == NULL || dir[0] == 0) return moe_fail(t->ctx, MOE_INVALID, "save: no folder was given");
  if (keep < 0)
    return moe_fail(t->ctx, MOE_INVALID, "save: keep is %d; 0 keeps all checkpoints", keep);
  return MOE_OK;
}

moe_status moe_trainer_save(moe_trainer *t, const char *dir, int32_t keep, const char *meta_json) {
  char step[MOE_STEP_NAME];
  struct moe_group all = t->groups.of[MOE_GROUP_WORLD];
  MOE_TRY(moe_comm_agree(all, t->stream, check_arguments(t, dir, keep)));
  moe_folder_step_name(t->state.step, step);
  moe_status status = save_step(t, dir, meta_json, step);
  if (t->world->rank == 0 && status == MOE_OK) {
    status = moe_folder_set_latest(t->ctx, dir, step);
    if (status == MOE_OK) moe_folder_prune(t->ctx, dir, keep, step);
  }
  return moe_comm_agree(all, t->stream, status);
}
