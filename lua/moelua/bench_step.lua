-- Owns `moelua bench step`: whole training steps of two models, fp32 and bf16,
-- against the matrix peak of this machine measured between the steps.
-- tests/bench/torch_step.py runs the same models in PyTorch.
local ffi = require "ffi"

local WARMUP, STEPS, PEAK_SECONDS = 2, 8, 0.1

-- A: 8 experts, top-2. B: fine-grained, 64 experts, top-8, a shared expert.
local MODELS = {
  { "A", { experts = 8, topk = 2, ffn = 1024, renormalise = true } },
  { "B", { experts = 64, topk = 8, ffn = 256, renormalise = false,
    shared_ffn = 1024, shared_gate = true } },
}

local function config(block, dtype)
  local b = { heads = 8, kv_heads = 2, head_dim = 64, ffn_kind = "moe",
    rope_theta = 1e6 }
  for key, value in pairs(block) do b[key] = value end
  return {
    model = { vocab = 8192, hidden = 512, max_positions = 512,
      blocks = { b, b, b, b } },
    optimizer = { lr = { kind = "constant", peak = 1e-4 }, clip = 0 },
    seq = 512, micro_batch = 4, global_batch = 4, seed = 1, dtype = dtype,
  }
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function random_batch(n, vocab, seed)
  local tokens, labels = ffi.new("int32_t[?]", n), ffi.new("int32_t[?]", n)
  for i = 0, n - 1 do
    seed = (seed * 1103515245 + 12345) % 2147483648
    tokens[i] = math.floor(seed / 65536) % vocab
  end
  for i = 0, n - 1 do labels[i] = tokens[(i + 1) % n] end
  return tokens, labels
end

-- Steps and peaks in turn, so that both meet the same neighbours.
local function measure(context, trainer, dtype)
  local runs, rates, peaks = {}, {}, {}
  for i = 1, WARMUP + STEPS do
    local tokens, labels = random_batch(2048, 8192, i)
    local step, message = trainer:step(tokens, labels)
    if not step then return nil, message end
    if i > WARMUP then
      local peak
      peak, message = context:bench_peak(dtype, PEAK_SECONDS)
      if not peak then return nil, message end
      runs[#runs + 1] = step
      rates[#rates + 1] = step.tokens / step.seconds
      peaks[#peaks + 1] = peak
    end
  end
  return { runs = runs, rate = median(rates), best = rates[#rates],
    peak = median(peaks) }
end

local function part_rows(rows, prefix, runs)
  local n = #runs
  for index, part in ipairs(runs[1].parts) do
    local seconds = 0
    for _, step in ipairs(runs) do
      seconds = seconds + step.parts[index].seconds / n
    end
    local name = prefix .. part.name:gsub(" ", "_")
    rows[#rows + 1] = { name .. ".seconds", seconds, "s" }
    if part.flops > 0 and seconds > 0 then
      rows[#rows + 1] = { name .. ".flops", part.flops / seconds, "FLOP/s" }
    end
  end
end

local function bench_model(context, name, block, dtype, rows)
  local before = context:memory().bytes
  local trainer, message = context:trainer(config(block, dtype))
  if not trainer then return nil, message end
  local bytes = context:memory().bytes - before
  local result
  result, message = measure(context, trainer, dtype)
  trainer:close()
  if not result then return nil, message end
  local prefix = ("%s.%s."):format(name, dtype)
  local per_token = result.runs[1].flops / result.runs[1].tokens
  local function add(key, value, unit)
    rows[#rows + 1] = { prefix .. key, value, unit }
  end
  add("tokens_per_second", result.rate, "tok/s")
  add("tokens_per_second_best", result.best, "tok/s")
  add("flop_per_token", per_token, "FLOP")
  add("flops", per_token * result.rate, "FLOP/s")
  add("peak", result.peak, "FLOP/s")
  add("share_of_peak", per_token * result.rate / result.peak, "")
  add("memory", bytes, "B")
  add("loss", result.runs[#result.runs].loss, "")
  part_rows(rows, prefix, result.runs)
  return true
end

return function(context, say)
  local rows = {}
  for _, model in ipairs(MODELS) do
    for _, dtype in ipairs { "f32", "bf16" } do
      say(("step, model %s, %s"):format(model[1], dtype))
      local ok, message = bench_model(context, model[1], model[2], dtype, rows)
      if not ok then return nil, message end
    end
  end
  return rows
end
