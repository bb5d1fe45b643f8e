#include "equal.h"

#include <math.h>

#include "base/rng.h"

/* ---- the words ---- */

/* Two kinds of blocks that differ in every respect a layout could get wrong. */
static void mixtral_like(moe_block_config *b) {
  b->heads = 8, b->kv_heads = 4, b->head_dim = 6;
  b->score = MOE_SCORE_SOFTMAX, b->renormalise = 1;
}
static void qwen_like(moe_block_config *b) {
  b->heads = 8, b->kv_heads = 2, b->head_dim = 4;
  b->qkv_bias = 1, b->qk_norm = MOE_QK_NORM_HEAD;
  b->score = MOE_SCORE_SIGMOID, b->renormalise = 1, b->expert_bias = 1, b->bias_rate = 0.01;
  b->shared_ffn = 16, b->shared_gate = 1;
}

static void init_blocks(struct equal_setup *s, bool qwen) {
  for (int i = 0; i < EQUAL_BLOCKS; i++) {
    moe_block_config *b = &s->block[i];
    moe_block_config_init(b);
    if (qwen)
      qwen_like(b);
    else
      mixtral_like(b);
    b->ffn = 24, b->experts = 8, b->topk = 2;
    b->aux_coef = 0.02, b->z_coef = 0.01;
  }
}

static void init_batch(struct equal_setup *s) {
  struct moe_rng_key key = moe_rng_key(1, "batch");
  for (int i = 0; i < EQUAL_TOKENS; i++) {
    s->tokens[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i) % EQUAL_VOCAB);
    s->labels[i] = (int32_t)(moe_rng_u64(key, (uint64_t)i + EQUAL_TOKENS) % EQUAL_VOCAB);
    if (i % 7 == 3 || i < EQUAL_SEQ) s->labels[i] = -1; /* the first sequence teaches nothing */
  }
}

/* "3,0,5" as the layout's list. */
static void read_stages(struct equal_setup *s, char *text) {
  for (char *rest = text, *item; (item = strtok_r(rest, ",", &rest)) != NULL;)
    s->stage[s->config.layout.n_blocks++] = atoi(item);
  s->config.layout.blocks = s->stage;
}

static bool text_word(void *arg, const char *key, char *value) {
  struct equal_setup *s = arg;
  bool order = strcmp(key, "order") == 0, stages = strcmp(key, "stages") == 0;
  if (order) {
    snprintf(s->order, sizeof s->order, "%s", value);
    s->config.layout.order = s->order;
  } else if (stages) {
    read_stages(s, value);
  }
  return order || stages;
}

/* Degrees: tp cp dp pp etp ep edp chunks group, order=, stages=3,0,5 (blocks of each). Model:
 * qwen=1 (else Mixtral-like), olmoe=1 (q and k normed over all heads), blocks=N, dense=1 (the first
 * block has a dense ffn), tied=1, scope=0..2 (aux), recompute=0..2. Dispatch: kind=, drop=, pad=,
 * capacity100= (percent), across= (capacity_scope). Rest: micro= (micro-batch), batch= (sequences
 * of a step), shard=1, cp_kind=, bf16=1 (loss and norm to the rounding of bf16; weights not). */
static void read_words(struct equal_setup *s, const char *text) {
  moe_train_config *c = &s->config;
  moe_layout_config *l = &c->layout;
  int32_t bf16 = 0, qwen = 0, olmoe = 0, dense = 0, scope = 0, recompute = 0, capacity = 0;
  const struct ranks_word words[] = {
      {"tp", &l->tp},
      {"cp", &l->cp},
      {"dp", &l->dp},
      {"pp", &l->pp},
      {"etp", &l->etp},
      {"ep", &l->ep},
      {"edp", &l->edp},
      {"chunks", &l->chunks},
      {"bf16", &bf16},
      {"group", &l->group},
      {"batch", &c->global_batch},
      {"qwen", &qwen},
      {"olmoe", &olmoe},
      {"blocks", &c->model.n_blocks},
      {"dense", &dense},
      {"tied", &c->model.tie_embeddings},
      {"scope", &scope},
      {"recompute", &recompute},
      {"kind", &c->dispatch.kind},
      {"drop", &c->dispatch.drop},
      {"pad", &c->dispatch.pad},
      {"across", &c->dispatch.capacity_scope},
      {"capacity100", &capacity},
      {"micro", &c->micro_batch},
      {"shard", &c->optimizer.shard},
      {"cp_kind", &l->cp_kind},
  };
  ranks_words(text, words, MOE_COUNTOF(words), text_word, s);
  c->dtype = bf16 ? MOE_BF16 : MOE_F32;
  init_blocks(s, qwen);
  for (int i = 0; olmoe && i < EQUAL_BLOCKS; i++) s->block[i].qk_norm = MOE_QK_NORM_ALL;
  if (dense) s->block[0].ffn_kind = MOE_FFN_DENSE, s->block[0].experts = 0;
  for (int i = 0; i < EQUAL_BLOCKS; i++) {
    s->block[i].aux_scope = scope;
    s->block[i].recompute = recompute;
  }
  c->dispatch.capacity_factor = capacity / 100.0;
}

void equal_init(struct equal_setup *s, const char *text) {
  memset(s, 0, sizeof *s);
  moe_train_config_init(&s->config);
  moe_train_config *c = &s->config;
  c->model.vocab = EQUAL_VOCAB, c->model.hidden = 24;
  c->model.max_positions = EQUAL_SEQ;
  c->model.n_blocks = 2, c->model.blocks = s->block;
  c->model.init_std = 0.3;
  c->seq = EQUAL_SEQ, c->micro_batch = 1, c->global_batch = EQUAL_BATCH;
  c->seed = 5;
  c->optimizer.shard = 0, c->optimizer.clip = 0.5;
  c->optimizer.eps = 1e-5; /* below the usual gradient here, above the rounding of its sums: with
                              less the first updates are the sign of what may be rounding */
  read_words(s, text);
  init_batch(s);
}

/* ---- comparing ---- */

int64_t equal_share(moe_ctx *ctx, const struct equal_setup *s) {
  struct moe_layout layout;
  MUST(ctx, moe_layout_make(ctx, &s->config.layout, moe_ctx_ranks(ctx), &layout));
  struct moe_coord dp = moe_place_of(&layout, moe_ctx_rank(ctx)).dp;
  return moe_part_start(s->config.global_batch, dp) * EQUAL_SEQ;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)); }

void equal_metrics(const char *what, const moe_step_metrics *a, const moe_step_metrics *b) {
  const struct {
    const char *name;
    double a, b;
  } real[] = {{"loss", a->loss, b->loss},
              {"grad_norm", a->grad_norm, b->grad_norm},
              {"aux_loss", a->aux_loss, b->aux_loss},
              {"z_loss", a->z_loss, b->z_loss},
              {"load_max", a->load_max, b->load_max}};
  for (size_t i = 0; i < MOE_COUNTOF(real); i++) {
    if (near(real[i].a, real[i].b)) continue;
    fprintf(stderr, "%s: step %lld: %s is %.9g, one process has %.9g\n", what, (long long)b->step,
            real[i].name, real[i].b, real[i].a);
    CHECK(!"metrics differ");
  }
  CHECK(a->loss_tokens == b->loss_tokens && a->tokens == b->tokens);
  CHECK(a->routed == b->routed && a->dropped == b->dropped);
}

enum { MOST = 1 << 14 };

/* The box start, count of a tensor `all` with shape dim, into `out`. */
static void cut(const moe_param_info *info, const float *all, float *out) {
  int64_t n = 1;
  for (int d = 0; d < info->dims; d++) n *= info->count[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, from = 0, stride = 1;
    for (int d = info->dims - 1; d >= 0; d--) {
      from += (info->start[d] + rest % info->count[d]) * stride;
      rest /= info->count[d];
      stride *= info->dim[d];
    }
    out[i] = all[from];
  }
}

double equal_distance(moe_ctx *ctx, moe_trainer *one, moe_trainer *many, int64_t index,
                      int32_t kind) {
  moe_param_info info = {.size = sizeof info};
  static float all[MOST], a[MOST], b[MOST];
  int64_t n = 1, whole = 1, at;
  double most = 1e-30, far = 0;
  MUST(ctx, moe_trainer_param_info(many, index, &info));
  for (int d = 0; d < info.dims; d++) n *= info.count[d], whole *= info.dim[d];
  CHECK(whole <= MOST);
  MUST(ctx, moe_trainer_param_find(one, info.name, &at));
  MUST(ctx, moe_trainer_param_read(one, at, kind, all, whole));
  MUST(ctx, moe_trainer_param_read(many, index, kind, b, n));
  cut(&info, all, a);
  for (int64_t i = 0; i < whole; i++) most = fmax(most, fabs((double)all[i]));
  for (int64_t i = 0; i < n; i++) far = fmax(far, fabs((double)a[i] - (double)b[i]));
  return far / most;
}

static void same_weights(moe_ctx *ctx, moe_trainer *one, moe_trainer *many, const char *text) {
  for (int64_t i = 0; i < moe_trainer_param_count(many); i++) {
    moe_param_info info = {.size = sizeof info};
    double far = equal_distance(ctx, one, many, i, MOE_TENSOR_WEIGHT);
    if (far < 1e-5) continue;
    MUST(ctx, moe_trainer_param_info(many, i, &info));
    fprintf(stderr, "%s: rank %d: %s differs by %.3g\n", text, moe_ctx_rank(ctx), info.name, far);
    CHECK(!"weights differ");
  }
}

/* Norms are not 1 and biases not 0, as after training: noise by global index. */
static void disturb(moe_ctx *ctx, moe_trainer *t) {
  static float x[MOST];
  for (int64_t i = 0; i < moe_trainer_param_count(t); i++) {
    moe_param_info info = {.size = sizeof info};
    MUST(ctx, moe_trainer_param_info(t, i, &info));
    if (info.dims != 1) continue;
    struct moe_rng_key key = moe_rng_key(7, info.name);
    MUST(ctx, moe_trainer_param_read(t, i, MOE_TENSOR_WEIGHT, x, info.count[0]));
    for (int64_t j = 0; j < info.count[0]; j++)
      x[j] += 0.1f * (float)moe_rng_normal(key, (uint64_t)(info.start[0] + j));
    MUST(ctx, moe_trainer_param_write(t, i, MOE_TENSOR_WEIGHT, x, info.count[0]));
  }
}

/* Held-out loss, and logits of a sequence shorter than the layout's pieces. */
static void same_forward(moe_ctx *ctx, moe_ctx *alone, moe_trainer *one, moe_trainer *many,
                         const struct equal_setup *s) {
  enum { SOME = 13 };
  static float a[SOME * EQUAL_VOCAB], b[SOME * EQUAL_VOCAB];
  double loss_a, loss_b;
  int64_t n_a, n_b;
  MUST(alone, moe_trainer_eval(one, s->tokens, s->labels, 3, &loss_a, &n_a));
  MUST(ctx, moe_trainer_eval(many, s->tokens, s->labels, 3, &loss_b, &n_b));
  CHECK(near(loss_a, loss_b) && n_a == n_b);
  if (s->config.dispatch.capacity_factor != 0) return; /* rows that fill up would compete */
  for (int all = 0; all < 2; all++) {
    double far = 0;
    MUST(alone, moe_trainer_logits(one, s->tokens, SOME, all, a));
    MUST(ctx, moe_trainer_logits(many, s->tokens, SOME, all, b));
    for (int i = 0; i < (all ? SOME : 1) * EQUAL_VOCAB; i++)
      far = fmax(far, fabs((double)a[i] - (double)b[i]));
    CHECK(far < 1e-4); /* of logits around 10 */
  }
}

/* bf16 has 8 bits, and where they choose another expert a token goes another way: these bounds,
 * twice what is seen, are for sums that are wrong or missing. */
static void rounded_metrics(const moe_step_metrics *a, const moe_step_metrics *b) {
  CHECK(fabs(a->loss - b->loss) < 0.015 * a->loss);
  CHECK(fabs(a->grad_norm - b->grad_norm) < 0.08 * a->grad_norm);
  CHECK(a->loss_tokens == b->loss_tokens && a->routed == b->routed);
}

void equal_compare(moe_ctx *ctx, moe_ctx *alone, const char *text) {
  struct equal_setup s, plain;
  moe_trainer *one, *many;
  equal_init(&s, text);
  equal_init(&plain, text);
  plain.config.layout = (moe_layout_config){.size = sizeof plain.config.layout};
  plain.config.optimizer.shard = 0;
  MUST(alone, moe_trainer_create(alone, &plain.config, &one));
  MUST(ctx, moe_trainer_create(ctx, &s.config, &many));
  int64_t first = equal_share(ctx, &s);
  disturb(alone, one);
  disturb(ctx, many);
  for (int step = 0; step < EQUAL_STEPS; step++) {
    moe_step_metrics a = {.size = sizeof a}, b = {.size = sizeof b};
    MUST(alone, moe_trainer_step(one, s.tokens, s.labels, &a));
    MUST(ctx, moe_trainer_step(many, s.tokens + first, s.labels + first, &b));
    if (s.config.dtype == MOE_F32)
      equal_metrics(text, &a, &b);
    else
      rounded_metrics(&a, &b);
  }
  if (s.config.dtype == MOE_F32) {
    same_weights(ctx, one, many, text);
    same_forward(ctx, alone, one, many, &s);
  }
  moe_trainer_destroy(one);
  moe_trainer_destroy(many);
}
