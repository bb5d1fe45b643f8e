#include "checkpoints/hf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name after "model.layers.<i>." that is one of our tensors whole. */
struct whole {
  const char *hf, *ours;
};
static const struct whole kBlock[] = {
    {"input_layernorm.weight", "attn.norm"},
    {"post_attention_layernorm.weight", "ffn.norm"},
    {"self_attn.q_proj.weight", "attn.q"},
    {"self_attn.k_proj.weight", "attn.k"},
    {"self_attn.v_proj.weight", "attn.v"},
    {"self_attn.o_proj.weight", "attn.o"},
    {"self_attn.q_proj.bias", "attn.q_bias"},
    {"self_attn.k_proj.bias", "attn.k_bias"},
    {"self_attn.v_proj.bias", "attn.v_bias"},
    {"self_attn.q_norm.weight", "attn.q_norm"},
    {"self_attn.k_norm.weight", "attn.k_norm"},
    {"mlp.shared_expert.down_proj.weight", "moe.shared.out"},
    {"mlp.shared_expert_gate.weight", "moe.shared.gate"},
};

static moe_status unknown(moe_ctx *ctx, const char *name) {
  return moe_fail(ctx, MOE_NOTFOUND, "tensor %s: this family has no such name", name);
}

/* Elements of a whole tensor of ours, by its name inside a block. */
static int64_t block_elements(const moe_model_config *m, const moe_block_config *b,
                              const char *ours) {
  int64_t h = m->hidden, q = (int64_t)b->heads * b->head_dim,
          kv = (int64_t)b->kv_heads * b->head_dim;
  if (strcmp(ours, "attn.norm") == 0 || strcmp(ours, "ffn.norm") == 0) return h;
  if (strcmp(ours, "attn.q") == 0 || strcmp(ours, "attn.o") == 0) return q * h;
  if (strcmp(ours, "attn.k") == 0 || strcmp(ours, "attn.v") == 0) return kv * h;
  if (strcmp(ours, "attn.q_bias") == 0) return b->qkv_bias ? q : 0;
  if (strcmp(ours, "attn.k_bias") == 0 || strcmp(ours, "attn.v_bias") == 0)
    return b->qkv_bias ? kv : 0;
  if (b->qk_norm == MOE_QK_NORM_HEAD && strstr(ours, "_norm")) return b->head_dim;
  if (b->qk_norm == MOE_QK_NORM_ALL && strcmp(ours, "attn.q_norm") == 0) return q;
  if (b->qk_norm == MOE_QK_NORM_ALL && strcmp(ours, "attn.k_norm") == 0) return kv;
  if (strcmp(ours, "moe.shared.out") == 0) return h * b->shared_ffn;
  if (strcmp(ours, "moe.shared.gate") == 0) return b->shared_gate ? h : 0;
  return 0;
}

static void place(struct moe_hf_place *out, int32_t block, const char *ours, int64_t first,
                  int64_t elements) {
  snprintf(out->name, sizeof out->name, "blocks.%d.%s", block, ours);
  out->first = first;
  out->elements = elements;
}

/* gate (0), up (1) or down (2) by the family's words; -1: neither. */
static int matrix_of(enum moe_hf_family family, const char *rest) {
  static const char *const mixtral[] = {"w1.weight", "w3.weight", "w2.weight"};
  static const char *const others[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
  const char *const *words = family == MOE_HF_MIXTRAL ? mixtral : others;
  for (int i = 0; i < 3; i++)
    if (strcmp(rest, words[i]) == 0) return i;
  return -1;
}

/* A dense or shared ffn: gate and up are halves of "<ours>.in". */
static bool place_ffn(struct moe_hf_place *out, int32_t block, const char *rest, const char *ours,
                      int64_t hidden, int64_t width) {
  char name[32];
  int which = matrix_of(MOE_HF_QWEN2_MOE, rest);
  int64_t n = width * hidden;
  if (which < 0 || n == 0) return false;
  snprintf(name, sizeof name, "%s.%s", ours, which == 2 ? "out" : "in");
  place(out, block, name, which == 1 ? n : 0, n);
  return true;
}

static bool place_expert(struct moe_hf_place *out, const struct moe_hf_config *config,
                         int32_t block, const char *rest) {
  const moe_block_config *b = &config->model.blocks[block];
  char *end;
  long expert = strtol(rest, &end, 10);
  if (end == rest || *end != '.' || expert < 0 || expert >= b->experts) return false;
  int which = matrix_of(config->family, end + 1);
  int64_t n = (int64_t)b->ffn * config->model.hidden;
  if (which < 0) return false;
  if (which == 2)
    place(out, block, "moe.experts.out", expert * n, n);
  else
    place(out, block, "moe.experts.in", (2 * expert + which) * n, n);
  return true;
}

/* The part of rest after prefix, NULL when it does not begin so. */
static const char *after(const char *rest, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(rest, prefix, n) == 0 ? rest + n : NULL;
}

static bool place_in_block(const struct moe_hf_config *config, int32_t block, const char *rest,
                           struct moe_hf_place *out) {
  const moe_model_config *m = &config->model;
  const moe_block_config *b = &m->blocks[block];
  bool mixtral = config->family == MOE_HF_MIXTRAL;
  const char *mlp = after(rest, mixtral ? "block_sparse_moe." : "mlp."), *part;
  for (size_t i = 0; i < MOE_COUNTOF(kBlock); i++) {
    if (strcmp(rest, kBlock[i].hf) != 0) continue;
    int64_t n = block_elements(m, b, kBlock[i].ours);
    place(out, block, kBlock[i].ours, 0, n);
    return n > 0;
  }
  if (mlp == NULL) return false;
  if (b->ffn_kind == MOE_FFN_DENSE) return place_ffn(out, block, mlp, "ffn", m->hidden, b->ffn);
  if (strcmp(mlp, "gate.weight") == 0) {
    place(out, block, "moe.router", 0, (int64_t)b->experts * m->hidden);
    return true;
  }
  if ((part = after(mlp, "experts."))) return place_expert(out, config, block, part);
  if ((part = after(mlp, "shared_expert.")))
    return place_ffn(out, block, part, "moe.shared", m->hidden, b->shared_ffn);
  return false;
}

moe_status moe_hf_name_place(moe_ctx *ctx, const struct moe_hf_config *config, const char *hf_name,
                             struct moe_hf_place *out) {
  const moe_model_config *m = &config->model;
  const struct whole top[] = {{"model.embed_tokens.weight", "embed"},
                              {"lm_head.weight", "head"},
                              {"model.norm.weight", "norm"}};
  for (size_t i = 0; i < MOE_COUNTOF(top); i++) {
    if (strcmp(hf_name, top[i].hf) != 0) continue;
    snprintf(out->name, sizeof out->name, "%s", top[i].ours);
    out->first = 0;
    out->elements = (int64_t)m->hidden * (i == 2 ? 1 : m->vocab);
    return MOE_OK;
  }
  const char *rest = after(hf_name, "model.layers.");
  if (rest == NULL) return unknown(ctx, hf_name);
  char *end;
  long block = strtol(rest, &end, 10);
  if (end == rest || *end != '.' || block < 0 || block >= m->n_blocks ||
      !place_in_block(config, (int32_t)block, end + 1, out))
    return unknown(ctx, hf_name);
  return MOE_OK;
}
