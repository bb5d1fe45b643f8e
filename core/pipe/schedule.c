/* Lists are made by playing all ranks in rounds: in a round every rank whose next computation has
 * its input does it, and at the round's end all results move. So a transfer stands at the same
 * round in both lists, which is why they cannot deadlock: exchanges can be ordered by round. */
#include "pipe/schedule.h"

#include "base/alloc.h"

struct player {
  int64_t forwards, backwards; /* done */
  int64_t warmup;
  struct moe_instr *next; /* where its list goes on */
  struct moe_instr did;   /* this round; op MOE_INSTRS: nothing */
};

struct game {
  const struct moe_pipe_shape *shape;
  struct player *player; /* [pp] */
  bool *forward_done;    /* [pp * chunks][micros], at the end of the round before */
  bool *backward_done;
};

static int32_t group_of(const struct moe_pipe_shape *s) { return s->group > 0 ? s->group : s->pp; }

int64_t moe_schedule_warmup(const struct moe_pipe_shape *s, int32_t rank) {
  int64_t all = (int64_t)s->chunks * s->micros, behind = s->pp - rank - 1;
  if (s->kind == MOE_SCHEDULE_ALL_FORWARD) return all;
  if (s->chunks == 1) return moe_min64(behind, all);
  return moe_min64(2 * behind + (int64_t)(s->chunks - 1) * group_of(s), all);
}

/* Computation `at` of a rank's forwards or backwards: groups of micro-batches go through the chunks
 * one after the other; the last group may be smaller. */
static struct moe_instr computation(const struct moe_pipe_shape *s, enum moe_instr_op op,
                                    int64_t at) {
  int64_t group = group_of(s), start = at / (s->chunks * group) * group;
  int64_t size = moe_min64(group, s->micros - start), rest = at - start * s->chunks;
  int32_t chunk = (int32_t)(rest / size), micro = (int32_t)(start + rest % size);
  if (op == MOE_INSTR_BACKWARD) chunk = s->chunks - 1 - chunk;
  return (struct moe_instr){op, chunk, micro, -1};
}

static int64_t cell(const struct moe_pipe_shape *s, int32_t stage, int32_t micro) {
  return (int64_t)stage * s->micros + micro;
}

/* The rank's next forward or backward, if there is one and its input has arrived. */
static bool ready(const struct game *g, int32_t rank, enum moe_instr_op op, struct moe_instr *out) {
  const struct moe_pipe_shape *s = g->shape;
  const struct player *p = &g->player[rank];
  int64_t at = op == MOE_INSTR_FORWARD ? p->forwards : p->backwards;
  if (at == (int64_t)s->chunks * s->micros) return false;
  *out = computation(s, op, at);
  int32_t stage = out->chunk * s->pp + rank, last = s->pp * s->chunks - 1;
  if (op == MOE_INSTR_FORWARD) return stage == 0 || g->forward_done[cell(s, stage - 1, out->micro)];
  if (!g->forward_done[cell(s, stage, out->micro)]) return false;
  return stage == last || g->backward_done[cell(s, stage + 1, out->micro)];
}

static enum moe_instr_op wanted(const struct game *g, int32_t rank) {
  const struct player *p = &g->player[rank];
  bool more = p->forwards < (int64_t)g->shape->chunks * g->shape->micros;
  return more && p->forwards - p->backwards <= p->warmup ? MOE_INSTR_FORWARD : MOE_INSTR_BACKWARD;
}

enum rule { WANTED, BACKWARDS, FORWARDS };

/* Every rank chooses by the rule. Returns how many found something to do. */
static int32_t choose(struct game *g, enum rule rule) {
  int32_t busy = 0;
  for (int32_t rank = 0; rank < g->shape->pp; rank++) {
    struct moe_instr next;
    enum moe_instr_op op = rule == BACKWARDS ? MOE_INSTR_BACKWARD : MOE_INSTR_FORWARD;
    if (rule == WANTED) op = wanted(g, rank);
    bool found = ready(g, rank, op, &next);
    g->player[rank].did = found ? next : (struct moe_instr){.op = MOE_INSTRS};
    busy += found;
  }
  return busy;
}

static void compute(struct game *g) {
  const struct moe_pipe_shape *s = g->shape;
  for (int32_t rank = 0; rank < s->pp; rank++) {
    struct player *p = &g->player[rank];
    if (p->did.op == MOE_INSTRS) continue;
    bool forward = p->did.op == MOE_INSTR_FORWARD;
    *p->next++ = p->did;
    p->forwards += forward;
    p->backwards += !forward;
    bool *done = forward ? g->forward_done : g->backward_done;
    done[cell(s, p->did.chunk * s->pp + rank, p->did.micro)] = true;
  }
}

static void move(struct game *g) {
  const struct moe_pipe_shape *s = g->shape;
  for (int32_t rank = 0; rank < s->pp; rank++) {
    struct player *p = &g->player[rank];
    if (p->did.op == MOE_INSTRS) continue;
    bool forward = p->did.op == MOE_INSTR_FORWARD;
    int32_t to = p->did.chunk * s->pp + rank + (forward ? 1 : -1);
    if (to < 0 || to == s->pp * s->chunks) continue;
    int32_t peer = to % s->pp;
    *p->next++ = (struct moe_instr){forward ? MOE_INSTR_SEND_OUTPUT : MOE_INSTR_SEND_GRAD,
                                    p->did.chunk, p->did.micro, peer};
    *g->player[peer].next++ = (struct moe_instr){
        forward ? MOE_INSTR_RECV_INPUT : MOE_INSTR_RECV_GRAD, to / s->pp, p->did.micro, rank};
  }
}

/* A small last group can leave every rank waiting for what it wants next. Then ranks do a backward
 * instead, which frees memory, and a forward only if nobody has a backward. One of these is always
 * there: of all forwards left the one at the earliest place of its list, on the lowest rank, has
 * its input; and when none is left, the earliest backward on the highest rank. */
static void play(struct game *g) {
  while (choose(g, WANTED) || choose(g, BACKWARDS) || choose(g, FORWARDS)) {
    compute(g);
    move(g);
  }
}

/* Every rank has a forward and a backward of each cell, and up to four transfers. */
static int64_t list_length(const struct moe_pipe_shape *s, int32_t rank) {
  int32_t inputs = s->chunks - (rank == 0), outputs = s->chunks - (rank == s->pp - 1);
  return 2 * (int64_t)s->micros * (s->chunks + inputs + outputs);
}

static void begin(struct game *g, struct moe_schedule *out) {
  for (int32_t rank = 0; rank < g->shape->pp; rank++) {
    out->first[rank + 1] = out->first[rank] + list_length(g->shape, rank);
    g->player[rank].next = out->instr + out->first[rank];
    g->player[rank].warmup = moe_schedule_warmup(g->shape, rank);
  }
}

moe_status moe_schedule_create(moe_ctx *ctx, const struct moe_pipe_shape *shape,
                               struct moe_schedule *out) {
  size_t pp = (size_t)shape->pp, cells = pp * (size_t)shape->chunks * (size_t)shape->micros;
  struct game g = {.shape = shape};
  *out = (struct moe_schedule){.ctx = ctx, .shape = *shape};
  out->instr = moe_alloc_array(ctx, 6 * cells, sizeof *out->instr);
  out->first = moe_alloc_array(ctx, pp + 1, sizeof *out->first);
  g.player = moe_alloc_array(ctx, pp, sizeof *g.player);
  g.forward_done = moe_alloc_array(ctx, cells, sizeof *g.forward_done);
  g.backward_done = moe_alloc_array(ctx, cells, sizeof *g.backward_done);
  bool room = out->instr && out->first && g.player && g.forward_done && g.backward_done;
  if (room) {
    begin(&g, out);
    play(&g);
  }
  moe_release(ctx, g.player);
  moe_release(ctx, g.forward_done);
  moe_release(ctx, g.backward_done);
  if (!room) moe_schedule_destroy(out);
  return room ? MOE_OK : MOE_MEMORY;
}

void moe_schedule_destroy(struct moe_schedule *s) {
  if (s->ctx == NULL) return;
  moe_release(s->ctx, s->instr);
  moe_release(s->ctx, s->first);
  *s = (struct moe_schedule){0};
}
