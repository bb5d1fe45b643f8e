-- Owns the self-tests of `moelua doctor`: short, without files of the user.
-- Each returns true, or nil and what went wrong.
local ffi = require "ffi"
local moe = require "moelua"

local selftest = {}

-- Runs f(context, ...) in a context of its own.
local function with_context(options, f)
  local context, message = moe.context(options)
  if not context then return nil, message end
  local ok, result, problem = pcall(f, context)
  context:close()
  if not ok then return nil, tostring(result) end
  return result, problem
end

local function tokenizer_round_trip()
  return with_context({ threads = 1 }, function(context)
    local tokenizer, message = context:tokenizer("bytes")
    if not tokenizer then return nil, message end
    local text = "MoE \0 \195\169 \240\159\152\128"
    local back = tokenizer:decode(tokenizer:encode(text))
    if back ~= text then return nil, "text does not come back" end
    return true
  end)
end

-- Two blocks, four experts, random tokens.
function selftest.small_config()
  local block = { heads = 4, kv_heads = 2, head_dim = 8, ffn_kind = "moe",
    ffn = 32, experts = 4, topk = 2, renormalise = true, aux_coef = 0.01 }
  return {
    model = { vocab = 64, hidden = 32, max_positions = 32,
      blocks = { block, block } },
    optimizer = { lr = { kind = "constant", peak = 1e-2, total = 100 },
      clip = 1 },
    seq = 32, micro_batch = 2, global_batch = 4, seed = 7,
  }
end

-- Tokens that repeat with period 8: easy to learn.
local function periodic_batch(n)
  local tokens, labels = ffi.new("int32_t[?]", n), ffi.new("int32_t[?]", n)
  for i = 0, n - 1 do
    tokens[i] = (i % 8) * 7 % 64
    labels[i] = ((i + 1) % 8) * 7 % 64
  end
  return tokens, labels
end

-- Losses of `steps` steps of the small model.
local function losses(context, steps)
  local trainer, message = context:trainer(selftest.small_config())
  if not trainer then return nil, message end
  local tokens, labels = periodic_batch(4 * 32)
  local list = {}
  for i = 1, steps do
    local step
    step, message = trainer:step(tokens, labels)
    if not step then return nil, message end
    list[i] = step.loss
  end
  return list
end

local function training_learns()
  return with_context({}, function(context)
    local list, message = losses(context, 20)
    if not list then return nil, message end
    if math.abs(list[1] - math.log(64)) > 0.5 then
      return nil, ("first loss %.4f, expected near %.4f"):format(list[1],
        math.log(64))
    end
    if list[20] >= 0.5 * list[1] then
      return nil, ("loss %.4f -> %.4f in 20 steps"):format(list[1], list[20])
    end
    return true
  end)
end

-- The kernels chosen here against the plain C ones.
local function kernels_agree()
  local results = {}
  for _, isa in ipairs { "generic", false } do
    local list, message = with_context({ threads = 1, isa = isa or nil },
      function(context) return losses(context, 3) end)
    if not list then return nil, message end
    results[#results + 1] = list
  end
  for i = 1, 3 do
    local a, b = results[1][i], results[2][i]
    if math.abs(a - b) > 1e-4 * math.abs(a) then
      return nil, ("step %d: loss %.7g and %.7g"):format(i, a, b)
    end
  end
  return true
end

selftest.list = {
  { "tokenizer round trip", tokenizer_round_trip },
  { "a small model learns", training_learns },
  { "kernels agree", kernels_agree },
}

return selftest
