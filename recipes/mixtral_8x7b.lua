-- Mixtral-8x7B: 46.7B parameters, 12.9B active. The layout keeps each layer's
-- experts inside a node of 8 devices; 64 devices.
local moe = require "moelua"

return {
  model = moe.models.mixtral {
    layers = 32, hidden = 4096, heads = 32, kv_heads = 8, head_dim = 128,
    experts = 8, topk = 2, ffn = 14336,
    vocab = 32000, max_positions = 32768, hf_aux_coef = 0.02,
  },
  layout = { tp = 2, pp = 4, etp = 1, ep = 8 },
  dispatch = { kind = "alltoall", capacity_factor = 1 },
  schedule = { global_batch = 256, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 3e-4, min = 3e-5, warmup = 500 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/mixtral_8x7b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
