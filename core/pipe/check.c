#include "pipe/check.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/ctx.h"

struct checker {
  moe_ctx *ctx;
  const struct moe_schedule *s;
  uint8_t *done;    /* [chunks][micros] of one rank: bit of each moe_instr_op */
  int64_t *partner; /* [instructions]: index of the other side of a transfer */
  int64_t *at;      /* [pp]: the instruction a rank stands at */
  int64_t *posted;  /* [pp]: transfers before this one are started */
};

/* ---- messages ---- */

enum { TEXT = 96 };

static const char *describe(const struct moe_instr *i, char text[TEXT]) {
  static const char *const names[] = {
#define NAME(name, text) text,
      MOE_INSTR_MAP(NAME)
#undef NAME
  };
  snprintf(text, TEXT, "%s of chunk %d, micro-batch %d", names[i->op], i->chunk, i->micro);
  return text;
}

static moe_status refuse(const struct checker *c, int32_t rank, int64_t index, const char *why) {
  char text[TEXT];
  int64_t number = index - c->s->first[rank];
  return moe_fail(c->ctx, MOE_INVALID, "pipeline rank %d, instruction %lld (%s): %s", rank,
                  (long long)number, describe(&c->s->instr[index], text), why);
}

/* why, and the instruction of the other side. */
static moe_status refuse_pair(const struct checker *c, int32_t rank, int64_t index, const char *why,
                              int64_t other) {
  char text[2 * TEXT + 64], name[TEXT];
  int32_t peer = c->s->instr[index].peer;
  snprintf(text, sizeof text, "%s rank %d's instruction %lld (%s)", why, peer,
           (long long)(other - c->s->first[peer]), describe(&c->s->instr[other], name));
  return refuse(c, rank, index, text);
}

/* ---- one list on its own ---- */

static bool takes_part(const struct moe_pipe_shape *s, int32_t stage, enum moe_instr_op op) {
  if (op == MOE_INSTR_RECV_INPUT || op == MOE_INSTR_SEND_GRAD) return stage > 0;
  if (op == MOE_INSTR_SEND_OUTPUT || op == MOE_INSTR_RECV_GRAD)
    return stage < s->pp * s->chunks - 1;
  return true;
}

static int32_t peer_of(const struct moe_pipe_shape *s, int32_t rank, enum moe_instr_op op) {
  if (op == MOE_INSTR_FORWARD || op == MOE_INSTR_BACKWARD) return -1;
  bool before = op == MOE_INSTR_RECV_INPUT || op == MOE_INSTR_SEND_GRAD;
  return before ? (rank + s->pp - 1) % s->pp : (rank + 1) % s->pp;
}

static moe_status check_fields(const struct checker *c, int32_t rank, int64_t index) {
  const struct moe_pipe_shape *s = &c->s->shape;
  const struct moe_instr *i = &c->s->instr[index];
  if ((uint32_t)i->op >= MOE_INSTRS || i->chunk < 0 || i->chunk >= s->chunks || i->micro < 0 ||
      i->micro >= s->micros)
    return moe_fail(c->ctx, MOE_INVALID,
                    "pipeline rank %d, instruction %lld: operation %d, chunk %d of %d, micro-batch "
                    "%d of %d",
                    rank, (long long)(index - c->s->first[rank]), (int)i->op, i->chunk, s->chunks,
                    i->micro, s->micros);
  if (!takes_part(s, i->chunk * s->pp + rank, i->op))
    return refuse(c, rank, index, "there is no stage on that side");
  if (i->peer != peer_of(s, rank, i->op))
    return refuse(c, rank, index, "its peer is another rank than the neighbouring stage's");
  return MOE_OK;
}

/* What must stand before an operation on the same chunk and micro-batch, if it is there at all. */
static const struct {
  enum moe_instr_op op, before;
  const char *why;
} rules[] = {
    {MOE_INSTR_FORWARD, MOE_INSTR_RECV_INPUT, "its input has not been received"},
    {MOE_INSTR_SEND_OUTPUT, MOE_INSTR_FORWARD, "it stands before the forward"},
    {MOE_INSTR_RECV_GRAD, MOE_INSTR_FORWARD, "it stands before the forward"},
    {MOE_INSTR_BACKWARD, MOE_INSTR_FORWARD, "it stands before the forward"},
    {MOE_INSTR_BACKWARD, MOE_INSTR_RECV_GRAD, "its gradient has not been received"},
    {MOE_INSTR_SEND_GRAD, MOE_INSTR_BACKWARD, "it stands before the backward"},
};

static moe_status check_order(const struct checker *c, int32_t rank, int64_t index) {
  const struct moe_pipe_shape *s = &c->s->shape;
  const struct moe_instr *i = &c->s->instr[index];
  uint8_t *done = c->done + (int64_t)i->chunk * s->micros + i->micro;
  if (*done & 1u << i->op) return refuse(c, rank, index, "it stands there twice");
  for (size_t r = 0; r < MOE_COUNTOF(rules); r++)
    if (rules[r].op == i->op && !(*done & 1u << rules[r].before) &&
        takes_part(s, i->chunk * s->pp + rank, rules[r].before))
      return refuse(c, rank, index, rules[r].why);
  if (moe_instr_computes(i) && i->micro > 0 && !(done[-1] & 1u << i->op))
    return refuse(c, rank, index, "the micro-batch before has not been there");
  *done |= (uint8_t)(1u << i->op);
  return MOE_OK;
}

static moe_status check_complete(const struct checker *c, int32_t rank) {
  const struct moe_pipe_shape *s = &c->s->shape;
  char text[TEXT];
  for (int32_t op = 0; op < MOE_INSTRS; op++)
    for (int64_t n = 0; n < (int64_t)s->chunks * s->micros; n++) {
      struct moe_instr i = {(enum moe_instr_op)op, (int32_t)(n / s->micros),
                            (int32_t)(n % s->micros), -1};
      if (!takes_part(s, i.chunk * s->pp + rank, i.op) || c->done[n] & 1u << op) continue;
      return moe_fail(c->ctx, MOE_INVALID, "pipeline rank %d, instruction %lld (the end): no %s",
                      rank, (long long)(c->s->first[rank + 1] - c->s->first[rank]),
                      describe(&i, text));
    }
  return MOE_OK;
}

/* Buffers: an input from its receive to the backward, a gradient from its receive (or, of the loss,
 * the backward) to its send, an output from the forward to its send; what is sent is held until the
 * exchange is done. */
static struct moe_pipe_need needs(const struct moe_schedule *s, int32_t rank) {
  struct moe_pipe_need need = {0, 0};
  int64_t live = 0, held = 0, sending = 0;
  for (int64_t n = s->first[rank]; n < s->first[rank + 1]; n++) {
    const struct moe_instr *i = &s->instr[n];
    int32_t stage = i->chunk * s->shape.pp + rank;
    bool input = stage > 0, output = stage < s->shape.pp * s->shape.chunks - 1;
    if (moe_instr_computes(i)) held -= sending, sending = 0;
    switch (i->op) {
      case MOE_INSTR_FORWARD: live++, held += output; break;
      case MOE_INSTR_RECV_INPUT:
      case MOE_INSTR_RECV_GRAD: held++; break;
      case MOE_INSTR_SEND_OUTPUT:
      case MOE_INSTR_SEND_GRAD: sending++; break;
      case MOE_INSTR_BACKWARD: held += input && !output; break;
      case MOE_INSTRS: break;
    }
    need.live = moe_max64(need.live, live);
    need.buffers = moe_max64(need.buffers, held);
    if (i->op != MOE_INSTR_BACKWARD) continue;
    live--;
    held -= input + (output && !input); /* its input; the gradient too where it ends */
  }
  return need;
}

static moe_status check_lists(const struct checker *c) {
  const struct moe_schedule *s = c->s;
  for (int32_t rank = 0; rank < s->shape.pp; rank++) {
    int64_t cells = (int64_t)s->shape.chunks * s->shape.micros;
    for (int64_t n = 0; n < cells; n++) c->done[n] = 0;
    for (int64_t n = s->first[rank]; n < s->first[rank + 1]; n++) {
      MOE_TRY(check_fields(c, rank, n));
      MOE_TRY(check_order(c, rank, n));
    }
    MOE_TRY(check_complete(c, rank));
  }
  return MOE_OK;
}

/* ---- two lists against each other ---- */

static bool sends(const struct moe_instr *i) {
  return i->op == MOE_INSTR_SEND_OUTPUT || i->op == MOE_INSTR_SEND_GRAD;
}
static bool receives(const struct moe_instr *i) {
  return i->op == MOE_INSTR_RECV_INPUT || i->op == MOE_INSTR_RECV_GRAD;
}

/* The next instruction of rank's list, from `at`, that sends to (or receives from) peer. */
static int64_t next(const struct moe_schedule *s, int32_t rank, int64_t at, int32_t peer,
                    bool (*kind)(const struct moe_instr *)) {
  while (at < s->first[rank + 1] && !(kind(&s->instr[at]) && s->instr[at].peer == peer)) at++;
  return at;
}

static bool same_data(const struct moe_schedule *s, int32_t from, const struct moe_instr *a,
                      int32_t to, const struct moe_instr *b) {
  bool forward = a->op == MOE_INSTR_SEND_OUTPUT;
  if (forward != (b->op == MOE_INSTR_RECV_INPUT) || a->micro != b->micro) return false;
  int32_t source = a->chunk * s->shape.pp + from, sink = b->chunk * s->shape.pp + to;
  return sink == source + (forward ? 1 : -1);
}

/* All that goes from one rank to another, in order. Complete lists have the same number. */
static moe_status match(const struct checker *c, int32_t from, int32_t to) {
  const struct moe_schedule *s = c->s;
  int64_t a = next(s, from, s->first[from], to, sends);
  int64_t b = next(s, to, s->first[to], from, receives);
  while (a < s->first[from + 1] && b < s->first[to + 1]) {
    if (!same_data(s, from, &s->instr[a], to, &s->instr[b]))
      return refuse_pair(c, from, a, "it meets", b);
    c->partner[a] = b;
    c->partner[b] = a;
    a = next(s, from, a + 1, to, sends);
    b = next(s, to, b + 1, from, receives);
  }
  return MOE_OK;
}

static moe_status match_all(const struct checker *c) {
  int32_t pp = c->s->shape.pp;
  for (int32_t rank = 0; pp > 1 && rank < pp; rank++) {
    MOE_TRY(match(c, rank, (rank + 1) % pp));
    if (pp > 2) MOE_TRY(match(c, rank, (rank + pp - 1) % pp));
  }
  return MOE_OK;
}

/* ---- all lists together ---- */

/* A transfer of the exchange the rank stands at that is not done: its other side is not started. */
static int64_t blocking(const struct checker *c, int32_t rank) {
  for (int64_t n = c->at[rank]; n < c->posted[rank]; n++) {
    if (c->partner[n] >= c->posted[c->s->instr[n].peer]) return n;
  }
  return -1;
}

/* Moves a rank on as far as it gets; true when it moved. */
static bool advance(const struct checker *c, int32_t rank) {
  const struct moe_schedule *s = c->s;
  int64_t end = s->first[rank + 1], *at = &c->at[rank], *posted = &c->posted[rank];
  bool moved = false;
  while (*at < end) {
    if (*posted > *at) { /* in an exchange */
      if (blocking(c, rank) >= 0) return moved;
      *at = *posted;
    } else if (moe_instr_computes(&s->instr[*at])) {
      *posted = ++*at;
    } else {
      while (*posted < end && !moe_instr_computes(&s->instr[*posted])) ++*posted;
    }
    moved = true;
  }
  return moved;
}

static moe_status play(const struct checker *c) {
  const struct moe_schedule *s = c->s;
  for (int32_t rank = 0; rank < s->shape.pp; rank++) c->at[rank] = c->posted[rank] = s->first[rank];
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < s->shape.pp; rank++) moved |= advance(c, rank);
  }
  for (int32_t rank = 0; rank < s->shape.pp; rank++) {
    if (c->at[rank] == s->first[rank + 1]) continue;
    int64_t n = blocking(c, rank);
    int32_t peer = s->instr[n].peer;
    char text[TEXT], why[2 * TEXT];
    snprintf(why, sizeof why,
             "deadlock: it waits for rank %d, which stays at instruction %lld (%s)", peer,
             (long long)(c->at[peer] - s->first[peer]), describe(&s->instr[c->at[peer]], text));
    return refuse(c, rank, n, why);
  }
  return MOE_OK;
}

static moe_status check_all(const struct checker *c) {
  MOE_TRY(check_lists(c));
  MOE_TRY(match_all(c));
  return play(c);
}

moe_status moe_schedule_check(moe_ctx *ctx, const struct moe_schedule *s,
                              struct moe_pipe_need *need) {
  size_t pp = (size_t)s->shape.pp, cells = (size_t)s->shape.chunks * (size_t)s->shape.micros;
  struct checker c = {.ctx = ctx, .s = s};
  c.done = moe_alloc_array(ctx, cells, sizeof *c.done);
  c.partner = moe_alloc_array(ctx, (size_t)s->first[pp], sizeof *c.partner);
  c.at = moe_alloc_array(ctx, pp, sizeof *c.at);
  c.posted = moe_alloc_array(ctx, pp, sizeof *c.posted);
  bool room = c.done && c.partner && c.at && c.posted;
  moe_status status = room ? check_all(&c) : MOE_MEMORY;
  moe_release(ctx, c.done);
  moe_release(ctx, c.partner);
  moe_release(ctx, c.at);
  moe_release(ctx, c.posted);
  if (status != MOE_OK) return status;
  for (int32_t rank = 0; need && rank < s->shape.pp; rank++) need[rank] = needs(s, rank);
  return MOE_OK;
}
