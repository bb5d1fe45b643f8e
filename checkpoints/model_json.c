#include "checkpoints/model_json.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"

static json_t *block_json(const moe_block_config *b) {
  bool moe = b->ffn_kind == MOE_FFN_MOE;
  json_t *json = json_pack("{si si si si si si sf si ss}", "heads", b->heads, "kv_heads",
                           b->kv_heads, "head_dim", b->head_dim, "qkv_bias", b->qkv_bias, "qk_norm",
                           b->qk_norm, "window", b->window, "rope_theta", b->rope_theta, "ffn",
                           b->ffn, "ffn_kind", moe ? "moe" : "dense");
  if (!moe || json == NULL) return json;
  json_t *router = json_pack(
      "{si si ss si si si si sf si si}", "experts", b->experts, "topk", b->topk, "score",
      b->score == MOE_SCORE_SIGMOID ? "sigmoid" : "softmax", "renormalise", b->renormalise,
      "expert_bias", b->expert_bias, "groups", b->groups, "topk_groups", b->topk_groups,
      "routed_scale", b->routed_scale, "shared_ffn", b->shared_ffn, "shared_gate", b->shared_gate);
  if (router == NULL || json_object_update(json, router) != 0) {
    json_decref(json);
    json = NULL;
  }
  json_decref(router);
  return json;
}

/* Takes block over. Returns -1 when there is no memory. */
static int add_block(json_t *blocks, json_t **last, int *count, json_t *block) {
  if (block == NULL) return -1;
  if (*last && json_equal(*last, block)) {
    json_decref(block);
    return json_object_set_new(json_array_get(blocks, json_array_size(blocks) - 1), "count",
                               json_integer(++*count));
  }
  json_t *entry = json_copy(block);
  json_decref(*last);
  *last = block;
  *count = 1;
  if (entry == NULL || json_object_set_new(entry, "count", json_integer(1)) != 0) {
    json_decref(entry);
    return -1;
  }
  return json_array_append_new(blocks, entry);
}

static json_t *blocks_json(const moe_model_config *m) {
  json_t *blocks = json_array(), *last = NULL;
  int failed = blocks == NULL ? -1 : 0, count = 0;
  for (int32_t i = 0; !failed && i < m->n_blocks; i++)
    failed = add_block(blocks, &last, &count, block_json(&m->blocks[i]));
  json_decref(last);
  if (!failed) return blocks;
  json_decref(blocks);
  return NULL;
}

char *moe_model_json(moe_ctx *ctx, const moe_model_config *m) {
  json_t *json = json_pack("{si si si sf sb so}", "vocab", m->vocab, "hidden", m->hidden,
                           "max_positions", m->max_positions, "norm_eps", m->norm_eps,
                           "tie_embeddings", m->tie_embeddings, "blocks", blocks_json(m));
  char *dump = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  if (dump == NULL) {
    moe_fail(ctx, MOE_MEMORY, "the model's description finds no memory");
    return NULL;
  }
  char *text = moe_strdup(ctx, dump);
  free(dump);
  return text;
}
