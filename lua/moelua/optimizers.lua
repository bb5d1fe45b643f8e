-- Owns the optimizer and the curves of its learning rate, as a recipe writes
-- them: functions that tag a table, and the keys they take.
local schema = require "moelua.schema"

local optimizers = {}

-- Steps, or a share of them below 1; the share is turned into steps when the
-- recipe is resolved.
local function read_span(value, path, problems)
  local key = { kind = "number", min = 0, max = 2 ^ 53 }
  local span = schema.value(key, value, path, problems)
  if span and span > 1 and span ~= math.floor(span) then
    problems[#problems + 1] = ("%s: %s is neither whole nor a share below 1")
      :format(path, schema.show(span))
    return nil
  end
  return span
end

local CURVE_KEYS = schema.keys {
  { "kind", "enum", required = true,
    values = { "constant", "cosine", "linear", "wsd" },
    doc = "given by the function: moe.constant, cosine, linear, wsd" },
  { "peak", "number", required = true, above = 0, max = 10,
    doc = "learning rate after the warm-up" },
  { "min", "number", default = 0, min = 0,
    doc = "learning rate at the last step; at most peak" },
  { "warmup", "any", default = 0, read = read_span, type = "steps or share",
    doc = "steps in which the rate rises from 0 to peak; below 1: that share "
      .. "of all steps" },
  { "decay", "any", read = read_span, type = "steps or share",
    doc = "wsd only: the last steps, which fall linearly to min; below 1: "
      .. "that share of all steps; default: 0.1" },
}
optimizers.curve_keys = CURVE_KEYS

-- A learning rate may also be a number: constant.
local function read_rate(value, path, problems)
  if type(value) == "number" then
    value = { kind = "constant", peak = value }
  end
  if type(value) ~= "table" then
    problems[#problems + 1] = ("%s: expected a number or a curve such as "
      .. "moe.cosine{ peak = 3e-4 }, got %s"):format(path, schema.show(value))
    return nil
  end
  local rate = schema.read(CURVE_KEYS, value, path, problems)
  if rate.decay and rate.kind ~= "wsd" then
    problems[#problems + 1] = ("%s.decay: only moe.wsd takes it"):format(path)
  end
  return rate
end

optimizers.keys = schema.keys {
  { "kind", "enum", required = true, values = { "adamw" },
    doc = "given by the function: moe.adamw" },
  { "lr", "any", required = true, read = read_rate,
    type = "number or curve", doc = "the learning rate, e.g. moe.cosine{...}" },
  { "beta1", "number", default = 0.9, min = 0, max = 0.999999,
    doc = "decay of the first moment" },
  { "beta2", "number", default = 0.95, min = 0, max = 0.999999999,
    doc = "decay of the second moment" },
  { "eps", "number", default = 1e-8, min = 1e-30, max = 1,
    doc = "added to the root of the second moment" },
  { "weight_decay", "number", default = 0.1, min = 0, max = 10,
    doc = "decoupled weight decay" },
  { "decay", "list", default = { "matrix", "embedding" },
    item = { kind = "enum",
      values = { "matrix", "embedding", "norm", "bias" } },
    doc = "parameters that decay: matrix, embedding, norm, bias" },
  { "clip", "number", default = 1, min = 0, max = 1e6,
    doc = "largest norm of the gradient; 0: no limit" },
  { "shard", "boolean", default = false,
    doc = "split the optimizer state over the data-parallel ranks (ZeRO-1)" },
}

-- Misuse inside of the table is found when the recipe is read.
local function tagged(name, kind)
  return function(options)
    if type(options) ~= "table" then
      error(("moe.%s: expected a table of options, got %s"):format(name,
        type(options)), 2)
    end
    local out = { kind = kind }
    for key, value in pairs(options) do out[key] = value end
    return out
  end
end

for _, name in ipairs { "adamw", "constant", "cosine", "linear", "wsd" } do
  optimizers[name] = tagged(name, name)
end

return optimizers
