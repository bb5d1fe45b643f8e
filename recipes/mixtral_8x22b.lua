-- Mixtral-8x22B: 140.6B parameters, 39.2B active, on 128 devices. The layout
-- is the best one published for folding (arXiv 2504.14960): experts 8-way
-- inside a node although attention is split over tensors only 2-way.
local moe = require "moelua"

return {
  model = moe.models.mixtral {
    layers = 56, hidden = 6144, heads = 48, kv_heads = 8, head_dim = 128,
    experts = 8, topk = 2, ffn = 16384,
    vocab = 32000, max_positions = 65536, hf_aux_coef = 0.001,
  },
  layout = { tp = 2, pp = 8, etp = 1, ep = 8 },
  dispatch = { kind = "alltoall", capacity_factor = 1 },
  schedule = { global_batch = 256, steps = 10000 },
  optimizer = moe.adamw {
    lr = moe.cosine { peak = 3e-4, min = 3e-5, warmup = 500 },
    shard = true,
  },
  data = { train = "data/train", seq = 4096,
    tokenizer = "data/tokenizer.json" },
  checkpoint = { dir = "runs/mixtral_8x22b", every = 500, keep = 3 },
  log = { every = 10, jsonl = true },
  dtype = "bf16",
}
