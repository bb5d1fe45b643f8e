/* moe_trainer_load. The trainer's state changes last: after an error the step is what it was. */
#include <string.h>

#include "base/alloc.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/model_json.h"
#include "checkpoints/source.h"
#include "moelua/train.h"

/* Settings that no shape shows (topk, rope_theta) may be changed on purpose: a warning. */
static moe_status compare_models(const struct moe_trainer *t, const moe_checkpoint *c) {
  char *mine = moe_model_json(t->ctx, &t->model->config);
  if (mine == NULL) return MOE_MEMORY;
  if (strcmp(mine, c->catalog.header.model) != 0)
    moe_log(t->ctx, MOE_LOG_WARN, "%s was saved from a model with other settings: %s, here %s",
            c->folder, c->catalog.header.model, mine);
  moe_release(t->ctx, mine);
  return MOE_OK;
}

static moe_status load(struct moe_trainer *t, const moe_checkpoint *c) {
  struct moe_source source = moe_source_of_trainer(t);
  const struct moe_header *h = &c->catalog.header;
  MOE_TRY(compare_models(t, c));
  t->stale = true; /* from the first value on */
  MOE_TRY(moe_source_read(&source, c->folder, &c->catalog, t->model->place.pp.size == 1));
  const moe_trainer_state state = {
      .size = sizeof state, .step = h->step, .cursor = h->cursor, .seed = h->seed};
  return moe_trainer_set_state(t, &state);
}

moe_status moe_trainer_load(moe_trainer *t, const char *path) {
  moe_checkpoint *c;
  moe_status status = moe_checkpoint_open(t->ctx, path, &c);
  if (status == MOE_OK) {
    status = load(t, c);
    moe_checkpoint_close(c);
  }
  return moe_comm_agree(t->groups.of[MOE_GROUP_WORLD], t->stream, status);
}
