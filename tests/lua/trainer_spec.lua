-- The trainer object over the real library.
local ffi = require "ffi"
local moe = require "moelua"
local selftest = require "moelua.selftest"
local support = require "support"

if not support.has("moe_trainer_save") then
  describe("trainer", function() pending("the library has no trainer yet") end)
  return
end

describe("trainer", function()
  local context, trainer, tokens, labels
  before_each(function()
    context = assert(moe.context { threads = 1 })
    trainer = assert(context:trainer(selftest.small_config()))
    tokens, labels = {}, {}
    for i = 1, 4 * 32 do
      tokens[i], labels[i] = i * 7 % 64, (i + 1) * 7 % 64
    end
  end)
  after_each(function()
    trainer:close()
    context:close()
  end)

  it("steps on tables, rows or arrays alike", function()
    local a = assert(trainer:gradients(tokens, labels))
    local rows = {}
    for b = 1, 4 do
      rows[b] = { unpack(tokens, 32 * b - 31, 32 * b) }
    end
    local b = assert(trainer:gradients(rows, ffi.new("int32_t[128]", labels)))
    assert.equal(a.loss, b.loss)
    local step = assert(trainer:step(tokens, labels))
    assert.equal(1, step.step)
    assert.equal(128, step.tokens)
    assert.equal(a.loss, step.loss)
    assert.equal("experts", step.parts[6].name)
    assert.same({ 1, 4 }, { trainer:state().step, trainer:state().cursor })
  end)

  it("checks what it is given, at the caller's line", function()
    for pattern, call in pairs {
      ["expected 128 tokens"] = function()
        trainer:step({ 1, 2 }, { 1, 2 })
      end,
      ["item 1 is not an integer (x)"] = function()
        trainer:step({ "x" }, labels)
      end,
      ["int32_t[n]"] = function()
        trainer:step(ffi.new("float[128]"), labels)
      end,
      ["did you mean 'all'?"] = function()
        trainer:logits({ 1 }, { al = true })
      end,
      ["did you mean 'exp_avg'?"] = function()
        trainer:read("embed", "exp_agv")
      end,
      ["unknown option; did you mean 'seq'?"] = function()
        context:trainer { seqq = 1 }
      end,
    } do
      local ok, message = pcall(call)
      assert.is_false(ok)
      assert.is_truthy(message:find(pattern, 1, true), message)
      assert.is_truthy(message:find("trainer_spec.lua", 1, true), message)
    end
  end)

  it("reports an invalid configuration as the world's fault", function()
    local config = selftest.small_config()
    config.model.blocks[1].heads = 3
    local other, message, code = context:trainer(config)
    assert.is_nil(other)
    assert.equal("invalid", code)
    assert.is_truthy(message:find("heads", 1, true), message)
  end)

  it("reads and writes parameters by name", function()
    local params = assert(trainer:params())
    assert.is_true(#params > 10)
    local first = params[1]
    local values, n = assert(trainer:read(first.name))
    assert.equal(first.elements, n)
    values[0] = 0.5
    assert(trainer:write(first.name, values))
    assert.equal(0.5, (trainer:read(first.name))[0])
    local list = {}
    for i = 1, n do list[i] = 0.25 end
    assert(trainer:write(first.name, list))
    assert.equal(0.25, (trainer:read(first.name))[n - 1])
    assert.is_false(pcall(trainer.write, trainer, first.name, { 1 }))
    local none, message, code = trainer:read(first.name .. "x")
    assert.is_nil(none)
    assert.equal("notfound", code)
    assert.is_truthy(message:find(first.name, 1, true), message)
  end)

  it("evaluates and gives logits that agree with the loss", function()
    local result = assert(trainer:eval(tokens, labels, 1))
    local row = { unpack(tokens, 1, 32) }
    local logits, rows, V = assert(trainer:logits(row, { all = true }))
    assert.same({ 32, 64 }, { rows, V })
    local sum = 0
    for t = 0, 31 do
      local total, top = 0, -math.huge
      for v = 0, 63 do top = math.max(top, logits[t * 64 + v]) end
      for v = 0, 63 do total = total + math.exp(logits[t * 64 + v] - top) end
      sum = sum + top + math.log(total) - logits[t * 64 + labels[t + 1]]
    end
    assert.is_true(math.abs(sum - result.loss_sum) < 1e-3 * sum)
    assert.equal(32, result.tokens)
    local last = assert(trainer:logits(row))
    for v = 0, 63 do assert.equal(logits[31 * 64 + v], last[v]) end
  end)

  it("saves and loads, and then gives the same step", function()
    local folder = support.folder()
    assert(trainer:step(tokens, labels))
    assert(trainer:save(folder, { keep = 1, meta = "{}" }))
    local after = assert(trainer:step(tokens, labels))
    local other = assert(context:trainer(selftest.small_config()))
    assert(other:load(folder))
    assert.equal(1, other:state().step)
    assert.equal(after.loss, assert(other:step(tokens, labels)).loss)
    other:close()
    local path = assert(context:latest_checkpoint(folder))
    assert.is_truthy(path:find("step-00000001", 1, true), path)
    support.remove(folder)
    local none, _, code = trainer:load(folder)
    assert.is_nil(none)
    assert.equal("notfound", code)
  end)

  it("lives as long as anyone needs it", function()
    context:close()
    assert(trainer:step(tokens, labels))
    collectgarbage()
    assert.is_truthy(tostring(trainer):find("step 1", 1, true))
  end)

  it("allocates nothing in steady steps", function()
    for _ = 1, 2 do assert(trainer:step(tokens, labels)) end
    local before = context:memory().count
    for _ = 1, 3 do assert(trainer:step(tokens, labels)) end
    assert.equal(before, context:memory().count)
  end)
end)
