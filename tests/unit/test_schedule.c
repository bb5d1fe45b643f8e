/* Schedules: every list is proved and does what the formulas say; broken lists are refused with the
 * right reason, and the checker agrees with an oracle that runs them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "base/rng.h"
#include "pipe/check.h"
#include "unit/pipe_oracle.h"

static moe_ctx *ctx;
static struct oracle oracle;

static int setup(void **state) {
  (void)state;
  return moe_ctx_create(NULL, &ctx) == MOE_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  moe_ctx_destroy(ctx);
  return 0;
}

static struct moe_schedule make(struct moe_pipe_shape shape) {
  struct moe_schedule s;
  assert_int_equal(moe_schedule_create(ctx, &shape, &s), MOE_OK);
  return s;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Forwards before the first backward. */
static int64_t forwards_first(const struct moe_schedule *s, int32_t rank) {
  int64_t n = 0;
  for (int64_t i = s->first[rank]; s->instr[i].op != MOE_INSTR_BACKWARD; i++)
    n += s->instr[i].op == MOE_INSTR_FORWARD;
  return n;
}

/* Proved, run by the oracle, and of the size that the formulas say. With a smaller last group ranks
 * may do a backward before its turn: fewer are live then, never more. */
static void right(struct moe_pipe_shape shape) {
  struct moe_schedule s = make(shape);
  struct moe_pipe_need need[ORACLE_PP];
  int64_t all = (int64_t)shape.chunks * shape.micros, group = shape.group ? shape.group : shape.pp;
  if (moe_schedule_check(ctx, &s, need) != MOE_OK)
    fail_msg("pp %d chunks %d micros %d group %d: %s", shape.pp, shape.chunks, shape.micros,
             shape.group, moe_ctx_error(ctx));
  assert_true(oracle_run(&oracle, &s));
  for (int32_t r = 0; r < shape.pp; r++) {
    int64_t warmup =
        shape.chunks == 1 ? shape.pp - r - 1 : 2 * (shape.pp - r - 1) + (shape.chunks - 1) * group;
    int64_t live = min64(warmup + 1, all);
    if (shape.kind == MOE_SCHEDULE_ALL_FORWARD) live = warmup = all;
    bool even = shape.chunks == 1 || (shape.micros % group == 0 && group >= shape.pp);
    assert_int_equal(moe_schedule_warmup(&shape, r), min64(warmup, all));
    if (even) assert_int_equal(forwards_first(&s, r), live);
    if (even ? need[r].live != live : need[r].live > live)
      fail_msg("pp %d chunks %d micros %d group %d rank %d: %d live, expected %d", shape.pp,
               shape.chunks, shape.micros, shape.group, r, (int)need[r].live, (int)live);
  }
  moe_schedule_destroy(&s);
}

static void test_all_shapes(void **state) {
  (void)state;
  for (int32_t pp = 1; pp <= 8; pp++)
    for (int32_t chunks = 1; chunks <= (pp > 1 ? 4 : 1); chunks++)
      for (int32_t micros = 1; micros <= 32; micros++) {
        right((struct moe_pipe_shape){MOE_SCHEDULE_1F1B, pp, chunks, micros, 0});
        right((struct moe_pipe_shape){MOE_SCHEDULE_ALL_FORWARD, pp, chunks, micros, 0});
        for (int32_t group = 1; group <= 2 * pp + 1 && chunks > 1; group += pp / 2)
          right((struct moe_pipe_shape){MOE_SCHEDULE_1F1B, pp, chunks, micros, group});
      }
}

/* ---- broken lists ---- */

/* Lists that can be changed: each rank's in an array with room. */
struct lists {
  struct moe_schedule s;
  struct moe_instr instr[ORACLE_PP * ORACLE_INSTRS];
  int64_t first[ORACLE_PP + 1];
};

static void copy(const struct moe_schedule *s, struct lists *out) {
  int64_t n = s->first[s->shape.pp];
  memcpy(out->first, s->first, ((size_t)s->shape.pp + 1) * sizeof *s->first);
  memcpy(out->instr, s->instr, (size_t)n * sizeof *s->instr);
  out->s = (struct moe_schedule){NULL, s->shape, out->instr, out->first};
}

static void drop(struct lists *l, int32_t rank, int64_t at) {
  int64_t n = l->first[l->s.shape.pp], i = l->first[rank] + at;
  memmove(l->instr + i, l->instr + i + 1, (size_t)(n - i - 1) * sizeof *l->instr);
  for (int32_t r = rank; r < l->s.shape.pp; r++) l->first[r + 1]--;
}

static void insert(struct lists *l, int32_t rank, int64_t at, struct moe_instr what) {
  int64_t n = l->first[l->s.shape.pp], i = l->first[rank] + at;
  memmove(l->instr + i + 1, l->instr + i, (size_t)(n - i) * sizeof *l->instr);
  l->instr[i] = what;
  for (int32_t r = rank; r < l->s.shape.pp; r++) l->first[r + 1]++;
}

static struct moe_instr *instr(struct lists *l, int32_t rank, int64_t at) {
  return &l->instr[l->first[rank] + at];
}

static void swap(struct lists *l, int32_t rank, int64_t a, int64_t b) {
  struct moe_instr kept = *instr(l, rank, a);
  *instr(l, rank, a) = *instr(l, rank, b);
  *instr(l, rank, b) = kept;
}

static void refuse(const struct lists *l, const char *want) {
  assert_int_equal(moe_schedule_check(ctx, &l->s, NULL), MOE_INVALID);
  if (!strstr(moe_ctx_error(ctx), want))
    fail_msg("expected: %s\ngot: %s", want, moe_ctx_error(ctx));
}

static struct lists lists;

/* Two stages, one chunk, two micro-batches:
 * rank 0: 0 F0  1 sendF0  2 F1  3 sendF1  4 recvG0  5 B0  6 recvG1  7 B1
 * rank 1: 0 recvF0  1 F0  2 recvF1  3 B0  4 sendG0  5 F1  6 B1  7 sendG1 */
static struct lists *fresh(void) {
  struct moe_schedule s = make((struct moe_pipe_shape){MOE_SCHEDULE_1F1B, 2, 1, 2, 0});
  copy(&s, &lists);
  moe_schedule_destroy(&s);
  assert_int_equal(moe_schedule_check(ctx, &lists.s, NULL), MOE_OK);
  return &lists;
}

static void test_order_in_a_list(void **state) {
  (void)state;
  struct lists *l = fresh();
  swap(l, 1, 0, 1);
  refuse(l,
         "pipeline rank 1, instruction 0 (forward of chunk 0, micro-batch 0): its input has not "
         "been received");
  l = fresh(), swap(l, 0, 4, 5);
  refuse(l,
         "pipeline rank 0, instruction 4 (backward of chunk 0, micro-batch 0): its gradient has "
         "not been received");
  l = fresh(), swap(l, 1, 1, 3);
  refuse(l,
         "pipeline rank 1, instruction 1 (backward of chunk 0, micro-batch 0): it stands before "
         "the forward");
  l = fresh(), swap(l, 0, 0, 1);
  refuse(l,
         "rank 0, instruction 0 (send of the output of chunk 0, micro-batch 0): it stands before "
         "the forward");
  l = fresh(), swap(l, 1, 3, 4);
  refuse(l,
         "rank 1, instruction 3 (send of the gradient of chunk 0, micro-batch 0): it stands "
         "before the backward");
  l = fresh(), swap(l, 0, 0, 2);
  refuse(l,
         "rank 0, instruction 0 (forward of chunk 0, micro-batch 1): the micro-batch before has "
         "not been there");
}

static void test_missing_and_double(void **state) {
  (void)state;
  struct lists *l = fresh();
  drop(l, 0, 7);
  refuse(l, "pipeline rank 0, instruction 7 (the end): no backward of chunk 0, micro-batch 1");
  l = fresh(), drop(l, 0, 3);
  refuse(l, "rank 0, instruction 7 (the end): no send of the output of chunk 0, micro-batch 1");
  l = fresh(), drop(l, 1, 2);
  refuse(l, "rank 1, instruction 4 (forward of chunk 0, micro-batch 1): its input has not been");
  l = fresh(), insert(l, 0, 2, *instr(l, 0, 0));
  refuse(l, "rank 0, instruction 2 (forward of chunk 0, micro-batch 0): it stands there twice");
  l = fresh(), insert(l, 1, 8, *instr(l, 1, 7));
  refuse(l,
         "rank 1, instruction 8 (send of the gradient of chunk 0, micro-batch 1): it stands there "
         "twice");
}

static void test_fields(void **state) {
  (void)state;
  struct lists *l = fresh();
  instr(l, 0, 1)->peer = 0;
  refuse(l, "rank 0, instruction 1 (send of the output of chunk 0, micro-batch 0): its peer");
  l = fresh(), instr(l, 1, 4)->micro = 2;
  refuse(l, "rank 1, instruction 4: operation 4, chunk 0 of 1, micro-batch 2 of 2");
  l = fresh(), instr(l, 1, 4)->chunk = -1;
  refuse(l, "rank 1, instruction 4: operation 4, chunk -1 of 1, micro-batch 0 of 2");
  l = fresh(), instr(l, 0, 0)->op = MOE_INSTRS;
  refuse(l, "rank 0, instruction 0: operation 6");
  l = fresh(), instr(l, 0, 1)->op = MOE_INSTR_SEND_GRAD;
  refuse(l,
         "rank 0, instruction 1 (send of the gradient of chunk 0, micro-batch 0): there is no "
         "stage on that side");
}

static void test_two_ranks(void **state) {
  (void)state;
  struct lists *l = fresh(); /* rank 1 receives F1 first: recvF1 recvF0 F0 B0 .. */
  insert(l, 1, 0, *instr(l, 1, 2)), drop(l, 1, 3);
  refuse(l,
         "pipeline rank 0, instruction 1 (send of the output of chunk 0, micro-batch 0): it meets "
         "rank 1's instruction 0 (receive of the input of chunk 0, micro-batch 1)");
  l = fresh(); /* rank 0 sends F1 after B0, but rank 1 wants it before */
  insert(l, 0, 6, *instr(l, 0, 3)), drop(l, 0, 3);
  refuse(l,
         "pipeline rank 0, instruction 3 (receive of the gradient of chunk 0, micro-batch 0): "
         "deadlock: it waits for rank 1, which stays at instruction 2 (receive of the input of "
         "chunk 0, micro-batch 1)");
  l = fresh(); /* two transfers of one exchange may stand in any order where they go other ways */
  swap(l, 0, 3, 4);
  assert_int_equal(moe_schedule_check(ctx, &l->s, NULL), MOE_OK);
}

static void test_needs(void **state) {
  (void)state;
  struct moe_pipe_need need[ORACLE_PP];
  assert_int_equal(moe_schedule_check(ctx, &fresh()->s, need), MOE_OK);
  /* rank 0: F1's output and G0 together. rank 1: input and gradient of 0, input of 1. */
  assert_int_equal(need[0].buffers, 2);
  assert_int_equal(need[1].buffers, 3);
  assert_int_equal(need[0].live, 2);
  assert_int_equal(need[1].live, 1);
  struct moe_schedule s = make((struct moe_pipe_shape){MOE_SCHEDULE_1F1B, 1, 1, 4, 0});
  assert_int_equal(moe_schedule_check(ctx, &s, need), MOE_OK);
  assert_int_equal(need[0].buffers, 0);
  assert_int_equal(need[0].live, 1);
  assert_int_equal(s.first[1], 8);
  moe_schedule_destroy(&s);
}

/* ---- random changes ---- */

struct dice {
  struct moe_rng_key key;
  uint64_t at;
};
static int64_t roll(struct dice *d, int64_t sides) {
  return (int64_t)(moe_rng_u64(d->key, d->at++) % (uint64_t)sides);
}

/* One change of one instruction of a rank's list. */
static void mutate(struct lists *l, struct dice *d) {
  const struct moe_pipe_shape *s = &l->s.shape;
  int32_t rank = (int32_t)roll(d, s->pp);
  int64_t n = l->first[rank + 1] - l->first[rank], at = roll(d, n), near = roll(d, 4);
  struct moe_instr *i = instr(l, rank, at), kept = *i;
  switch (roll(d, 8)) {
    case 0: swap(l, rank, at, roll(d, n)); break;
    case 1: swap(l, rank, at, min64(at + 1 + near, n - 1)); break;
    case 2: drop(l, rank, at); break;
    case 3: insert(l, rank, roll(d, n + 1), kept); break;
    case 4: drop(l, rank, at), insert(l, rank, min64(at + near, n - 1), kept); break;
    case 5: i->micro = (int32_t)roll(d, s->micros); break;
    case 6: i->chunk = (int32_t)roll(d, s->chunks); break;
    case 7:
      if (moe_instr_computes(i))
        i->op = i->op == MOE_INSTR_FORWARD ? MOE_INSTR_BACKWARD : MOE_INSTR_FORWARD;
      else if (roll(d, 2))
        i->op = (enum moe_instr_op)(MOE_INSTR_SEND_OUTPUT + (int)roll(d, 4));
      else
        i->peer = (int32_t)roll(d, s->pp);
      break;
  }
}

/* The checker accepts exactly what trains: a change is refused, or the oracle shows it harmless. */
static void test_mutations(void **state) {
  (void)state;
  struct dice d = {moe_rng_key(3, "mutations"), 0};
  int accepted = 0, refused = 0;
  for (int round = 0; round < 20000; round++) {
    int32_t pp = 2 + (int32_t)roll(&d, 3), chunks = 1 + (int32_t)roll(&d, 3);
    enum moe_schedule_kind kind = roll(&d, 4) ? MOE_SCHEDULE_1F1B : MOE_SCHEDULE_ALL_FORWARD;
    struct moe_schedule s =
        make((struct moe_pipe_shape){kind, pp, chunks, 1 + (int32_t)roll(&d, 6), 0});
    copy(&s, &lists);
    mutate(&lists, &d);
    size_t bytes = (size_t)s.first[pp] * sizeof *s.instr;
    if (lists.first[pp] == s.first[pp] && !memcmp(lists.instr, s.instr, bytes)) {
      moe_schedule_destroy(&s); /* nothing was changed */
      continue;
    }
    bool trains = oracle_run(&oracle, &lists.s);
    moe_status status = moe_schedule_check(ctx, &lists.s, NULL);
    if (trains != (status == MOE_OK))
      fail_msg("round %d: pp %d chunks %d micros %d: %s, but: %s", round, pp, chunks,
               s.shape.micros, trains ? "trains" : "does not train",
               status == MOE_OK ? "accepted" : moe_ctx_error(ctx));
    trains ? accepted++ : refused++;
    moe_schedule_destroy(&s);
  }
  print_message("%d changes refused, %d harmless\n", refused, accepted);
  assert_true(accepted > 500 && refused > 5000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_shapes),         cmocka_unit_test(test_order_in_a_list),
      cmocka_unit_test(test_missing_and_double), cmocka_unit_test(test_fields),
      cmocka_unit_test(test_two_ranks),          cmocka_unit_test(test_needs),
      cmocka_unit_test(test_mutations),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
