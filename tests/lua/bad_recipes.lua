-- Recipes that are wrong, each with all the errors it must give.  An entry
-- replaces sections of a good recipe (false takes one out); `text` replaces the
-- whole file.  bad_recipes.text(entry) is the file.
local ORDER = { "model", "layout", "dispatch", "schedule", "optimizer", "data",
  "checkpoint", "log", "eval", "seed", "dtype", "compute", "extra" }

local GOOD = {
  model = [[moe.models.mixtral { vocab = 257, hidden = 64, layers = 4,
    heads = 8, kv_heads = 4, ffn = 96, experts = 60, topk = 4 }]],
  schedule = "{ global_batch = 8, micro_batch = 2, steps = 100 }",
  optimizer = "moe.adamw { lr = moe.cosine { peak = 1e-3, warmup = 10 } }",
  data = [[{ train = "data/kjv", seq = 128 }]],
}

-- The good model with keys added; later keys win.
local function model(keys)
  return [[moe.models.mixtral { vocab = 257, hidden = 64, layers = 4,
    heads = 8, kv_heads = 4, ffn = 96, experts = 60, topk = 4, ]] .. keys
    .. " }"
end

-- A model of two blocks; keys go into the second.
local function blocks(keys)
  return [[moe.models.blocks { vocab = 257, hidden = 64, blocks = {
    moe.block { heads = 4, ffn = 128 }, moe.block { ]] .. keys .. " } } }"
end

local function adamw(keys) return "moe.adamw { " .. keys .. " }" end

local list = {
  -- the file
  { "syntax error", text = "return {\n  model = = 3\n}",
    [[FILE:2: unexpected symbol near '=']] },
  { "no table", text = "return 3", "FILE: must return a table, got number" },
  { "undefined variable", text = "local a = 1\nreturn { model = moe.models }",
    "FILE:2: undefined variable 'moe'" },
  { "runtime error", text = "local t = nil\nreturn { x = t.y }",
    "FILE:2: attempt to index local 't' (a nil value)" },
  { "constructor misuse", model = [[moe.models.mixtral "big"]],
    "FILE:3: moe.models.mixtral: expected a table of options, got string" },
  { "unknown word", text = [[return { model = require("moelua").adamv {} }]],
    "FILE:1: moelua has no field 'adamv'; did you mean 'adamw'?" },
  { "empty recipe", text = "return {}",
    "model: is missing (moe.models.mixtral{...} or another family)",
    "schedule: is missing (batches and steps)",
    "optimizer: is missing (moe.adamw{...})",
    "data: is missing (token files and tokenizer)" },
  -- unknown keys, types, names
  { "unknown section", extra = "{}", key = "shedule",
    "shedule: unknown key; did you mean 'schedule'?" },
  { "unknown layout key", layout = [[{ oder = "tp-dp" }]],
    "layout.oder: unknown key; did you mean 'order'?" },
  { "unknown model key", model = model "layer = 3",
    "model.layer: unknown key; did you mean 'layers'?" },
  { "unknown sample key",
    log = [[{ sample = { every = 1, promt = "x", prompt = "" } }]],
    "log.sample.promt: unknown key; did you mean 'prompt'?" },
  { "list part in a table", layout = "{ 2, tp = 1 }",
    "layout.1: unknown key; one of blocks, cp, cp_kind, dp, edp, ep, etp, "
      .. "order, pp, tp" },
  { "text for a number",
    schedule = [[{ global_batch = "8", micro_batch = 2, steps = 100 }]],
    "schedule.global_batch: expected a whole number, got '8'" },
  { "fraction for a whole number",
    schedule = "{ global_batch = 8, micro_batch = 2, steps = 10.5 }",
    "schedule.steps: 10.5 is not a whole number" },
  { "boolean for a table", log = "true",
    "log: expected a table, got true" },
  { "number for a boolean", log = "{ jsonl = 1 }",
    "log.jsonl: expected true or false, got 1" },
  { "not a number", optimizer = adamw "lr = 0/0",
    "optimizer.lr.peak: nan is not a finite number" },
  { "infinite", optimizer = adamw "lr = 1e-3, clip = 1/0",
    "optimizer.clip: inf is not a finite number" },
  { "unknown dtype", dtype = [["bf61"]],
    "dtype: unknown name 'bf61'; did you mean 'bf16'?" },
  { "unknown dispatch", dispatch = [[{ kind = "all2all" }]],
    "dispatch.kind: unknown name 'all2all'; did you mean 'alltoall'?" },
  { "unknown schedule",
    schedule = [[{ kind = "zigzag", global_batch = 8, steps = 1 }]],
    "schedule.kind: unknown name 'zigzag'; one of 1f1b" },
  { "unknown family", model = [[{ family = "mixtrel" }]],
    "model.family: unknown family 'mixtrel'; did you mean 'mixtral'?" },
  { "model is no table", model = "12",
    "model: expected a model such as moe.models.mixtral{...}, got 12" },
  -- missing and empty
  { "missing keys", schedule = "{}",
    "schedule.global_batch: is missing (sequences of one optimizer step, "
      .. "over all ranks)",
    "schedule.steps: is missing (optimizer steps)" },
  { "empty source list", data = "{ train = {}, seq = 128 }",
    "data.train: expected a prefix or a list of { prefix = ..., weight = ... }"
      .. ", got an empty list" },
  { "source without prefix",
    data = "{ train = { { weight = 1 } }, seq = 128 }",
    "data.train[1].prefix: is missing (token files prefix.bin and "
      .. "prefix.idx)" },
  { "negative weight",
    data = [[{ train = { { prefix = "a", weight = -1 } }, seq = 128 }]],
    "data.train[1].weight: -1 must be above 0" },
  { "empty folder name", checkpoint = [[{ dir = "" }]],
    "checkpoint.dir: is empty" },
  -- ranges
  { "no steps", schedule = "{ global_batch = 8, micro_batch = 2, steps = 0 }",
    "schedule.steps: 0 must be at least 1" },
  { "capacity zero", dispatch = "{ capacity_factor = 0 }",
    "dispatch.capacity_factor: 0 must be above 0; leave it out to keep every "
      .. "token" },
  { "capacity negative", dispatch = "{ capacity_factor = -1.5 }",
    "dispatch.capacity_factor: -1.5 must be above 0; leave it out to keep "
      .. "every token" },
  { "capacity absurd", dispatch = "{ capacity_factor = 1e9 }",
    "dispatch.capacity_factor: 1e+09 is outside 0.01 .. 60 (1 is an even load, "
      .. "the number of experts keeps every token); 0 is dropless" },
  { "pad without capacity", dispatch = "{ pad = true }",
    "dispatch.pad: there is no capacity to pad to; set capacity_factor" },
  { "negative window", model = model "window = -1",
    "model.window: -1 must be at least 0" },
  { "huge vocabulary", model = model "vocab = 1e12",
    "model.vocab: 1e+12 must be at most 2147483647" },
  { "rate zero", optimizer = adamw "lr = 0",
    "optimizer.lr.peak: 0 must be above 0" },
  { "beta of one", optimizer = adamw "lr = 1e-3, beta2 = 1",
    "optimizer.beta2: 1 must be at most 0.999999999" },
  -- relations inside a model
  { "topk above experts", model = model "topk = 61",
    "model.topk: 61 of 60 experts; it may be 1 .. 60" },
  { "topk one, renormalised", model = model "topk = 1",
    "model.renormalise: with topk 1 the one probability is always p / p = 1, "
      .. "so the router gets no gradient; renormalise off or topk 2" },
  { "kv heads", model = model "kv_heads = 3",
    "model.kv_heads: heads 8 is not a multiple of kv_heads 3; kv_heads: "
      .. "1 2 4 8" },
  { "odd head_dim", model = model "head_dim = 7",
    "model.head_dim: 7 is odd, but the rotary embedding turns pairs; 6 or 8" },
  { "head_dim not whole", model = model "hidden = 100",
    "model.head_dim: is missing, and hidden 100 / heads 8 is not whole" },
  { "dense width missing", model = model "mlp_only_layers = { 0 }",
    "model.dense_ffn: is missing, but layer 0 is dense" },
  { "dense layer outside", model = model
      "dense_ffn = 128, mlp_only_layers = { 4 }",
    "model.mlp_only_layers[1]: 4, but the last layer is 3" },
  { "two coefficients", model = model "aux_coef = 0.1, hf_aux_coef = 0.1",
    "model.hf_aux_coef: give either this or aux_coef" },
  { "gate without expert", model = model "shared_gate = true",
    "model.shared_gate: there is no shared expert to gate; set shared_ffn" },
  { "bias with softmax", model = model "expert_bias = true",
    "model.expert_bias: needs sigmoid scores" },
  { "groups", model = model "groups = 7, topk_groups = 2",
    "model.groups: 60 experts do not divide into 7 groups; groups: "
      .. "1 2 3 4 5 6 10 12 15 20 30 60" },
  { "dense block with topk",
    model = blocks [[ffn_kind = "dense", heads = 4, ffn = 64, topk = 2]],
    "model.blocks[2].topk: a dense block has no experts" },
  { "block without heads", model = blocks "ffn = 64",
    "model.blocks[2].heads: is missing (query heads A)" },
  { "block relation", model = blocks
      "heads = 4, kv_heads = 4, head_dim = 5, ffn = 64",
    "model.blocks[2].head_dim: 5 is odd, but the rotary embedding turns pairs; "
      .. "4 or 6" },
  { "no blocks",
    model = "moe.models.blocks { vocab = 257, hidden = 64, blocks = {} }",
    "model.blocks: expected a list of blocks, got none" },
  -- relations with the layout
  { "60 experts on ep 8", layout = "{ ep = 8 }",
    "model.experts: 60 / ep 8 is not whole; ep: 1 2 3 4 5 6 10 12 15 20 30 60, "
      .. "or experts: 56 or 64",
    "schedule.global_batch: 8 is not a multiple of micro_batch 2 * dp 8 = 16; "
      .. "16" },
  { "heads on tp", layout = "{ tp = 16, etp = 1 }",
    "model.heads: 8 / tp 16 is not whole; tp: 1 2 4 8, or heads: 16" },
  { "dense width on tp",
    model = model "dense_ffn = 130, mlp_only_layers = { 0 }",
    layout = "{ tp = 4, etp = 1 }",
    "model.dense_ffn: 130 / tp 4 is not whole; tp: 1 2 5 10 13 26 65 130, or "
      .. "dense_ffn: 128 or 132" },
  { "layers on stages", layout = "{ pp = 3 }",
    "layout.pp: 4 blocks / (pp 3 * chunks 1 = 3) is not whole; pp * chunks: "
      .. "1 2 4, or list layout.blocks" },
  { "a list of other length", layout = "{ pp = 2, blocks = { 1, 2, 1 } }",
    "layout.blocks: 3 numbers, but pp * chunks = 2 stages" },
  { "a list of another sum", layout = "{ pp = 2, blocks = { 1, 2 } }",
    "layout.blocks: they add up to 3, the model has 4 blocks; e.g. 3 instead "
      .. "of 2 for stage 1" },
  { "a list with a half", layout = "{ pp = 2, blocks = { 1.5, 2.5 } }",
    "layout.blocks[1]: 1.5 is not a whole number",
    "layout.blocks[2]: 2.5 is not a whole number" },
  { "a group without chunks",
    schedule = "{ group = 2, global_batch = 8, steps = 90 }",
    "schedule.group: 2, but there is one chunk; it needs chunks above 1" },
  { "chunks without pp",
    schedule = "{ chunks = 2, global_batch = 8, steps = 90 }",
    "schedule.chunks: 2 virtual stages need pp above 1" },
  { "order with an unknown axis", layout = [[{ order = "tp-cp-xp-dp-pp" }]],
    'layout.order: unknown axis "xp" in "tp-cp-xp-dp-pp"; axes are tp cp ep dp '
      .. "pp" },
  { "order twice", layout = [[{ order = "tp-tp-cp-ep-dp-pp" }]],
    'layout.order: "tp-tp-cp-ep-dp-pp" names tp twice' },
  { "order lacks ep", layout = [[{ ep = 4, order = "tp-cp-dp-pp" }]],
    'layout.order: "tp-cp-dp-pp" lacks ep, but ep is 4; e.g. '
      .. '"tp-cp-ep-dp-pp"' },
  { "stages differ",
    layout = [[{ tp = 2, cp = 2, dp = 2, pp = 2, etp = 1, ep = 4, edp = 2,
      order = "tp-pp-cp-ep-dp" }]],
    'layout.order: "tp-pp-cp-ep-dp" has 2 ranks left of pp in the attention '
      .. "view and 1 in the MoE view (dp 2, edp 2), so their stages differ; "
      .. "put pp last, or make the two numbers equal" },
  { "views of different size", layout = "{ dp = 4, edp = 2 }",
    "layout.edp: 2, but 4 ranks / (etp 1 * ep 1 * pp 1) = 4; leave edp out or "
      .. "use 2 ranks" },
  { "zig-zag sequence", layout = "{ cp = 3 }",
    "data.seq: 128 is not a multiple of cp 3 * lcm(2, tp 1) = 6; 126 or "
      .. "132" },
  -- data, batches, curves
  { "sequence too long", data = [[{ train = "x", seq = 40000 }]],
    "data.seq: 40000 tokens, but model.max_positions is 32768" },
  { "batch not whole",
    schedule = "{ global_batch = 7, micro_batch = 2, steps = 100 }",
    "schedule.global_batch: 7 is not a multiple of micro_batch 2 * dp 1 = 2; "
      .. "6 or 8" },
  { "warm-up too long", schedule = "{ global_batch = 8, steps = 9 }",
    "optimizer.lr.warmup: 10 steps, but there are only 9" },
  { "warm-up neither steps nor share",
    optimizer = adamw "lr = moe.linear { peak = 1e-3, warmup = 10.5 }",
    "optimizer.lr.warmup: 10.5 is neither whole nor a share below 1" },
  { "minimum above peak",
    optimizer = adamw "lr = moe.linear { peak = 1e-3, min = 1e-2 }",
    "optimizer.lr.min: 0.01 is outside 0 .. 0.001" },
  { "decay of a cosine",
    optimizer = adamw "lr = moe.cosine { peak = 1e-3, decay = 5 }",
    "optimizer.lr.decay: only moe.wsd takes it" },
  { "decay too long",
    optimizer = adamw "lr = moe.wsd { peak = 1e-3, warmup = 60, decay = 50 }",
    "optimizer.lr.decay: 50 steps; it may be 1 .. 40 (100 steps, 60 of them "
      .. "warm-up)" },
  { "unknown decay class",
    optimizer = adamw [[lr = 1e-3, decay = { "martix" }]],
    "optimizer.decay[1]: unknown name 'martix'; did you mean 'matrix'?" },
  { "vocabulary below the bytes", model = model "vocab = 256",
    "model.vocab: 256, but the byte tokenizer has 257 ids" },
  { "mask outside", data = [[{ train = "x", seq = 128, mask_id = 257 }]],
    "data.mask_id: 257, but the vocabulary ends at 256" },
  { "nothing to evaluate on", eval = "{ every = 10 }",
    "eval: there is nothing to evaluate on; set data.valid or "
      .. "data.valid_fraction" },
  { "two validation sets",
    data = [[{ train = "x", valid = "y", valid_fraction = 0.1, seq = 128 }]],
    "data.valid_fraction: give either this or data.valid" },
  { "metrics without a folder", log = "{ jsonl = true }",
    "log.jsonl: needs checkpoint.dir, where it is written" },
  { "resume with a number", checkpoint = [[{ dir = "x", resume = 3 }]],
    "checkpoint.resume: expected true, false or the path of a checkpoint, "
      .. "got 3" },
  { "asynchronous saves", checkpoint = [[{ dir = "x", async = true }]],
    "checkpoint.async: expected false (saves are synchronous in this "
      .. "version), got true" },
  -- all at once, across sections
  { "many errors", model = model "topk = 99",
    layout = [[{ order = "tp-zz" }]], seed = "-1", dtype = [["f16"]],
    dispatch = [[{ kid = "auto" }]],
    "dispatch.kid: unknown key; did you mean 'kind'?",
    "seed: -1 must be at least 0",
    "dtype: unknown name 'f16'; did you mean 'bf16'?",
    "model.topk: 99 of 60 experts; it may be 1 .. 60",
    'layout.order: unknown axis "zz" in "tp-zz"; axes are tp cp ep dp pp' },
}

local bad_recipes = { list = list }

function bad_recipes.text(entry)
  if entry.text then return entry.text end
  local lines = { 'local moe = require "moelua"', "return {" }
  for _, section in ipairs(ORDER) do
    local text = entry[section]
    if text == nil then text = GOOD[section] end
    if text then
      lines[#lines + 1] = ("%s = %s,"):format(
        section == "extra" and entry.key or section, text)
    end
  end
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n")
end

return bad_recipes
