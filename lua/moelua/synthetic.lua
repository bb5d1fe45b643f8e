-- Owns made-up tokens with the interface of a loader, for rehearsals: each
-- sequence counts up from a random start by a random small step, so that a
-- model that works learns it within a few steps.
--
-- Invariant: as with the real loader, sample `i` depends on (seed, i) only.
local Synthetic = {}
Synthetic.__index = Synthetic

-- open{seq=, vocab=, seed=}
local function open(options)
  return setmetatable({ seq = options.seq, vocab = options.vocab,
    seed = options.seed or 0 }, Synthetic)
end

-- A number in [0, 2^31) from two.
local function mix(a, b)
  local x = bit.bxor(bit.tobit(a * 69069 % 2 ^ 31), bit.tobit(b * 40503 + 1))
  x = bit.bxor(x, bit.rshift(x, 15)) % 2 ^ 21 * 1103 % 2 ^ 31
  return bit.band(bit.bxor(x, math.floor(x / 2 ^ 13)), 0x7fffffff)
end

-- read(cursor, count, tokens, labels) fills (count, seq) of each
function Synthetic:read(cursor, count, tokens, labels)
  local S, V = self.seq, self.vocab
  for i = 0, count - 1 do
    local r = mix(self.seed + 1, cursor + i)
    local start, step = r % V, math.floor(r / V) % 3 + 1
    for t = 0, S - 1 do
      tokens[i * S + t] = (start + t * step) % V
      labels[i * S + t] = (start + (t + 1) * step) % V
    end
  end
  return tokens, labels
end

function Synthetic:epoch_samples() return 1024 end -- luacheck: no self
function Synthetic:fingerprint() return "synthetic " .. self.seed end
function Synthetic:close() return self end

return { open = open }
