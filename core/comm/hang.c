/* A rank has waited too long for others: who is behind, and what it did last. */
#include "base/alloc.h"
#include "base/ctx.h"
#include "base/text.h"
#include "comm/backend.h"

enum { LISTED = 8, SHOWN = 6 };

static const struct moe_board *board_of(struct moe_world *world, int32_t rank) {
  if (rank == world->rank) return world->board;
  return world->backend->board ? world->backend->board(world, rank) : NULL;
}

static void add_rank(struct moe_text *text, struct moe_world *world, int32_t rank) {
  const struct moe_board *b = board_of(world, rank);
  moe_text_add(text, b && b->place[0] ? "rank %d (%s)" : "rank %d", rank, b ? b->place : "");
}

static void add_transfer(struct moe_text *text, struct moe_world *world,
                         const struct moe_ring_entry *e) {
  const char *name = world->group_name[e->tag];
  moe_text_add(text, "%s of group ", moe_comm_op_name(e->op));
  if (name)
    moe_text_add(text, "%s", name);
  else
    moe_text_add(text, "%d", e->tag);
  moe_text_add(text, " (%d ranks)", e->size);
}

static const struct moe_ring_entry *entry(const struct moe_board *b, int64_t number) {
  return &b->ring[number % MOE_COMM_RING];
}

/* What a rank does now: it waits in a transfer, or is in none since. */
static void add_doing(struct moe_text *text, struct moe_world *world, const struct moe_board *b) {
  if (b->transfers == 0) {
    moe_text_add(text, "has begun no transfer");
    return;
  }
  bool waits = b->waiting >= 0;
  struct moe_ring_entry e = *entry(b, waits ? b->waiting : b->transfers - 1);
  double since = waits || e.ended == 0 ? e.started : e.ended;
  moe_text_add(text, waits ? "waits in " : "is in no transfer; its last was ");
  add_transfer(text, world, &e);
  moe_text_add(text, ", %s %.1f s ago",
               waits         ? "begun"
               : e.ended > 0 ? "ended"
                             : "begun",
               moe_now() - since);
}

/* Members that have begun fewer operations of this kind; else those that wait for nothing; of a
 * message, the other side. Returns how many, `out` the first LISTED. */
static int32_t missing(struct moe_request *request, const struct moe_ring_entry *e, int32_t *out) {
  struct moe_comm *c = request->comm;
  struct moe_world *world = c->world;
  int64_t calls = world->count[e->tag][e->op].calls;
  if (e->op == MOE_COMM_SEND || e->op == MOE_COMM_RECV) {
    out[0] = c->ranks[e->peer];
    return 1;
  }
  int32_t n = 0;
  for (int idle = 0; idle < 2 && n == 0; idle++)
    for (int32_t m = 0; m < c->size; m++) {
      const struct moe_board *b = board_of(world, c->ranks[m]);
      if (b == NULL || m == c->rank) continue;
      if (idle ? b->waiting >= 0 : b->count[e->tag][e->op].calls >= calls) continue;
      if (n++ < LISTED) out[n - 1] = c->ranks[m];
    }
  return n;
}

/* The one that holds up the others: it waits for nobody. -1: all wait, or nothing is known. */
static int32_t idle(struct moe_world *world) {
  for (int32_t rank = 0; rank < world->size; rank++) {
    const struct moe_board *b = board_of(world, rank);
    if (b && b->waiting < 0) return rank;
  }
  return -1;
}

static void add_ring(struct moe_text *text, struct moe_world *world, int32_t rank) {
  const struct moe_board *b = board_of(world, rank);
  if (b == NULL) return;
  moe_text_line(text, "the last transfers of ");
  add_rank(text, world, rank);
  moe_text_add(text, ", process %lld:", (long long)b->process);
  int64_t last = b->transfers, first = moe_max64(0, last - SHOWN);
  for (int64_t i = first; i < last; i++) {
    struct moe_ring_entry e = *entry(b, i);
    moe_text_line(text, "  %lld  ", (long long)e.number);
    add_transfer(text, world, &e);
    moe_text_add(text, ", %lld bytes, begun %.1f s ago, ", (long long)e.bytes,
                 moe_now() - e.started);
    if (e.ended > 0)
      moe_text_add(text, "took %.3f s", e.ended - e.started);
    else
      moe_text_add(text, "not ended");
  }
}

/* What each of the ranks does, a line each. */
static void add_behind(struct moe_text *text, struct moe_world *world, const int32_t *list,
                       int32_t n) {
  for (int32_t i = 0; i < n && i < LISTED; i++) {
    const struct moe_board *b = board_of(world, list[i]);
    moe_text_add(text, "\n");
    add_rank(text, world, list[i]);
    moe_text_add(text, " ");
    if (b)
      add_doing(text, world, b);
    else
      moe_text_add(text, "is on another machine");
  }
  if (n > LISTED) moe_text_line(text, "and %d more", n - LISTED);
}

static void describe(struct moe_text *text, struct moe_request *request, double seconds) {
  struct moe_world *world = request->comm->world;
  struct moe_ring_entry e = *entry(world->board, request->ring);
  int32_t list[LISTED];
  add_rank(text, world, world->rank);
  moe_text_add(text, " has waited %g s in ", seconds);
  add_transfer(text, world, &e);
  int32_t n = missing(request, &e, list), root = idle(world);
  moe_text_add(text,
               n == 1  ? " for rank %d"
               : n > 1 ? " for %d ranks"
                       : "; all have begun it",
               n == 1 ? list[0] : n);
  add_behind(text, world, list, n);
  bool listed = false;
  for (int32_t i = 0; i < n && i < LISTED; i++) listed = listed || list[i] == root;
  if (root >= 0 && !listed) add_behind(text, world, &root, 1);
  if (root < 0 && n > 0) root = list[0];
  add_ring(text, world, root >= 0 && board_of(world, root) ? root : world->rank);
}

/* One rank of a machine speaks of a hang: the first. */
static bool first_to_tell(struct moe_world *world) {
  for (int32_t rank = 0; rank < world->size; rank++) {
    const struct moe_board *b = board_of(world, rank);
    if (b) return atomic_exchange(&((struct moe_board *)(uintptr_t)b)->told, 1) == 0;
  }
  return true;
}

moe_status moe_world_hang(struct moe_request *request, double seconds) {
  struct moe_world *world = request->comm->world;
  struct moe_text text;
  moe_text_init(world->ctx, &text);
  describe(&text, request, seconds);
  world->broken = moe_strdup(world->ctx, text.failed || !text.s ? "a rank is behind" : text.s);
  moe_text_destroy(&text);
  if (world->broken == NULL) return MOE_MEMORY;
  moe_status status = moe_fail(world->ctx, MOE_COMM, "%s", world->broken);
  world->ctx->tells = world->broken_tells = first_to_tell(world) ? MOE_TELLS_ALL : MOE_TELLS_NOT;
  return status;
}
