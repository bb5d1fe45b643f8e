#include "pipe/exec.h"

#include <string.h>

#include "base/alloc.h"
#include "moelua/train.h"

int32_t moe_pipe_buffers(const struct moe_pipe_shape *shape, const struct moe_pipe_need *need) {
  /* One more than are held at a time, so that a computation need not wait for a send. */
  return shape->pp > 1 ? (int32_t)moe_max64(need->buffers + 1, 2) : 0;
}

static moe_status prove(moe_ctx *ctx, const struct moe_pipe_shape *shape, struct moe_schedule *out,
                        struct moe_pipe_need *need) {
  MOE_TRY(moe_schedule_create(ctx, shape, out));
  moe_status status = moe_schedule_check(ctx, out, need);
  if (status != MOE_OK) moe_schedule_destroy(out);
  return status;
}

moe_status moe_pipe_needs(moe_ctx *ctx, const struct moe_pipe_shape *shape,
                          struct moe_pipe_need *need) {
  struct moe_schedule schedule;
  MOE_TRY(prove(ctx, shape, &schedule, need));
  moe_schedule_destroy(&schedule);
  return MOE_OK;
}

static moe_status allocate(struct moe_pipe *p) {
  size_t cells = (size_t)p->shape.chunks * (size_t)p->shape.micros;
  p->list = moe_alloc_array(p->ctx, (size_t)p->length, sizeof *p->list);
  p->buffer = moe_alloc_array(p->ctx, (size_t)p->buffers, sizeof *p->buffer);
  p->flight = moe_alloc_array(p->ctx, cells, sizeof *p->flight);
  p->free_slot = moe_alloc_array(p->ctx, (size_t)p->slots, sizeof *p->free_slot);
  return p->list && p->buffer && p->flight && p->free_slot ? MOE_OK : MOE_MEMORY;
}

moe_status moe_pipe_create(moe_ctx *ctx, const struct moe_pipe_shape *shape, int32_t rank,
                           struct moe_pipe *out) {
  struct moe_schedule schedule;
  *out = (struct moe_pipe){.ctx = ctx, .shape = *shape, .rank = rank};
  struct moe_pipe_need *need = moe_alloc_array(ctx, (size_t)shape->pp, sizeof *need);
  if (need == NULL) return MOE_MEMORY;
  moe_status status = prove(ctx, shape, &schedule, need);
  if (status == MOE_OK) {
    out->need = need[rank];
    out->length = schedule.first[rank + 1] - schedule.first[rank];
    out->slots = (int32_t)out->need.live;
    out->buffers = moe_pipe_buffers(shape, &out->need);
    status = allocate(out);
    if (status == MOE_OK)
      memcpy(out->list, schedule.instr + schedule.first[rank],
             (size_t)out->length * sizeof *out->list);
    moe_schedule_destroy(&schedule);
  }
  moe_release(ctx, need);
  if (status != MOE_OK) moe_pipe_destroy(out);
  return status;
}

void moe_pipe_bind(struct moe_pipe *p, void *memory, size_t bytes) {
  for (int32_t i = 0; i < p->buffers; i++) p->buffer[i].at = (char *)memory + (size_t)i * bytes;
}

void moe_pipe_destroy(struct moe_pipe *p) {
  if (p->ctx == NULL) return;
  moe_release(p->ctx, p->list);
  moe_release(p->ctx, p->buffer);
  moe_release(p->ctx, p->flight);
  moe_release(p->ctx, p->free_slot);
  *p = (struct moe_pipe){0};
}

/* ---- buffers ---- */

static moe_status wait_for(struct moe_pipe *p, const struct moe_pipe_job *job, int32_t buffer) {
  moe_trace_begin(job->trace, MOE_PART_COMM);
  moe_status status = moe_comm_wait(job->stream, &p->buffer[buffer].request);
  moe_trace_end(job->trace);
  return status;
}

/* The buffer that is free for longest, when what was sent from it has left. */
static moe_status take(struct moe_pipe *p, const struct moe_pipe_job *job, int32_t *out) {
  int32_t best = -1;
  for (int32_t i = 0; i < p->buffers; i++)
    if (!p->buffer[i].taken && (best < 0 || p->buffer[i].freed < p->buffer[best].freed)) best = i;
  if (best < 0) return moe_fail(p->ctx, MOE_INTERNAL, "pipeline: no buffer is free");
  p->buffer[best].taken = true;
  *out = best;
  return wait_for(p, job, best);
}

static void give(struct moe_pipe *p, int32_t *buffer) {
  if (*buffer < 0) return;
  p->buffer[*buffer].taken = false;
  p->buffer[*buffer].freed = ++p->clock;
  *buffer = -1;
}

static moe_status receive(struct moe_pipe *p, const struct moe_pipe_job *job, int32_t peer,
                          int32_t *buffer) {
  MOE_TRY(take(p, job, buffer));
  struct moe_pipe_buffer *b = &p->buffer[*buffer];
  return moe_recv(job->group, job->stream, b->at, job->n, job->dtype, peer, &b->request);
}

static moe_status send(struct moe_pipe *p, const struct moe_pipe_job *job, int32_t peer,
                       int32_t *buffer) {
  struct moe_pipe_buffer *b = &p->buffer[*buffer];
  MOE_TRY(moe_send(job->group, job->stream, b->at, job->n, job->dtype, peer, &b->request));
  give(p, buffer);
  return MOE_OK;
}

/* ---- instructions ---- */

static bool has_input(const struct moe_pipe *p, int32_t chunk) { return chunk + p->rank > 0; }
static bool has_output(const struct moe_pipe *p, int32_t chunk) {
  return chunk < p->shape.chunks - 1 || p->rank < p->shape.pp - 1;
}
static void *at(const struct moe_pipe *p, int32_t buffer) {
  return buffer < 0 ? NULL : p->buffer[buffer].at;
}

static moe_status forward(struct moe_pipe *p, const struct moe_pipe_job *job,
                          const struct moe_instr *i, struct moe_pipe_flight *f) {
  f->slot = p->free_slot[--p->free_slots];
  if (has_output(p, i->chunk)) MOE_TRY(take(p, job, &f->output));
  if (has_input(p, i->chunk)) MOE_TRY(wait_for(p, job, f->input));
  return job->forward(job->arg, i, f->slot, at(p, f->input), at(p, f->output));
}

static moe_status backward(struct moe_pipe *p, const struct moe_pipe_job *job,
                           const struct moe_instr *i, struct moe_pipe_flight *f) {
  if (has_output(p, i->chunk))
    MOE_TRY(wait_for(p, job, f->grad));
  else if (has_input(p, i->chunk))
    MOE_TRY(take(p, job, &f->grad));
  MOE_TRY(job->backward(job->arg, i, f->slot, at(p, f->grad)));
  p->free_slot[p->free_slots++] = f->slot;
  give(p, &f->input);
  if (!has_input(p, i->chunk)) give(p, &f->grad);
  return MOE_OK;
}

static moe_status execute(struct moe_pipe *p, const struct moe_pipe_job *job,
                          const struct moe_instr *i) {
  struct moe_pipe_flight *f = &p->flight[i->chunk * p->shape.micros + i->micro];
  switch (i->op) {
    case MOE_INSTR_FORWARD: return forward(p, job, i, f);
    case MOE_INSTR_BACKWARD: return backward(p, job, i, f);
    case MOE_INSTR_RECV_INPUT: return receive(p, job, i->peer, &f->input);
    case MOE_INSTR_RECV_GRAD: return receive(p, job, i->peer, &f->grad);
    case MOE_INSTR_SEND_OUTPUT: return send(p, job, i->peer, &f->output);
    case MOE_INSTR_SEND_GRAD: return send(p, job, i->peer, &f->grad);
    case MOE_INSTRS: break;
  }
  return MOE_INTERNAL;
}

/* All free, whatever an earlier run that failed has left. */
static void begin(struct moe_pipe *p) {
  p->clock = 0;
  p->free_slots = p->slots;
  for (int32_t i = 0; i < p->slots; i++) p->free_slot[i] = p->slots - 1 - i;
  for (int32_t i = 0; i < p->buffers; i++)
    p->buffer[i] = (struct moe_pipe_buffer){.at = p->buffer[i].at};
  for (int32_t i = 0; i < p->shape.chunks * p->shape.micros; i++)
    p->flight[i] = (struct moe_pipe_flight){-1, -1, -1, -1};
}

moe_status moe_pipe_run(struct moe_pipe *p, const struct moe_pipe_job *job) {
  begin(p);
  for (int64_t i = 0; i < p->length; i++) MOE_TRY(execute(p, job, &p->list[i]));
  for (int32_t i = 0; i < p->buffers; i++) MOE_TRY(wait_for(p, job, i));
  return MOE_OK;
}

moe_status moe_pipe_once(struct moe_pipe *p, const struct moe_pipe_job *job) {
  int32_t pp = p->shape.pp;
  for (int32_t chunk = 0; chunk < p->shape.chunks; chunk++) {
    const struct moe_instr i = {MOE_INSTR_FORWARD, chunk, 0, -1};
    void *x = has_input(p, chunk) ? p->buffer[0].at : NULL;
    void *y = has_output(p, chunk) ? p->buffer[1].at : NULL;
    if (x)
      MOE_TRY(
          moe_recv(job->group, job->stream, x, job->n, job->dtype, (p->rank + pp - 1) % pp, NULL));
    MOE_TRY(job->forward(job->arg, &i, 0, x, y));
    if (y)
      MOE_TRY(moe_send(job->group, job->stream, y, job->n, job->dtype, (p->rank + 1) % pp, NULL));
  }
  return MOE_OK;
}
