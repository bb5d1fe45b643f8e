/* Ranks agree on errors: one status, one text, one rank that tells it. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ctx.h"
#include "comm/comm.h"

/* What the rank that speaks hands to the others. */
struct speech {
  char place[64];
  char text[MOE_ERROR_BYTES / 2];
};

static moe_status tell(struct moe_comm *c, moe_status status, int32_t first, bool alike,
                       const struct speech *said) {
  moe_ctx *ctx = c->world->ctx;
  if (alike)
    moe_fail(ctx, status, "%s", said->text);
  else
    moe_fail(ctx, status, said->place[0] ? "rank %d (%s): %s" : "rank %d%s: %s", c->ranks[first],
             said->place, said->text);
  ctx->tells = c->rank == 0 ? MOE_TELLS_ALL : MOE_TELLS_NOT;
  return status;
}

moe_status moe_comm_agree(struct moe_group g, struct moe_stream *s, moe_status mine) {
  struct moe_comm *c = g.comm;
  moe_ctx *ctx = c->world->ctx;
  if (c->size == 1) return mine;
  int64_t worst = (int64_t)mine * c->size + (c->size - 1 - c->rank);
  struct speech own, said;
  memset(&own, 0, sizeof own);
  memcpy(own.place, c->world->board->place, sizeof own.place);
  snprintf(own.text, sizeof own.text, "%.*s", (int)sizeof own.text - 1, ctx->error);
  MOE_TRY(moe_all_reduce(g, s, &worst, 1, MOE_I64, MOE_MAX, NULL));
  if (worst < c->size) return MOE_OK;
  int32_t first = (int32_t)(c->size - 1 - worst % c->size);
  moe_status status = (moe_status)(worst / c->size);
  said = own;
  MOE_TRY(moe_broadcast(g, s, &said, (int64_t)sizeof said, MOE_U8, first, NULL));
  int32_t differs = mine != status || strcmp(own.text, said.text) != 0;
  MOE_TRY(moe_all_reduce(g, s, &differs, 1, MOE_I32, MOE_MAX, NULL));
  return tell(c, status, first, !differs, &said);
}

static moe_status everyone(struct moe_world *world, struct moe_group *out) {
  int32_t *ranks = moe_alloc_array(world->ctx, (size_t)world->size, sizeof *ranks);
  if (ranks == NULL) return MOE_MEMORY;
  for (int32_t i = 0; i < world->size; i++) ranks[i] = i;
  *out = (struct moe_group){.tag = MOE_COMM_TAGS - 1};
  moe_status status = moe_comm_get(world, ranks, world->size, &out->comm);
  moe_release(world->ctx, ranks);
  return status;
}

moe_status moe_ctx_agree(moe_ctx *ctx, moe_status mine, const char *text) {
  struct moe_world *world;
  struct moe_group all;
  MOE_TRY(moe_ctx_world(ctx, &world));
  MOE_TRY(everyone(world, &all)); /* first: it replaces the text if it fails */
  if (mine != MOE_OK && text) moe_fail(ctx, mine, "%s", text);
  return moe_comm_agree(all, NULL, mine);
}

const char *moe_ctx_rank_name(moe_ctx *ctx) {
  struct moe_world *world = ctx->world;
  if (world == NULL) return "rank 0";
  const char *place = world->board->place;
  snprintf(world->label, sizeof world->label, place[0] ? "rank %d (%s)" : "rank %d", world->rank,
           place);
  return world->label;
}
