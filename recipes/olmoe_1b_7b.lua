-- OLMoE-1B-7B: 6.9B parameters, 1.3B active, on 8 devices.
local moe = require "moelua"

return {
  model = moe.models.olmoe {
    layers = 16, hidden = 2048, heads = 16, kv_heads = 16, head_dim = 128,
    experts = 64, topk = 8, ffn = 1024,
    vocab = 50304, max_positions = 4096, hf_aux_coef = 0.01, z_coef = 0.001,
  },
  layout = { ep = 8 },
  schedule = { global_batch = 1024, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 4e-4, min = 4e-5, warmup = 2000 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/olmoe_1b_7b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
