-- Qwen2-57B-A14B: 57.4B parameters, 14.2B active, on 64 devices. The layout is
-- the best one published for folding (arXiv 2504.14960).
local moe = require "moelua"

return {
  model = moe.models.qwen2_moe {
    layers = 28, hidden = 3584, heads = 28, kv_heads = 4, head_dim = 128,
    experts = 64, topk = 8, ffn = 2560, shared_ffn = 20480,
    vocab = 151936, max_positions = 131072, hf_aux_coef = 0.001,
  },
  layout = { tp = 2, pp = 4, etp = 1, ep = 4 },
  dispatch = { kind = "alltoall", capacity_factor = 1 },
  schedule = { global_batch = 256, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 3e-4, min = 3e-5, warmup = 500 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/qwen2_57b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
