/* The dispatcher alone: dispatch and combine with experts that do y = p * factor(expert) * x, on
 * all ranks, with other data on each, 0 .. 129 tokens a rank and skewed choices. What comes back is
 * known exactly: values are small integers. Arguments: cases, words of `read_case`. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/rng.h"
#include "layers/dispatch_part.h"
#include "ranks.h"

enum { H = 5, TOKENS_MOST = 129, ARENA = 64 << 20 };
enum choice { SPREAD, ONE_EXPERT, LAST_RANK };

struct setting {
  moe_dispatch_config config;
  moe_layout_config layout;
  int32_t experts, topk, tokens; /* tokens < 0: another number on every rank */
  int32_t choice, capacity;
  char order[32];
};

static bool text_word(void *arg, const char *key, char *value) {
  struct setting *c = arg;
  if (strcmp(key, "order")) return false;
  snprintf(c->order, sizeof c->order, "%s", value);
  c->layout.order = c->order;
  return true;
}

static void read_case(struct setting *c, const char *text) {
  *c = (struct setting){.config = {.size = sizeof c->config, .kind = MOE_DISPATCH_ALLTOALL},
                        .layout = {.size = sizeof c->layout, .chunks = 1},
                        .experts = 8, .topk = 2, .tokens = -1};
  const struct ranks_word words[] = {
      {"etp", &c->layout.etp}, {"ep", &c->layout.ep}, {"kind", &c->config.kind},
      {"E", &c->experts},      {"K", &c->topk},       {"T", &c->tokens},
      {"pad", &c->config.pad}, {"choice", &c->choice}, {"capacity100", &c->capacity}};
  ranks_words(text, words, MOE_COUNTOF(words), text_word, c);
  c->config.capacity_factor = c->capacity / 100.0;
}

/* One rank's test of one case. */
struct test {
  moe_ctx *ctx;
  const struct setting *c;
  struct moe_groups groups;
  struct moe_dispatch d;
  struct moe_run run;
  struct moe_dispatch_plan plan;
  struct moe_arena saved, scratch;
  int32_t *index, *dropped, *kept;
  float *prob, *dprob;
  struct moe_mat x, y, dy, dx;
};

/* Every rank knows what all have: rank, token and column make the values. */
static float value(int32_t rank, int64_t t, int64_t c) {
  return (float)(100 * rank + t % 50 + c + 1);
}
static float factor(int64_t expert) { return (float)(1 + expert % 8); }
static float chance(int64_t t, int64_t k) { return (float)(1 + (t + 3 * k) % 4); }

static void choose(struct test *t, int64_t token, int32_t *out) {
  struct moe_rng_key key = moe_rng_key((uint64_t)t->run.ctx->world->rank, "choices");
  int32_t E = t->c->experts, first = 0;
  if (t->c->choice == LAST_RANK) first = E - t->c->topk;
  if (t->c->choice == SPREAD) first = (int32_t)(moe_rng_u64(key, (uint64_t)token) % (uint64_t)E);
  for (int32_t k = 0; k < t->c->topk; k++) out[k] = (first + k) % E;
}

static struct moe_mat mat(struct test *t, int64_t rows) {
  struct moe_mat m;
  MUST(t->ctx, moe_mat_get(&t->saved, MOE_F32, rows, H, &m));
  for (int64_t i = 0; i < rows * H; i++) ((float *)m.p)[i] = -1e30f;
  return m;
}
static float *at(struct moe_mat m, int64_t r) { return (float *)m.p + r * m.ld; }

static void fill(struct test *t) {
  int64_t n = t->run.tokens, K = t->c->topk;
  int32_t me = t->run.ctx->world->rank;
  t->index = moe_arena_get(&t->saved, (size_t)(n * K) * sizeof *t->index);
  t->prob = moe_arena_get(&t->saved, (size_t)(n * K) * sizeof *t->prob);
  t->dprob = moe_arena_get(&t->saved, (size_t)(n * K) * sizeof *t->dprob);
  t->dropped = moe_arena_get(&t->saved, sizeof *t->dropped);
  t->kept = moe_arena_get(&t->saved, sizeof *t->kept);
  t->x = mat(t, n), t->y = mat(t, n), t->dy = mat(t, n), t->dx = mat(t, n);
  for (int64_t i = 0; i < n; i++) {
    choose(t, i, t->index + i * K);
    for (int64_t k = 0; k < K; k++) t->prob[i * K + k] = chance(i, k);
    for (int64_t c = 0; c < H; c++) {
      at(t->x, i)[c] = value(me, i, c);
      at(t->dy, i)[c] = value(me, i + 7, c);
    }
  }
}

/* Member slices of etp add up: each does its share, 1 of 1 + 2 + .. (powers of two). */
static float share(const struct test *t) {
  return t->d.etp.size == 1 ? 1 : (float)(t->d.etp.rank + 1);
}
static float shares(const struct test *t) {
  float n = (float)t->d.etp.size;
  return t->d.etp.size == 1 ? 1 : n * (n + 1) / 2;
}

/* What the experts do to rows: out[r] = share * factor * prob * in[r]; dprob: its sum over
 * columns without the probability. */
static void experts(struct test *t, struct moe_mat rows, float *dprob) {
  int64_t L = moe_dispatch_local(&t->d), first = L * t->d.ep.rank;
  const int32_t *offset = t->plan.ranges.host;
  CHECK(offset[L] == t->plan.rows || !moe_dispatch_travels(&t->d));
  for (int64_t l = 0; l < L; l++)
    for (int64_t r = offset[l]; r < offset[l + 1]; r++) {
      float f = share(t) * factor(first + l);
      if (dprob) dprob[r] = f * at(rows, r)[0];
      for (int64_t c = 0; c < H; c++) at(rows, r)[c] *= f * t->plan.prob[r];
    }
}

/* Weight of a token's pairs that stay. With a capacity the library says which do. */
static float weight(const struct test *t, int64_t i) {
  float sum = 0;
  for (int64_t k = 0; k < t->c->topk; k++) {
    int64_t j = i * t->c->topk + k;
    bool stays = t->dprob[j] != 0 || t->c->capacity == 0;
    if (stays) sum += t->prob[j] * factor(t->index[j]);
  }
  return sum * shares(t);
}

static void forward(struct test *t) {
  struct moe_dispatch_flight flight = {0};
  struct moe_mat rows, base = {0};
  const struct moe_dispatch_counts counts = {t->dropped, t->kept};
  MUST(t->ctx, moe_dispatch_plan_make(&t->d, &t->run, t->index, t->prob, counts, &t->plan));
  MUST(t->ctx, moe_dispatch_start(&t->d, &t->run, &t->plan, t->x, t->prob, &flight));
  MUST(t->ctx, moe_dispatch_finish(&t->d, &t->run, &t->plan, t->x, &flight, &rows));
  struct moe_mat out = mat(t, rows.rows);
  if (rows.rows > 0) memcpy(out.p, rows.p, (size_t)(rows.rows * H) * sizeof(float));
  experts(t, out, NULL);
  if (t->c->choice == SPREAD) base = t->y; /* y += */
  for (int64_t i = 0; i < t->run.tokens * H; i++) ((float *)t->y.p)[i] = base.p ? 3 : -1e30f;
  MUST(t->ctx, moe_combine(&t->d, &t->run, &t->plan, out, base, t->y));
  moe_arena_reset(&t->scratch, 0);
}

static void backward(struct test *t) {
  struct moe_dispatch_flight flight = {0};
  struct moe_mat d, again, none = {0};
  MUST(t->ctx, moe_combine_back_start(&t->d, &t->run, &t->plan, t->dy, &flight));
  MUST(t->ctx, moe_combine_back_finish(&t->d, &t->run, &t->plan, t->dy, &flight, &d));
  MUST(t->ctx, moe_dispatch_again(&t->d, &t->run, &t->plan, t->x, &again));
  CHECK(again.rows == d.rows && d.rows == t->plan.rows);
  float *dprob_rows = moe_arena_get(&t->scratch, (size_t)t->plan.rows * sizeof *dprob_rows);
  memset(dprob_rows, 0, (size_t)t->plan.rows * sizeof *dprob_rows);
  /* dy and x of a row are of the same token: 7 tokens further, see fill. */
  for (int64_t r = 0; r < t->plan.ranges.host[moe_dispatch_local(&t->d)]; r++)
    if (t->plan.prob[r] != 0 && at(again, r)[0] != 0) {
      float step = at(d, r)[0] - at(again, r)[0];
      CHECK(step == 7 || step == -43);
    }
  experts(t, d, dprob_rows);
  MUST(t->ctx, moe_dispatch_back(&t->d, &t->run, &t->plan, d, dprob_rows, none, t->dx, t->dprob));
  moe_arena_reset(&t->scratch, 0);
}

static void check(struct test *t) {
  int64_t K = t->c->topk;
  int32_t dropped = 0, all[3] = {0};
  for (int64_t i = 0; i < t->run.tokens; i++) {
    float w = weight(t, i), base = t->c->choice == SPREAD ? 3 : 0;
    for (int64_t c = 0; c < H; c++) {
      CHECK(at(t->y, i)[c] == base + w * at(t->x, i)[c]);
      CHECK(at(t->dx, i)[c] == w * at(t->dy, i)[c]);
    }
    for (int64_t k = 0; k < K; k++) {
      float got = t->dprob[i * K + k], want = shares(t) * factor(t->index[i * K + k]);
      CHECK(got == want * at(t->dy, i)[0] || (t->c->capacity > 0 && got == 0));
      dropped += got == 0;
    }
  }
  CHECK(*t->dropped == dropped);
  all[0] = (int32_t)(t->run.tokens * K), all[1] = *t->dropped, all[2] = *t->kept;
  MUST(t->ctx, moe_all_reduce(t->groups.of[MOE_GROUP_WORLD], NULL, all, 3, MOE_I32, MOE_SUM, NULL));
  CHECK(all[0] == all[1] + all[2]);
  if (t->c->capacity > 0 && t->c->choice == ONE_EXPERT) CHECK(all[1] > 0);
}

static int64_t tokens_of(const struct setting *c, int32_t rank) {
  static const int32_t some[] = {129, 0, 17, 1, 64, 0, 128, 3};
  return c->tokens >= 0 ? c->tokens : some[rank % 8];
}

static void run_case(moe_ctx *ctx, const struct moe_kernels *k, struct moe_stream *s,
                     const char *text) {
  struct setting c;
  struct test t = {.ctx = ctx, .c = &c};
  struct moe_world *world;
  struct moe_layout layout;
  read_case(&c, text);
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &c.layout, world->size, &layout));
  MUST(ctx, moe_groups_create(world, &layout, &t.groups));
  MUST(ctx, moe_arena_create(ctx, "saved", ARENA, &t.saved));
  MUST(ctx, moe_arena_create(ctx, "scratch", ARENA, &t.scratch));
  struct moe_place place = moe_place_of(&layout, world->rank);
  t.d = moe_dispatch_make(&c.config, c.experts, c.topk, place);
  MUST(ctx, moe_dispatch_host_create(ctx, &t.d, H, 1, &t.plan.host));
  t.run = (struct moe_run){.ctx = ctx,
                           .k = k,
                           .stream = s,
                           .saved = &t.saved,
                           .scratch = &t.scratch,
                           .place = place,
                           .groups = &t.groups,
                           .dtype = MOE_F32,
                           .batch = 1,
                           .tokens = tokens_of(&c, world->rank)};
  fill(&t);
  forward(&t);
  backward(&t);
  check(&t);
  moe_release(ctx, t.plan.host);
  moe_arena_destroy(&t.saved);
  moe_arena_destroy(&t.scratch);
}

int main(int argc, char **argv) {
  moe_ctx *ctx = ranks_open();
  const struct moe_kernels *k;
  struct moe_stream *s;
  MUST(ctx, moe_kernels_cpu(ctx, NULL, &k));
  MUST(ctx, k->stream_create(ctx, &s));
  for (int i = 1; i < argc; i++)
    for (int kind = MOE_DISPATCH_ALLTOALL; kind <= MOE_DISPATCH_ALLGATHER; kind++) {
      char text[256];
      snprintf(text, sizeof text, "%s kind=%d", argv[i], kind);
      run_case(ctx, k, s, text);
    }
  moe_dispatch_bench b = {.size = sizeof b, .tokens = 40, .hidden = 16, .experts = 8, .topk = 3};
  MUST(ctx, moe_bench_dispatch(ctx, &b));
  CHECK((b.dispatch_seconds > 0) == (moe_ctx_ranks(ctx) > 1));
  k->stream_destroy(s);
  return ranks_close(ctx);
}
