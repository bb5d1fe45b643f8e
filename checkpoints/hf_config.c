#include "checkpoints/hf_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

/* Where the values come from and where complaints go. */
struct reader {
  json_t *root;
  const char *path;
  struct moe_text errors;
};

static json_t *get(struct reader *r, const char *key) {
  json_t *v = json_object_get(r->root, key);
  return json_is_null(v) ? NULL : v;
}

static int32_t integer(struct reader *r, const char *key, int32_t missing) {
  json_t *v = get(r, key);
  if (v == NULL) {
    if (missing < 0) moe_text_add(&r->errors, "%s: %s is missing\n", r->path, key);
    return missing;
  }
  if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX) {
    moe_text_add(&r->errors, "%s: %s is not a whole number >= 0\n", r->path, key);
    return missing;
  }
  return (int32_t)json_integer_value(v);
}

static double number(struct reader *r, const char *key, double missing) {
  json_t *v = get(r, key);
  if (v == NULL) return missing;
  if (!json_is_number(v)) moe_text_add(&r->errors, "%s: %s is not a number\n", r->path, key);
  return json_number_value(v);
}

static bool boolean(struct reader *r, const char *key, bool missing) {
  json_t *v = get(r, key);
  if (v == NULL) return missing;
  if (!json_is_boolean(v)) moe_text_add(&r->errors, "%s: %s is not true or false\n", r->path, key);
  return json_is_true(v);
}

static double rope_theta(struct reader *r) {
  json_t *nested = json_object_get(get(r, "rope_parameters"), "rope_theta");
  if (json_is_number(nested)) return json_number_value(nested);
  return number(r, "rope_theta", 1e4);
}

static bool read_family(struct reader *r, enum moe_hf_family *out) {
  static const char *const names[] = {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe"};
  const char *type = json_string_value(get(r, "model_type"));
  for (size_t i = 0; type && i < MOE_COUNTOF(names); i++) {
    if (strcmp(type, names[i]) != 0) continue;
    *out = (enum moe_hf_family)i;
    return true;
  }
  moe_text_add(&r->errors,
               "%s: model_type \"%s\" is not one of mixtral qwen2_moe qwen3_moe olmoe\n", r->path,
               type ? type : "");
  return false;
}

/* Layer i has experts: not named in mlp_only_layers, and on the sparse step. */
static bool is_sparse(struct reader *r, int32_t layer, int32_t experts) {
  json_t *only = get(r, "mlp_only_layers");
  for (size_t i = 0; i < json_array_size(only); i++)
    if (json_integer_value(json_array_get(only, i)) == layer) return false;
  int32_t step = integer(r, "decoder_sparse_step", 1);
  return experts > 0 && (step <= 1 || (layer + 1) % step == 0);
}

static void read_attention(struct reader *r, enum moe_hf_family family, int32_t hidden,
                           moe_block_config *b) {
  b->heads = integer(r, "num_attention_heads", -1);
  b->kv_heads = integer(r, "num_key_value_heads", b->heads);
  b->head_dim = integer(r, "head_dim", b->heads > 0 ? hidden / b->heads : 0);
  b->rope_theta = rope_theta(r);
  bool windowed = family == MOE_HF_MIXTRAL || boolean(r, "use_sliding_window", false);
  b->window = windowed ? integer(r, "sliding_window", 0) : 0;
  b->qkv_bias = family == MOE_HF_QWEN2_MOE && boolean(r, "qkv_bias", true);
  if (boolean(r, "attention_bias", false))
    moe_text_add(&r->errors, "%s: attention_bias true is not supported\n", r->path);
  if (get(r, "clip_qkv")) moe_text_add(&r->errors, "%s: clip_qkv is not supported\n", r->path);
  if (family == MOE_HF_QWEN3_MOE) b->qk_norm = MOE_QK_NORM_HEAD;
  if (family == MOE_HF_OLMOE) b->qk_norm = MOE_QK_NORM_ALL;
}

static void read_experts(struct reader *r, enum moe_hf_family family, moe_block_config *b) {
  b->ffn_kind = MOE_FFN_MOE;
  b->experts = integer(r, get(r, "num_local_experts") ? "num_local_experts" : "num_experts", -1);
  b->topk = integer(r, "num_experts_per_tok", -1);
  b->renormalise = family == MOE_HF_MIXTRAL || boolean(r, "norm_topk_prob", false);
  b->ffn = integer(
      r, get(r, "moe_intermediate_size") ? "moe_intermediate_size" : "intermediate_size", -1);
  if (family != MOE_HF_QWEN2_MOE) return;
  b->shared_ffn = integer(r, "shared_expert_intermediate_size", -1);
  b->shared_gate = 1;
}

static moe_status read_model(moe_ctx *ctx, struct reader *r, struct moe_hf_config *out) {
  moe_train_config defaults;
  moe_train_config_init(&defaults);
  moe_model_config *m = &out->model;
  *m = defaults.model;
  if (!read_family(r, &out->family)) return MOE_OK; /* the rest depends on it */
  m->vocab = integer(r, "vocab_size", -1);
  m->hidden = integer(r, "hidden_size", -1);
  m->max_positions = integer(r, "max_position_embeddings", 0);
  m->norm_eps = number(r, "rms_norm_eps", 1e-6);
  m->init_std = number(r, "initializer_range", 0.02);
  m->tie_embeddings = boolean(r, "tie_word_embeddings", false);
  m->n_blocks = integer(r, "num_hidden_layers", -1);
  out->router_aux_loss_coef = number(r, "router_aux_loss_coef", 0);
  if (m->n_blocks < 1 || m->n_blocks > 100000) {
    moe_text_add(&r->errors, "%s: num_hidden_layers is not 1 .. 100000\n", r->path);
    m->n_blocks = 0;
  }
  moe_block_config *blocks = moe_alloc_array(ctx, (size_t)m->n_blocks, sizeof *blocks);
  if (blocks == NULL) return MOE_MEMORY;
  m->blocks = blocks;
  int32_t experts =
      integer(r, get(r, "num_local_experts") ? "num_local_experts" : "num_experts", 0);
  for (int32_t i = 0; i < m->n_blocks && r->errors.len == 0; i++) {
    moe_block_config_init(&blocks[i]);
    read_attention(r, out->family, m->hidden, &blocks[i]);
    if (is_sparse(r, i, experts)) {
      read_experts(r, out->family, &blocks[i]);
    } else {
      blocks[i].ffn_kind = MOE_FFN_DENSE;
      blocks[i].ffn = integer(r, "intermediate_size", -1);
    }
  }
  return MOE_OK;
}

moe_status moe_hf_config_read(moe_ctx *ctx, const char *path, struct moe_hf_config *out) {
  *out = (struct moe_hf_config){0};
  json_error_t error;
  struct reader r = {.root = json_load_file(path, JSON_REJECT_DUPLICATES, &error), .path = path};
  if (r.root == NULL)
    return moe_fail(ctx, MOE_FORMAT, "%s: line %d: %s", path, error.line, error.text);
  moe_text_init(ctx, &r.errors);
  moe_status status = read_model(ctx, &r, out);
  if (status == MOE_OK && r.errors.len > 0)
    status = moe_fail(ctx, MOE_FORMAT, "%.*s", (int)r.errors.len - 1, r.errors.s);
  moe_text_destroy(&r.errors);
  json_decref(r.root);
  if (status != MOE_OK) moe_hf_config_destroy(ctx, out);
  return status;
}

void moe_hf_config_destroy(moe_ctx *ctx, struct moe_hf_config *config) {
  moe_release(ctx, (void *)(uintptr_t)config->model.blocks);
  *config = (struct moe_hf_config){0};
}
