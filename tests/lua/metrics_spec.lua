local json = require "moelua.json"
local metrics = require "moelua.metrics"
local support = require "support"

local function step(n)
  return { step = n, loss = 1 / n, aux_loss = 0, z_loss = 0, grad_norm = 1,
    lr = 0.1, tokens = 8, loss_tokens = 8, load_max = 1, routed = 1,
    dropped = 0, seconds = 1, flops = 1,
    parts = { { name = "embed", seconds = 0.5, flops = 0 } } }
end

describe("metrics.jsonl", function()
  local folder, path
  before_each(function()
    folder = support.folder()
    path = folder .. "/metrics.jsonl"
  end)
  after_each(function() support.remove(folder) end)

  local function write(from, to, resumed)
    local writer = assert(metrics.open(path, resumed))
    for n = from, to do assert(writer:write(step(n), { { "extra", n } })) end
    writer:close()
  end

  local function steps()
    local list = {}
    for line in support.read(path):gmatch("([^\n]*)\n") do
      list[#list + 1] = assert(json.decode(line)).step
    end
    return list
  end

  it("has one object a step, with the loss also in hexadecimal", function()
    write(1, 3, 0)
    local line = support.read(path):match("^.-\n(.-)\n")
    local object = assert(json.decode(line))
    assert.equal(2, object.step)
    assert.equal(0.5, object.loss)
    assert.equal("0x1p-1", object.loss_hex)
    assert.equal(2, object.extra)
    assert.equal(0.5, object.part_seconds.embed)
  end)

  it("drops the lines past the resumed step and torn lines", function()
    write(1, 5, 0)
    local file = io.open(path, "ab")
    file:write('{"step":6,"lo')
    file:close()
    write(4, 5, 3)
    assert.same({ 1, 2, 3, 4, 5 }, steps())
    write(6, 6, 5)
    assert.same({ 1, 2, 3, 4, 5, 6 }, steps())
    write(1, 1, 0)
    assert.same({ 1 }, steps())
  end)

  it("says what it cannot write", function()
    local writer, message, code = metrics.open(folder .. "/no/m.jsonl", 0)
    assert.is_nil(writer)
    assert.is_truthy(message:find("/no/m.jsonl", 1, true))
    assert.equal("io", code)
  end)
end)
