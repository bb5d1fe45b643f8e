/* Runs lists with numbers for activations and gradients, in the simplest way that could be wrong in
 * another way than the checker: nothing is known of which list is right, only what comes out. */
#ifndef TEST_PIPE_ORACLE_H
#define TEST_PIPE_ORACLE_H

#include <stdlib.h>
#include <string.h>

#include "pipe/schedule.h"

enum { ORACLE_PP = 8, ORACLE_CELLS = 4 * 32, ORACLE_INSTRS = 6 * ORACLE_CELLS + 2 };

/* A value that may not be there yet. */
struct oracle_value {
  bool there;
  uint64_t v;
};

struct oracle_rank {
  const struct moe_instr *list;
  int64_t n, at;
  bool inside; /* of an exchange that is started */
  /* by chunk * micros + micro */
  struct oracle_value input[ORACLE_CELLS], output[ORACLE_CELLS], grad[ORACLE_CELLS],
      dinput[ORACLE_CELLS];
  int32_t forwards[4], backwards[4]; /* micro-batches done of each chunk */
  uint64_t sum[4];                   /* "weight gradient" of each chunk */
};

/* Started transfers of a pair and direction, in order: place of the value. */
struct oracle_wire {
  struct oracle_value *from[ORACLE_INSTRS], *to[ORACLE_INSTRS];
  int64_t sent, received;
};

struct oracle {
  const struct moe_schedule *s;
  struct oracle_rank rank[ORACLE_PP];
  struct oracle_wire wire[ORACLE_PP][ORACLE_PP];
  bool wrong;
};

static inline uint64_t oracle_mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9u ^ c;
  x = (x ^ x >> 31) * 0x94d049bb133111ebu;
  return x ^ x >> 29;
}

static inline void oracle_compute(struct oracle *o, int32_t r, const struct moe_instr *i) {
  const struct moe_pipe_shape *s = &o->s->shape;
  struct oracle_rank *me = &o->rank[r];
  int32_t cell = i->chunk * s->micros + i->micro, stage = i->chunk * s->pp + r;
  bool forward = i->op == MOE_INSTR_FORWARD, last = stage == s->pp * s->chunks - 1;
  struct oracle_value in = me->input[cell], grad = me->grad[cell];
  if (stage == 0) in = (struct oracle_value){true, (uint64_t)i->micro};
  if (last && me->output[cell].there)
    grad = (struct oracle_value){true, oracle_mix(1, me->output[cell].v, 0)};
  int32_t *count = forward ? me->forwards : me->backwards;
  if (!in.there || count[i->chunk]++ != i->micro) o->wrong = true;
  if (forward) {
    me->output[cell] = (struct oracle_value){true, oracle_mix(2, (uint64_t)stage, in.v)};
    return;
  }
  if (!grad.there || !me->output[cell].there) o->wrong = true;
  me->dinput[cell] = (struct oracle_value){true, oracle_mix(3, grad.v, in.v)};
  me->sum[i->chunk] += me->dinput[cell].v;
}

/* Starts all transfers from here to the next computation. */
static inline void oracle_start(struct oracle *o, int32_t r) {
  struct oracle_rank *me = &o->rank[r];
  me->inside = true;
  for (int64_t n = me->at; n < me->n && !moe_instr_computes(&me->list[n]); n++) {
    const struct moe_instr *i = &me->list[n];
    int32_t cell = i->chunk * o->s->shape.micros + i->micro;
    if (i->peer < 0 || i->peer >= o->s->shape.pp) {
      o->wrong = true;
      continue;
    }
    struct oracle_wire *out = &o->wire[r][i->peer], *in = &o->wire[i->peer][r];
    if (i->op == MOE_INSTR_SEND_OUTPUT) out->from[out->sent++] = &me->output[cell];
    if (i->op == MOE_INSTR_SEND_GRAD) out->from[out->sent++] = &me->dinput[cell];
    if (i->op == MOE_INSTR_RECV_INPUT) in->to[in->received++] = &me->input[cell];
    if (i->op == MOE_INSTR_RECV_GRAD) in->to[in->received++] = &me->grad[cell];
    if ((i->op == MOE_INSTR_SEND_OUTPUT && !me->output[cell].there) ||
        (i->op == MOE_INSTR_SEND_GRAD && !me->dinput[cell].there))
      o->wrong = true;
  }
}

/* All that the rank has started with its neighbours has its other side. */
static inline bool oracle_exchanged(const struct oracle *o, int32_t r) {
  for (int32_t q = 0; q < o->s->shape.pp; q++)
    if (o->wire[r][q].sent > o->wire[r][q].received || o->wire[q][r].received > o->wire[q][r].sent)
      return false;
  return true;
}

static inline void oracle_move(struct oracle *o) {
  for (int32_t r = 0; r < o->s->shape.pp; r++)
    for (int32_t q = 0; q < o->s->shape.pp; q++)
      for (int64_t n = 0; n < o->wire[r][q].sent && n < o->wire[r][q].received; n++)
        if (!o->wire[r][q].to[n]->there) *o->wire[r][q].to[n] = *o->wire[r][q].from[n];
}

/* One thing on one rank; false: it cannot. */
static inline bool oracle_step(struct oracle *o, int32_t r) {
  struct oracle_rank *me = &o->rank[r];
  if (me->at == me->n) return false;
  if (moe_instr_computes(&me->list[me->at])) {
    oracle_compute(o, r, &me->list[me->at++]);
    return true;
  }
  if (!me->inside) {
    oracle_start(o, r);
    oracle_move(o);
    return true;
  }
  if (!oracle_exchanged(o, r)) return false;
  me->inside = false;
  while (me->at < me->n && !moe_instr_computes(&me->list[me->at])) me->at++;
  return true;
}

/* What the stages' sums and the first stage's gradients must be. */
static inline bool oracle_right(const struct oracle *o) {
  const struct moe_pipe_shape *s = &o->s->shape;
  int32_t stages = s->pp * s->chunks;
  uint64_t in[ORACLE_PP * 4 + 1], sum[ORACLE_PP * 4] = {0};
  for (int32_t m = 0; m < s->micros; m++) {
    in[0] = (uint64_t)m;
    for (int32_t v = 0; v < stages; v++) in[v + 1] = oracle_mix(2, (uint64_t)v, in[v]);
    uint64_t grad = oracle_mix(1, in[stages], 0);
    for (int32_t v = stages - 1; v >= 0; v--) sum[v] += grad = oracle_mix(3, grad, in[v]);
  }
  for (int32_t v = 0; v < stages; v++) {
    const struct oracle_rank *r = &o->rank[v % s->pp];
    int32_t c = v / s->pp;
    if (r->sum[c] != sum[v] || r->forwards[c] != s->micros || r->backwards[c] != s->micros)
      return false;
  }
  return true;
}

/* True when the lists train. */
static inline bool oracle_run(struct oracle *o, const struct moe_schedule *s) {
  bool moved = true, finished = true;
  memset(o, 0, sizeof *o);
  o->s = s;
  for (int32_t r = 0; r < s->shape.pp; r++) {
    o->rank[r].list = s->instr + s->first[r];
    o->rank[r].n = s->first[r + 1] - s->first[r];
  }
  while (moved) {
    moved = false;
    for (int32_t r = s->shape.pp - 1; r >= 0; r--) moved |= oracle_step(o, r);
  }
  for (int32_t r = 0; r < s->shape.pp; r++) finished &= o->rank[r].at == o->rank[r].n;
  return finished && !o->wrong && oracle_right(o);
}

#endif
