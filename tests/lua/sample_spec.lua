local ffi = require "ffi"
local sample = require "moelua.sample"

describe("sampling", function()
  it("draws numbers that depend on seed and index alone", function()
    local sum, seen = 0, {}
    for i = 1, 10000 do
      local u = sample.uniform(7, i)
      assert.is_true(u >= 0 and u < 1)
      assert.equal(u, sample.uniform(7, i))
      sum, seen[u] = sum + u, true
    end
    assert.is_true(math.abs(sum / 10000 - 0.5) < 0.01)
    assert.are_not.equal(sample.uniform(7, 1), sample.uniform(8, 1))
    local count = 0
    for _ in pairs(seen) do count = count + 1 end
    assert.equal(10000, count)
  end)

  it("follows the softmax at its temperature", function()
    local logits = ffi.new("float[3]", { 0, math.log(2), math.log(5) })
    local counts = { [0] = 0, 0, 0 }
    for i = 1, 8000 do
      local id = sample.pick(logits, 3, 1, sample.uniform(1, i))
      counts[id] = counts[id] + 1
    end
    for id, share in pairs { [0] = 1 / 8, 2 / 8, 5 / 8 } do
      assert.is_true(math.abs(counts[id] / 8000 - share) < 0.02, id)
    end
    assert.equal(2, sample.pick(logits, 3, 0, 0))
    assert.equal(0, sample.pick(logits, 3, 1, 0))
    assert.equal(2, sample.pick(logits, 3, 1, 1 - 2 ^ -53))
  end)

  local function fake(seq)
    local seen = {}
    local trainer = { seq = seq, vocab = 256, seen = seen }
    function trainer.logits(_, ids)
      seen[#seen + 1] = #ids
      local logits = ffi.new("float[?]", 256)
      logits[(ids[#ids] + 1) % 256] = 100
      return logits
    end
    return trainer
  end

  local tokenizer = {
    encode = function(_, text) return { text:byte(1, -1) } end,
    decode = function(_, ids) return string.char(unpack(ids)) end,
    vocab = function() return 257 end,
    eod = function() return 106 end, -- 'j'
  }

  it("continues a prompt within the window and ends at end of document",
    function()
      local trainer = fake(4)
      local options = { prompt = "abc", tokens = 50, temperature = 0.5,
        seed = 1 }
      assert.equal("defghi", sample.run(trainer, tokenizer, options))
      assert.same({ 3, 4, 4, 4, 4, 4, 4 }, trainer.seen)
    end)

  it("starts from end of document where the prompt is empty", function()
    local text = sample.run(fake(8), tokenizer,
      { prompt = "", tokens = 3, temperature = 0, seed = 1 })
    assert.equal("klm", text)
  end)
end)
