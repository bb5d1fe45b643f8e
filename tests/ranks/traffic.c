/* Bytes that ranks count in a step against those the planner predicts, to the byte, for every group
 * and operation: test_traffic "tp=2 ep=2 .." "..", words of equal.c and routing=, which is needed
 * where routing decides sizes (no pad): "even", as many tokens to each expert, or "first", all to
 * the first ones. */
#include "plan/traffic.h"

#include "equal.h"

enum { ENTRIES = (MOE_GROUPS + 1) * MOE_COMM_OPS, EXPERTS = 8, TOPK = 2, VALUES = 1 << 14 };

enum routing { ANY, EVEN, FIRST };

static moe_status fill(moe_trainer *t, int64_t index, const moe_param_info *info, float diagonal,
                       float beside) {
  static float values[VALUES];
  int64_t n = 1, cols = info->count[info->dims - 1];
  for (int d = 0; d < info->dims; d++) n *= info->count[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t row = info->start[0] + i / cols, col = info->start[info->dims - 1] + i % cols;
    values[i] = col == row % EXPERTS ? diagonal : col == (row + 1) % EXPERTS ? beside : 0;
  }
  return moe_trainer_param_write(t, index, MOE_TENSOR_WEIGHT, values, n);
}

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && strcmp(name + n - m, end) == 0;
}

/* Weights that route as wanted. Nothing is added to the residual stream, so that it stays the
 * embedding in all layers. A token v is (v, v + 1) there, and the router finds just these. */
static void weights(moe_ctx *ctx, moe_trainer *t, enum routing routing) {
  static const char *const silent[] = {"attn.o", "ffn.out", "experts.out", "shared.out"};
  for (int64_t i = 0; i < moe_trainer_param_count(t); i++) {
    moe_param_info info = {.size = sizeof info};
    MUST(ctx, moe_trainer_param_info(t, i, &info));
    if (ends_with(info.name, "moe.router"))
      MUST(ctx, fill(t, i, &info, routing == EVEN ? 1 : 0, 0));
    if (!strcmp(info.name, "embed")) MUST(ctx, fill(t, i, &info, 2, 1));
    for (size_t s = 0; s < MOE_COUNTOF(silent); s++)
      if (ends_with(info.name, silent[s])) MUST(ctx, fill(t, i, &info, 0, 0));
  }
}

/* Takes "routing=X" out of the words. */
static enum routing routing_of(const char *text, char *words, size_t size) {
  const char *at = strstr(text, " routing=");
  snprintf(words, size, "%.*s", at ? (int)(at - text) : (int)strlen(text), text);
  if (at == NULL) return ANY;
  return strcmp(at, " routing=even") == 0 ? EVEN : FIRST;
}

static void compare(const char *text, int32_t rank, const int64_t *counted,
                    const struct moe_traffic *predicted) {
  for (int32_t i = 0; i < ENTRIES; i++) {
    int32_t kind = i / MOE_COMM_OPS, op = i % MOE_COMM_OPS;
    int64_t want = kind < MOE_GROUPS ? predicted->bytes[kind][op] : 0;
    if (counted[i] == want) continue;
    fprintf(stderr, "%s: rank %d: %s, %s: counted %lld, predicted %lld\n", text, rank,
            moe_traffic_group_name(kind), moe_traffic_op_name(op), (long long)counted[i],
            (long long)want);
    ranks_fail(__FILE__, __LINE__, "counted == predicted");
  }
}

/* The MoE layers' part has groups that nothing else uses. */
static void compare_moe(const int64_t *counted, const struct moe_traffic *moe) {
  static const enum moe_group_kind own[] = {MOE_GROUP_ETP, MOE_GROUP_EP, MOE_GROUP_ETP_EP};
  for (size_t i = 0; i < MOE_COUNTOF(own); i++)
    for (int op = 0; op < MOE_COMM_OPS; op++)
      CHECK(moe->bytes[own[i]][op] == counted[(int)own[i] * MOE_COMM_OPS + op]);
}

/* All tokens of all ranks go to experts 0 .. K-1: equal scores are taken in that order. */
static void predict(moe_ctx *ctx, const struct equal_setup *s, enum routing routing,
                    struct moe_traffic *step, struct moe_traffic *moe) {
  struct moe_layout layout;
  static int64_t rows[64 * EXPERTS];
  const moe_train_config *c = &s->config;
  MUST(ctx, moe_layout_make(ctx, &c->layout, moe_ctx_ranks(ctx), &layout));
  int32_t spread =
      layout.size[MOE_VIEW_ATTN][MOE_AXIS_TP] * layout.size[MOE_VIEW_ATTN][MOE_AXIS_CP];
  for (int32_t i = 0; i < layout.world * EXPERTS; i++)
    rows[i] = i % EXPERTS < TOPK ? (int64_t)c->micro_batch * c->seq / spread : 0;
  struct moe_traffic_routing r = {routing == FIRST ? rows : NULL};
  MUST(ctx, moe_traffic_step(ctx, c, &layout, moe_ctx_rank(ctx), r, step, moe));
}

/* The public prediction is the same as the internal one, for an even load. */
static void compare_public(moe_ctx *ctx, const moe_train_config *config,
                           const struct moe_traffic *step, const struct moe_traffic *moe) {
  int64_t bytes[ENTRIES];
  for (int part = MOE_TRAFFIC_STEP; part <= MOE_TRAFFIC_MOE; part++) {
    const struct moe_traffic *want = part == MOE_TRAFFIC_MOE ? moe : step;
    MUST(ctx, moe_plan_traffic(ctx, config, moe_ctx_ranks(ctx), moe_ctx_rank(ctx), part, bytes,
                               ENTRIES));
    CHECK(memcmp(bytes, want->bytes, sizeof want->bytes) == 0);
  }
}

static void run_case(moe_ctx *ctx, const char *text) {
  struct equal_setup s;
  moe_trainer *t;
  moe_step_metrics m = {.size = sizeof m};
  struct moe_traffic step, moe;
  int64_t before[ENTRIES], after[ENTRIES];
  char words[256];
  enum routing routing = routing_of(text, words, sizeof words);
  equal_init(&s, words);
  for (int32_t i = 0; i < EQUAL_TOKENS && routing == EVEN; i++) s.tokens[i] = i % EXPERTS;
  MUST(ctx, moe_trainer_create(ctx, &s.config, &t));
  if (routing != ANY) weights(ctx, t, routing);
  int64_t first = equal_share(ctx, &s);
  MUST(ctx, moe_ctx_traffic(ctx, NULL, before, ENTRIES));
  MUST(ctx, moe_trainer_step(t, s.tokens + first, s.labels + first, &m));
  MUST(ctx, moe_ctx_traffic(ctx, NULL, after, ENTRIES));
  predict(ctx, &s, routing, &step, &moe);
  for (int32_t i = 0; i < ENTRIES; i++) after[i] -= before[i];
  compare(text, moe_ctx_rank(ctx), after, &step);
  compare_moe(after, &moe);
  if (routing != FIRST) compare_public(ctx, &s.config, &step, &moe);
  moe_trainer_destroy(t);
}

int main(int argc, char **argv) {
  moe_ctx *ctx = ranks_open();
  CHECK(moe_traffic_groups() * moe_traffic_ops() == ENTRIES);
  for (int i = 1; i < argc; i++) run_case(ctx, argv[i]);
  return ranks_close(ctx);
}
