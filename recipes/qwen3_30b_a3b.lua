-- Qwen3-30B-A3B: 30.5B parameters, 3.4B active, on 16 devices. The heads are
-- together twice as wide as the residual stream.
local moe = require "moelua"

return {
  model = moe.models.qwen3_moe {
    layers = 48, hidden = 2048, heads = 32, kv_heads = 4, head_dim = 128,
    experts = 128, topk = 8, ffn = 768,
    vocab = 151936, max_positions = 32768, hf_aux_coef = 0.001,
  },
  layout = { pp = 2, ep = 8 },
  schedule = { global_batch = 256, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 3e-4, min = 3e-5, warmup = 500 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/qwen3_30b_a3b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
