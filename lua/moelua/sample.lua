-- Owns the continuation of a prompt by a trainer's model.  Which token is
-- drawn depends only on (seed, position, logits): the same step of the same
-- run writes the same text.
local ffi = require "ffi"

local sample = {}

local GOLDEN = 0x9E3779B97F4A7C15ULL

-- splitmix64's finaliser
local function mix(x)
  x = bit.bxor(x, bit.rshift(x, 30)) * 0xBF58476D1CE4E5B9ULL
  x = bit.bxor(x, bit.rshift(x, 27)) * 0x94D049BB133111EBULL
  return bit.bxor(x, bit.rshift(x, 31))
end

-- uniform(seed, index) in [0, 1)
function sample.uniform(seed, index)
  local x = mix(mix(ffi.cast("uint64_t", seed) + GOLDEN)
    + ffi.cast("uint64_t", index) * GOLDEN)
  return tonumber(bit.rshift(x, 11)) * 2 ^ -53
end

local function argmax(logits, n)
  local best = 0
  for i = 1, n - 1 do
    if logits[i] > logits[best] then best = i end
  end
  return best
end

-- pick(logits, n, temperature, u) -> index from 0; u in [0, 1)
function sample.pick(logits, n, temperature, u)
  local best = argmax(logits, n)
  if temperature <= 0 then return best end
  local top, total = logits[best], 0
  for i = 0, n - 1 do
    total = total + math.exp((logits[i] - top) / temperature)
  end
  local left = u * total
  for i = 0, n - 1 do
    left = left - math.exp((logits[i] - top) / temperature)
    if left < 0 then return i end
  end
  return best
end

-- run(trainer, tokenizer, { prompt =, tokens =, temperature =, seed = })
-- -> text after the prompt | nil, message, code. Ends early at the tokenizer's
-- end of document. Positions past S see the last S tokens.
function sample.run(trainer, tokenizer, options)
  local ids, message, code = tokenizer:encode(options.prompt,
    { special = true })
  if not ids then return nil, message, code end
  if #ids == 0 then ids[1] = tokenizer:eod() or 0 end
  local made, limit = {}, math.min(tokenizer:vocab(), trainer.vocab)
  for i = 1, options.tokens do
    local first = math.max(1, #ids - trainer.seq + 1)
    local window = {}
    for at = first, #ids do window[#window + 1] = ids[at] end
    local logits
    logits, message, code = trainer:logits(window)
    if not logits then return nil, message, code end
    local id = sample.pick(logits, limit, options.temperature,
      sample.uniform(options.seed, i))
    if id == tokenizer:eod() then break end
    ids[#ids + 1], made[i] = id, id
  end
  return tokenizer:decode(made)
end

return sample
