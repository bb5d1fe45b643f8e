-- A small mixture-of-experts model that learns to write King James English,
-- byte by byte, in about three minutes on two cores.
--
--   moelua data prepare kjv        once: makes data/kjv.bin and data/kjv.idx
--   moelua recipes/tiny.lua
local moe = require "moelua"

return {
  model = moe.models.qwen2_moe {
    vocab = 257,                 -- 256 bytes and the end of a document
    hidden = 256,
    layers = 4,
    heads = 4,
    experts = 8,
    topk = 2,                    -- each token is sent to 2 of the 8 experts
    ffn = 256,                   -- width of one expert
    shared_ffn = 256,            -- one more expert that every token visits
    mlp_only_layers = { 0 },     -- the first layer has no experts
    dense_ffn = 768,
    max_positions = 256,
  },

  schedule = { global_batch = 16, micro_batch = 16, steps = 400 },

  optimizer = moe.adamw {
    lr = moe.cosine { peak = 2e-3, min = 2e-4, warmup = 0.05 },
  },

  data = { train = "data/kjv", valid_fraction = 0.02, seq = 256 },

  checkpoint = { dir = "runs/tiny", every = 200, keep = 2 },

  log = {
    every = 10,
    jsonl = true,
    sample = { every = 100, prompt = "In the beginning ", tokens = 128 },
  },

  eval = { every = 100, batches = 8 },
}
