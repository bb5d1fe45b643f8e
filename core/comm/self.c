/* One rank alone, and one rank of many that are only imagined. */
#include "comm/backend.h"

moe_status moe_world_self(moe_ctx *ctx, struct moe_world **out) {
  static const struct moe_backend backend = {.name = "self"};
  return moe_world_make(ctx, &backend, NULL, 0, 1, out);
}

static moe_status no_comm(struct moe_world *world, const int32_t *ranks, int32_t size,
                          void **impl) {
  (void)world;
  (void)ranks;
  (void)size;
  *impl = NULL;
  return MOE_OK;
}
static void nothing(struct moe_world *world, void *impl) {
  (void)world;
  (void)impl;
}
static moe_status no_transfer(struct moe_comm *comm, struct moe_stream *stream,
                              const struct moe_transfer *t, struct moe_request *request) {
  (void)comm;
  (void)stream;
  (void)t;
  (void)request;
  return MOE_OK;
}
moe_status moe_world_recording(moe_ctx *ctx, int32_t rank, int32_t size, struct moe_world **out) {
  static const struct moe_backend backend = {.name = "recording",
                                             .comm_create = no_comm,
                                             .comm_destroy = nothing,
                                             .start = no_transfer,
                                             .dry = true};
  return moe_world_make(ctx, &backend, NULL, rank, size, out);
}
