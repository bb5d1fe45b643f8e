-- Qwen1.5-MoE-A2.7B: 14.3B parameters, 2.7B active, on 8 devices. 60 experts
-- divide over 4 devices, not over 8.
local moe = require "moelua"

return {
  model = moe.models.qwen2_moe {
    layers = 24, hidden = 2048, heads = 16, kv_heads = 16, head_dim = 128,
    experts = 60, topk = 4, ffn = 1408, shared_ffn = 5632,
    vocab = 151936, max_positions = 8192, hf_aux_coef = 0.001,
  },
  layout = { pp = 2, ep = 4 },
  schedule = { global_batch = 256, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 3e-4, min = 3e-5, warmup = 500 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/qwen15_moe_a27b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
