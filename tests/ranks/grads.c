/* Which ranks sum a gradient, by slots: every rank's gradients are 2^rank, so a sum names the ranks
 * in it. Without layers: packs, groups and the optimizer alone. test_grads WORDS.. runs these
 * layouts (the words of equal.c), each with and without ZeRO. */
#include <math.h>

#include "equal.h"
#include "kernels/kernels.h"
#include "layers/param.h"
#include "optim/optim.h"

enum { HIDDEN = 24, EXPERTS = 8, KV_HEADS = 2, BLOCKS = 2, KIB = 1024 };

/* One rank's packs. */
struct model {
  struct moe_layout layout;
  struct moe_groups groups;
  struct moe_place place;
  struct moe_params params;
  struct moe_param_memory memory;
  int32_t first_slot[BLOCKS + 1][MOE_FAMILIES];
  struct moe_optim optim;
  const struct moe_kernels *k;
  struct moe_stream *stream;
};

static void declare(moe_ctx *ctx, struct model *m, const char *prefix, const char *suffix,
                    struct moe_slot slot) {
  struct moe_param unused;
  snprintf(slot.name, sizeof slot.name, "%s%s", prefix, suffix);
  MUST(ctx, moe_param_declare(&m->params, &slot, &unused));
}

static struct moe_slot matrix(int64_t rows, int64_t cols) {
  return moe_slot_make("", "", 2, (const int64_t[]){rows, cols});
}

/* One slot of each class; joined and odd sizes leave gaps. k: kv heads are copied where tp exceeds
 * them. */
static void declare_block(moe_ctx *ctx, struct model *m, int32_t b) {
  char prefix[32];
  struct moe_coord tp = m->place.tp;
  snprintf(prefix, sizeof prefix, "blocks.%d.", b);
  for (int f = 0; f < MOE_FAMILIES; f++) m->first_slot[b][f] = m->params.pack[f].slots;
  struct moe_slot slot = matrix(8, HIDDEN + 1);
  moe_slot_split(&slot, 0, tp);
  declare(ctx, m, prefix, "q", slot);
  slot = matrix(KV_HEADS, HIDDEN + 1);
  slot.count[0] = moe_max64(1, KV_HEADS / tp.size);
  slot.start[0] = KV_HEADS * tp.rank / tp.size;
  slot.copies = tp.size > KV_HEADS ? tp.size / KV_HEADS : 1;
  slot.join = true;
  declare(ctx, m, prefix, "k", slot);
  declare(ctx, m, prefix, "v", slot);
  slot = matrix(1, HIDDEN - 1);
  slot.replicated = true;
  declare(ctx, m, prefix, "norm", slot);
  slot = matrix(EXPERTS, HIDDEN);
  slot.replicated = true;
  declare(ctx, m, prefix, "router", slot);
  slot = matrix(1, EXPERTS - 3);
  slot.replicated = slot.buffer = true;
  declare(ctx, m, prefix, "bias", slot);
  slot = moe_slot_make("", "", 3, (const int64_t[]){EXPERTS, 8, HIDDEN});
  slot.family = MOE_FAMILY_EXPERT;
  moe_slot_split(&slot, 0, m->place.ep);
  moe_slot_split(&slot, 1, m->place.etp);
  declare(ctx, m, prefix, "experts", slot);
}

/* big: a slot of several buckets at the front. */
static void open_model(moe_ctx *ctx, const struct equal_setup *s, bool zero, bool big,
                       struct model *m) {
  struct moe_world *world;
  memset(m, 0, sizeof *m);
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &s->config.layout, world->size, &m->layout));
  MUST(ctx, moe_groups_create(world, &m->layout, &m->groups));
  MUST(ctx, moe_kernels_cpu(ctx, NULL, &m->k));
  MUST(ctx, m->k->stream_create(ctx, &m->stream));
  m->place = moe_place_of(&m->layout, world->rank);
  moe_params_init(ctx, &m->params);
  struct moe_slot embed = matrix(8 * (big ? 900 : 1), big ? KIB : 5);
  moe_slot_split(&embed, 0, m->place.tp);
  declare(ctx, m, "", "embed", embed);
  for (int32_t b = 0; b < BLOCKS; b++) declare_block(ctx, m, b);
  for (int f = 0; f < MOE_FAMILIES; f++) m->first_slot[BLOCKS][f] = m->params.pack[f].slots;
  MUST(ctx,
       moe_optim_create(ctx, &m->params, &m->memory, (const int32_t(*)[MOE_FAMILIES])m->first_slot,
                        BLOCKS, &m->layout, &m->groups, zero, m->k, m->stream, &m->optim));
  for (int f = 0; f < MOE_FAMILIES; f++) {
    size_t n = (size_t)m->params.pack[f].elements, held = (size_t)m->optim.buckets.moments[f];
    m->memory.weight[f] = calloc(n, sizeof(float));
    m->memory.grad[f] = calloc(n, sizeof(float));
    m->memory.exp_avg[f] = calloc(held + 1, sizeof(float));
    m->memory.exp_avg_sq[f] = calloc(held + 1, sizeof(float));
    CHECK(m->memory.weight[f] && m->memory.grad[f] && m->memory.exp_avg[f]);
  }
}

static void close_model(struct model *m) {
  for (int f = 0; f < MOE_FAMILIES; f++) {
    free(m->memory.weight[f]);
    free(m->memory.grad[f]);
    free(m->memory.exp_avg[f]);
    free(m->memory.exp_avg_sq[f]);
  }
  moe_optim_destroy(&m->optim);
  m->k->stream_destroy(m->stream);
  moe_params_destroy(&m->params);
}

static void fill(struct model *m, float value) {
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < m->params.pack[f].slots; i++) {
      const struct moe_slot *slot = &m->params.pack[f].slot[i];
      for (int64_t e = 0; e < slot->elements && !slot->buffer; e++)
        m->memory.grad[f][slot->offset + e] = value;
    }
}

/* The ranks whose gradients a slot of mine adds up, from coordinates alone. */
static bool shares(const struct moe_slot *slot, const struct moe_place *me,
                   const struct moe_place *other) {
  if (me->pp.rank != other->pp.rank) return false;
  if (slot->family == MOE_FAMILY_EXPERT)
    return me->etp.rank == other->etp.rank && me->ep.rank == other->ep.rank;
  if (slot->replicated) return true;
  int32_t copies = slot->copies > 1 ? slot->copies : 1;
  return me->tp.rank / copies == other->tp.rank / copies;
}

static float expected(const struct model *m, const struct moe_slot *slot) {
  float sum = 0;
  for (int32_t r = 0; r < m->layout.world; r++) {
    struct moe_place other = moe_place_of(&m->layout, r);
    if (shares(slot, &m->place, &other)) sum += ldexpf(1, r);
  }
  return sum;
}

/* The sums of all elements that this rank keeps. */
static void check_sums(const struct model *m, const char *text, bool zero) {
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < m->params.pack[f].slots; i++) {
      const struct moe_slot *slot = &m->params.pack[f].slot[i];
      float want = expected(m, slot);
      struct moe_held run;
      int64_t wrong = 0, seen = 0;
      if (slot->buffer) continue;
      for (int32_t at = 0; moe_buckets_next(&m->optim.buckets, slot, &at, &run);)
        for (int64_t e = run.first; e < run.last; e++) {
          wrong += m->memory.grad[f][e] != want;
          seen++;
        }
      if (!zero) CHECK(seen == slot->elements);
      if (wrong == 0) continue;
      fprintf(stderr, "%s zero=%d: %s: %lld sums are not %g\n", text, zero, slot->name,
              (long long)wrong, (double)want);
      CHECK(!"sums differ");
    }
}

static int64_t whole(const struct moe_slot *slot) {
  int64_t n = 1;
  for (int32_t d = 0; d < slot->dims; d++) n *= slot->dim[d];
  return n;
}

/* Elements of the model: every slot's global shape once a stage. */
static double model_elements(const struct model *m) {
  double n = 0;
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < m->params.pack[f].slots; i++)
      if (!m->params.pack[f].slot[i].buffer) n += (double)whole(&m->params.pack[f].slot[i]);
  return n * m->place.pp.size;
}

/* Gradients that are 1 after the sums: the squared norm is the number of elements of the model. */
static void check_norm(moe_ctx *ctx, struct model *m, const char *text, bool zero) {
  double sum = -1, want = model_elements(m);
  fill(m, 1);
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < m->params.pack[f].slots; i++) {
      const struct moe_slot *slot = &m->params.pack[f].slot[i];
      float *at = m->memory.grad[f] + slot->offset + slot->elements;
      bool end = i + 1 == m->params.pack[f].slots || !m->params.pack[f].slot[i + 1].join;
      if (end && (slot->offset + slot->elements) % MOE_PACK_ALIGN) *at = 100; /* in the gap */
      if (slot->buffer) m->memory.grad[f][slot->offset] = 100;
    }
  MUST(ctx, moe_optim_square(&m->optim, &sum));
  if (sum == want) return;
  fprintf(stderr, "%s zero=%d: the squared norm is %.9g, %.9g elements\n", text, zero, sum, want);
  CHECK(!"norms differ");
}

/* Every rank updates what it holds; all elements of all weights must have moved alike. */
static void check_update(moe_ctx *ctx, struct model *m, const char *text, bool zero) {
  moe_optimizer_config config = {.size = sizeof config, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  float scale = 1;
  int64_t wrong = 0;
  fill(m, 1);
  MUST(ctx, moe_optim_update(&m->optim, &config, 0.5, 1, &scale));
  for (int f = 0; f < MOE_FAMILIES; f++)
    for (int32_t i = 0; i < m->params.pack[f].slots; i++) {
      const struct moe_slot *slot = &m->params.pack[f].slot[i];
      float want = slot->buffer ? 0 : -0.5f;
      for (int64_t e = 0; e < slot->elements; e++)
        wrong += fabsf(m->memory.weight[f][slot->offset + e] - want) > 1e-5f;
    }
  if (wrong == 0) return;
  fprintf(stderr, "%s zero=%d: %lld weights are wrong\n", text, zero, (long long)wrong);
  CHECK(!"updates differ");
}

/* With ZeRO the parts of the sharing ranks are all elements of the pack once. */
static void check_parts(moe_ctx *ctx, const struct model *m, bool zero) {
  for (int f = 0; f < MOE_FAMILIES; f++) {
    int64_t held = m->optim.buckets.moments[f], n = m->params.pack[f].elements;
    if (!zero) CHECK(held == n);
    if (zero) MUST(ctx, moe_all_reduce(m->optim.group[f], NULL, &held, 1, MOE_I64, MOE_SUM, NULL));
    CHECK(held == n);
  }
}

static void layout(moe_ctx *ctx, const char *text, bool zero, bool big) {
  struct equal_setup s;
  struct model m;
  equal_init(&s, text);
  open_model(ctx, &s, zero, big, &m);
  for (int step = 0; step < 2; step++) { /* the second on what the first left behind */
    fill(&m, ldexpf(1, moe_ctx_rank(ctx)));
    for (int32_t b = BLOCKS; b >= 0; b--) MUST(ctx, moe_optim_ready(&m.optim, b));
    MUST(ctx, moe_optim_finish(&m.optim));
    check_sums(&m, text, zero);
  }
  check_norm(ctx, &m, text, zero);
  check_update(ctx, &m, text, zero);
  check_parts(ctx, &m, zero);
  close_model(&m);
}

/* One dense and one expert scalar per rank, tp2 ep2 etp1, all gradients 1: three elements. */
static void three(moe_ctx *ctx) {
  struct equal_setup s;
  struct model m = {.k = NULL};
  struct moe_world *world;
  double sum = 0;
  float one[2] = {1, 1};
  if (moe_ctx_ranks(ctx) != 2) return;
  equal_init(&s, "tp=2 ep=2 etp=1");
  MUST(ctx, moe_ctx_world(ctx, &world));
  MUST(ctx, moe_layout_make(ctx, &s.config.layout, 2, &m.layout));
  MUST(ctx, moe_groups_create(world, &m.layout, &m.groups));
  MUST(ctx, moe_kernels_cpu(ctx, NULL, &m.k));
  MUST(ctx, m.k->stream_create(ctx, &m.stream));
  m.place = moe_place_of(&m.layout, world->rank);
  moe_params_init(ctx, &m.params);
  struct moe_slot slot = matrix(1, 1);
  slot.replicated = true;
  declare(ctx, &m, "", "dense", slot);
  slot = matrix(2, 1);
  slot.family = MOE_FAMILY_EXPERT;
  moe_slot_split(&slot, 0, m.place.ep);
  declare(ctx, &m, "", "expert", slot);
  m.memory.grad[MOE_FAMILY_REPLICATED] = &one[0];
  m.memory.grad[MOE_FAMILY_EXPERT] = &one[1];
  MUST(ctx,
       moe_optim_create(ctx, &m.params, &m.memory, (const int32_t(*)[MOE_FAMILIES])m.first_slot, 0,
                        &m.layout, &m.groups, false, m.k, m.stream, &m.optim));
  MUST(ctx, moe_optim_square(&m.optim, &sum));
  CHECK(sqrt(sum) == sqrt(3));
  moe_optim_destroy(&m.optim);
  m.k->stream_destroy(m.stream);
  moe_params_destroy(&m.params);
}

int main(int argc, char **argv) {
  moe_ctx *ctx = ranks_open();
  three(ctx);
  for (int i = 1; i < argc; i++)
    for (int zero = 0; zero < 2; zero++) layout(ctx, argv[i], zero != 0, false);
  for (int zero = 0; zero < 2; zero++) layout(ctx, "", zero != 0, true);
  return ranks_close(ctx);
}
