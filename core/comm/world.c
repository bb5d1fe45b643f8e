/* Worlds and the communicators they own. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/ctx.h"
#include "comm/backend.h"
#include "moelua/comm.h"

const char *moe_comm_op_name(enum moe_comm_op op) {
  static const char *const names[] = {
#define NAME(name, text) text,
      MOE_COMM_OP_MAP(NAME)
#undef NAME
  };
  return names[op];
}

moe_status moe_world_make(moe_ctx *ctx, const struct moe_backend *backend, void *impl, int32_t rank,
                          int32_t size, struct moe_world **out) {
  *out = NULL;
  struct moe_world *world = moe_alloc(ctx, sizeof *world);
  if (world == NULL) return MOE_MEMORY;
  world->ctx = ctx;
  world->backend = backend;
  world->impl = impl;
  world->rank = rank;
  world->size = size;
  world->message_bytes = MOE_COMM_MESSAGE;
  world->piece_bytes = MOE_COMM_PIECE;
  world->board = backend->board ? backend->board(world, rank) : NULL;
  if (world->board == NULL) world->board = world->own_board = moe_alloc(ctx, sizeof *world->board);
  if (world->board == NULL) {
    moe_world_destroy(world);
    return MOE_MEMORY;
  }
  world->group_name[MOE_COMM_TAGS - 1] = "job"; /* of moe_ctx_agree */
  world->count = world->board->count;
  world->ring = world->board->ring;
  world->board->waiting = -1;
  world->board->process = getpid();
  *out = world;
  return MOE_OK;
}

static void comm_destroy(struct moe_world *world, struct moe_comm *comm) {
  if (comm->impl) world->backend->comm_destroy(world, comm->impl);
  moe_release(world->ctx, (void *)(uintptr_t)comm->ranks);
  moe_release(world->ctx, comm);
}

void moe_world_destroy(struct moe_world *world) {
  if (world == NULL) return;
  for (int32_t i = world->comms - 1; i >= 0; i--) comm_destroy(world, world->comm[i]);
  moe_release(world->ctx, world->comm);
  moe_release(world->ctx, world->own_board);
  if (world->backend->close) world->backend->close(world);
  moe_release(world->ctx, world->broken);
  moe_release(world->ctx, world);
}

static struct moe_comm *find(const struct moe_world *world, const int32_t *ranks, int32_t size) {
  for (int32_t i = 0; i < world->comms; i++) {
    struct moe_comm *c = world->comm[i];
    if (c->size == size && !memcmp(c->ranks, ranks, (size_t)size * sizeof *ranks)) return c;
  }
  return NULL;
}

/* Room for one more in the list, so that a communicator once made cannot be lost. */
static moe_status reserve(struct moe_world *world) {
  if (world->comms < world->room) return MOE_OK;
  int32_t room = world->room ? 2 * world->room : 16;
  struct moe_comm **list =
      moe_realloc(world->ctx, world->comm, (size_t)room * sizeof(struct moe_comm *));
  if (list == NULL) return MOE_MEMORY;
  world->comm = list;
  world->room = room;
  return MOE_OK;
}

moe_status moe_comm_get(struct moe_world *world, const int32_t *ranks, int32_t size,
                        struct moe_comm **out) {
  *out = find(world, ranks, size);
  if (*out) return MOE_OK;
  int32_t mine = -1;
  for (int32_t i = 0; i < size; i++)
    if (ranks[i] == world->rank) mine = i;
  if (mine < 0)
    return moe_fail(world->ctx, MOE_INTERNAL, "rank %d is not in the group it asks for",
                    world->rank);
  MOE_TRY(reserve(world));
  struct moe_comm *comm = moe_alloc(world->ctx, sizeof *comm);
  int32_t *copy = moe_alloc_array(world->ctx, (size_t)size, sizeof *copy);
  if (comm == NULL || copy == NULL) {
    moe_release(world->ctx, comm);
    moe_release(world->ctx, copy);
    return MOE_MEMORY;
  }
  memcpy(copy, ranks, (size_t)size * sizeof *copy);
  *comm = (struct moe_comm){.world = world, .rank = mine, .size = size, .ranks = copy};
  moe_status status = MOE_OK;
  if (size > 1) status = world->backend->comm_create(world, copy, size, &comm->impl);
  if (status != MOE_OK) {
    comm_destroy(world, comm);
    return status;
  }
  world->comm[world->comms++] = comm;
  *out = comm;
  return MOE_OK;
}

static void keep(moe_ctx *ctx, struct moe_world *world) {
  ctx->world = world;
  ctx->world_destroy = moe_world_destroy;
}

moe_status moe_ctx_world(moe_ctx *ctx, struct moe_world **out) {
  *out = NULL;
  if (ctx->world == NULL) {
    struct moe_world *self;
    MOE_TRY(moe_world_self(ctx, &self));
    keep(ctx, self);
  }
  *out = ctx->world;
  return MOE_OK;
}

moe_status moe_ctx_join_mpi(moe_ctx *ctx, const void *comm) {
  struct moe_world *world;
  if (ctx->world)
    return moe_fail(ctx, MOE_STATE, "the context has %d rank%s already; join before its first use",
                    ctx->world->size, ctx->world->size == 1 ? "" : "s");
  MOE_TRY(moe_world_mpi(ctx, comm, &world));
  keep(ctx, world);
  return MOE_OK;
}

void moe_ctx_comm_timeout(moe_ctx *ctx, double seconds) { ctx->comm_timeout = seconds; }

moe_tells moe_ctx_tells(const moe_ctx *ctx) { return ctx->tells; }
int32_t moe_ctx_rank(const moe_ctx *ctx) { return ctx->world ? ctx->world->rank : 0; }
int32_t moe_ctx_ranks(const moe_ctx *ctx) { return ctx->world ? ctx->world->size : 1; }
