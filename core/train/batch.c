/* What a batch is on this rank: sequences of its dp coordinate, of each the part of its cp one. */
#include "train/trainer.h"

int32_t moe_trainer_seq_step(const struct moe_trainer *t) {
  int32_t tp = t->model->place.tp.size, cp = t->model->place.cp.size;
  return cp == 1 ? tp : cp * (tp % 2 ? 2 * tp : tp); /* cp * lcm(2, tp) */
}

void moe_trainer_share(const moe_trainer *t, int64_t *first, int64_t *count) {
  struct moe_coord dp = t->model->place.dp;
  *first = moe_part_start(t->config.global_batch, dp);
  *count = moe_part_count(t->config.global_batch, dp);
}

static uint64_t mix(uint64_t hash, const int32_t *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) hash = (hash ^ (uint32_t)x[i]) * 0x100000001B3u; /* FNV-1a */
  return hash;
}

/* The largest and smallest hash of a group are the same, or its ranks have different batches. */
moe_status moe_trainer_check_share(struct moe_trainer *t, const int32_t *token,
                                   const int32_t *label, int64_t n) {
  static const enum moe_group_kind groups[] = {MOE_GROUP_TP_CP, MOE_GROUP_PP};
  for (size_t i = 0; i < MOE_COUNTOF(groups); i++) {
    struct moe_group g = t->groups.of[groups[i]];
    if (moe_group_size(g) == 1) continue;
    int64_t mine = (int64_t)(mix(mix(0xCBF29CE484222325u, token, n), label, n) >> 1);
    int64_t ends[2] = {mine, -mine};
    MOE_TRY(moe_all_reduce(g, t->stream, ends, 2, MOE_I64, MOE_MAX, NULL));
    if (ends[0] != -ends[1])
      return moe_fail(t->ctx, MOE_INVALID,
                      "ranks that differ in tp, cp or pp only were given different batches; their "
                      "share of the global batch is the same (moe_trainer_share)");
  }
  return MOE_OK;
}

/* A cp rank has two pieces of a sequence, so that causal attention is the same work for all. */
struct pieces {
  int64_t tokens, first[2]; /* of one piece; where they begin */
};

static struct pieces pieces_of(struct moe_coord cp, int64_t seq) {
  int64_t tokens = seq / (2 * cp.size);
  return (struct pieces){tokens, {cp.rank * tokens, (2 * cp.size - 1 - cp.rank) * tokens}};
}

/* Token i of a sequence on a rank of cp. */
static int32_t position_of(struct moe_coord cp, int64_t seq, int64_t i) {
  struct pieces p = pieces_of(cp, seq);
  bool second = cp.size > 1 && i >= p.tokens;
  return (int32_t)(second ? p.first[1] + i - p.tokens : p.first[0] + i);
}

moe_status moe_trainer_set_positions(struct moe_trainer *t, int64_t seq) {
  if (t->positions == seq) return MOE_OK;
  struct moe_coord cp = t->model->place.cp;
  int64_t mine = seq / cp.size, rows = t->model->micro_batch * mine;
  int32_t *every = t->position_host + rows, *all = every + seq;
  for (int64_t i = 0; i < rows; i++) t->position_host[i] = position_of(cp, seq, i % mine);
  for (int64_t i = 0; i < seq; i++) {
    struct moe_coord member = {cp.size, (int32_t)(i / mine)};
    every[i] = position_of(member, seq, i % mine);
    all[i] = (int32_t)i;
  }
  t->k->copy(t->stream, t->position, t->position_host, (size_t)rows * sizeof *all);
  t->k->copy(t->stream, t->cp_position, every, (size_t)seq * sizeof *all);
  t->k->copy(t->stream, t->all_position, all, (size_t)seq * sizeof *all);
  t->positions = (int32_t)seq;
  return t->k->stream_sync(t->stream);
}

void moe_trainer_upload_part(struct moe_trainer *t, int32_t *device, const int32_t *host, int64_t n,
                             int64_t seq) {
  struct moe_coord cp = t->model->place.cp;
  if (cp.size == 1) {
    t->k->copy(t->stream, device, host, (size_t)(n * seq) * sizeof *device);
    return;
  }
  struct pieces p = pieces_of(cp, seq);
  for (int64_t s = 0; s < n; s++)
    for (int i = 0; i < 2; i++)
      t->k->copy(t->stream, device + (2 * s + i) * p.tokens, host + s * seq + p.first[i],
                 (size_t)p.tokens * sizeof *device);
}
