-- Owns the keys of models and blocks: names, types, ranges, defaults, meaning.
-- recipes/README.md is made from these lists.  Relations between keys (heads
-- and kv_heads, topk and experts, ...) are checked by the C library, once for
-- all hosts.
local schema = require "moelua.schema"

local model_keys = {}

model_keys.model = schema.keys {
  { "vocab", "integer", required = true, min = 2,
    doc = "size of the vocabulary V" },
  { "hidden", "integer", required = true, min = 1,
    doc = "width of the residual stream H" },
  { "max_positions", "integer", default = 4096, min = 1,
    doc = "longest sequence the model is made for" },
  { "norm_eps", "number", default = 1e-5, above = 0, max = 0.1,
    doc = "epsilon of the RMS norms" },
  { "tie_embeddings", "boolean", default = false,
    doc = "the output weights are the embedding" },
  { "init_std", "number", default = 0.02, above = 0, max = 10,
    doc = "standard deviation of the initial weights; projections into the "
      .. "residual stream are divided by sqrt(2 * layers)" },
}

model_keys.attention = schema.keys {
  { "heads", "integer", required = true, min = 1, doc = "query heads A" },
  { "kv_heads", "integer", min = 1,
    doc = "key and value heads G, a divisor of heads; default: heads" },
  { "head_dim", "integer", min = 2,
    doc = "width of a head D, even; default: hidden / heads" },
  { "qkv_bias", "boolean", default = false,
    doc = "biases on the query, key and value projections" },
  { "qk_norm", "enum", default = "none", values = { "none", "head", "all" },
    doc = "RMS norm of queries and keys: over each head, over all heads" },
  { "window", "integer", default = 0, min = 0,
    doc = "tokens a query sees, itself included; 0: all before it" },
  { "rope_theta", "number", default = 1e4, above = 1,
    doc = "base of the rotary embedding" },
}

model_keys.ffn = schema.keys {
  { "ffn", "integer", required = true, min = 1,
    doc = "width F of one expert, or of the dense ffn of a dense block" },
  { "shared_ffn", "integer", default = 0, min = 0,
    doc = "width of the shared expert; 0: none" },
  { "shared_gate", "boolean",
    doc = "sigmoid gate on the shared expert; default: false" },
  { "recompute", "enum", default = "none",
    values = { "none", "ffn", "block" },
    doc = "what backward computes again instead of keeping" },
}

model_keys.router = schema.keys {
  { "experts", "integer", required = true, min = 2, doc = "experts E" },
  { "topk", "integer", required = true, min = 1,
    doc = "experts per token K" },
  { "score", "enum", default = "softmax", values = { "softmax", "sigmoid" },
    doc = "how logits become scores" },
  { "renormalise", "boolean", default = false,
    doc = "divide the K scores by their sum; not with topk 1, where the "
      .. "router would get no gradient" },
  { "groups", "integer", default = 0, min = 0,
    doc = "group-limited selection: groups of experts; 0: off" },
  { "topk_groups", "integer", default = 0, min = 0,
    doc = "groups a token may choose from" },
  { "routed_scale", "number", default = 1, above = 0,
    doc = "factor on the scores of a sigmoid router" },
  { "expert_bias", "boolean", default = false,
    doc = "sigmoid only: select by score + bias, balanced without a loss" },
  { "bias_rate", "number", default = 1e-3, min = 0, max = 1,
    doc = "change of the expert bias per step" },
  { "aux_coef", "number", default = 1e-2, min = 0, max = 100,
    doc = "load-balancing loss of each layer; balanced routing costs "
      .. "aux_coef per MoE layer" },
  { "aux_scope", "enum", default = "micro_batch",
    values = { "micro_batch", "sequence", "global" },
    doc = "tokens over which the load is balanced" },
  { "z_coef", "number", default = 0, min = 0, max = 100,
    doc = "router z-loss: mean squared log-sum-exp of the logits" },
}

-- A whole model of one kind of layer, as the families have it.
model_keys.family = schema.keys {
  { "layers", "integer", required = true, min = 1, max = 2 ^ 14,
    doc = "transformer blocks" },
  { "dense_ffn", "integer", min = 1,
    doc = "width of the ffn of dense layers (Hugging Face: "
      .. "intermediate_size); needed when there are dense layers" },
  { "mlp_only_layers", "list", default = {},
    item = { kind = "integer", min = 0 },
    doc = "numbers of layers that are dense, the first is 0" },
  { "decoder_sparse_step", "integer", default = 1, min = 1,
    doc = "every n-th layer has experts, the others are dense" },
  { "hf_aux_coef", "number", min = 0, max = 100,
    doc = "instead of aux_coef: the coefficient as Hugging Face counts it "
      .. "(router_aux_loss_coef); aux_coef = hf_aux_coef * topk / MoE layers" },
}

model_keys.block_kind = schema.keys {
  { "ffn_kind", "enum", values = { "dense", "moe" },
    doc = "default: moe when experts is given, else dense" },
}

return model_keys
