-- The training loop over a library that is a table: what it does when.
local json = require "moelua.json"
local support = require "support"

local signal -- what moelua.host.pending answers
package.loaded["moelua.host"] = {
  guard = function() end, pending = function() return signal end,
}

-- The world of one test: calls are noted in `log`, loss of step n is 1/n.
local function fake_world(options)
  local world = { step = 0, saved = options.saved, log = {} }
  local function note(...) world.log[#world.log + 1] = string.format(...) end
  local trainer = { global_batch = 2, share_first = 0, share = 2, seq = 4,
    vocab = 300, micro_batch = 1 }
  function trainer.step(_, tokens)
    if world.step + 1 == options.numeric_at then
      return nil, "the loss is nan", "numeric"
    end
    world.step = world.step + 1
    if world.step == options.signal_at then signal = "interrupt" end
    note("step %d cursor %d", world.step, tokens[0])
    return { step = world.step, loss = 1 / world.step, aux_loss = 0.1,
      z_loss = 0, grad_norm = 1, lr = 0.1, tokens = 8, loss_tokens = 8,
      load_max = 1.5, routed = 10, dropped = 1, seconds = 0.01, flops = 1e6,
      parts = { { name = "embed", seconds = 0.004, flops = 5e5 } } }
  end
  function trainer.eval(_, _, _, n)
    note("eval %d", n)
    return { loss_sum = 3 * n, tokens = n }
  end
  function trainer.state()
    return { step = world.step, cursor = 2 * world.step }
  end
  function trainer.save(_, dir, o)
    note("save %d keep %d", world.step, o.keep)
    assert(json.decode(o.meta), o.meta)
    if options.save_fails then return nil, "no space on " .. dir, "io" end
    world.saved = world.step
    return true
  end
  function trainer.load(_, path)
    note("load %s", path:match("[^/]+$"))
    world.step = world.saved or 100
    return true
  end
  local function loader(_, o)
    note("loader %s %s", o.split, tostring(o.shuffle))
    return { read = function(_, cursor, count, tokens, labels)
      tokens[0], labels[count * 4 - 1] = cursor, 1
      return tokens, labels
    end, epoch_samples = function() return 3 end, close = function() end,
      fingerprint = function() return options.fingerprint or "1" end }
  end
  for _, name in ipairs { "close" } do trainer[name] = function() end end
  local tokenizer = { vocab = function() return options.vocab or 257 end,
    close = function() end }
  local tokens = { close = function() end,
    info = function() return { tokens = 100 } end,
    verify = function() return {} end }
  local context = {
    tokens = function() return tokens end, loader = loader,
    close = function() end, isa = function() return "x" end,
    threads = function() return 1 end, rank = function() return 0, 1 end,
    check_config = function()
      if options.invalid then return nil, "seq: 0 is too small", "invalid" end
      return true
    end,
    trainer = function() return trainer end,
    tokenizer = function() return tokenizer end,
    bench_peak = function() return 1e9 end,
    memory = function() return { peak = 4096 } end,
    latest_checkpoint = function(_, dir)
      if world.saved then return dir .. "/step-1" end
      return nil, "none", "notfound"
    end,
  }
  package.loaded["moelua"] = { context = function() return context end }
  package.loaded["moelua.recipe"] = {
    train_config = function()
      return { global_batch = 2, seq = 4, model = { vocab = 300 } }, {}
    end }
  return world
end

describe("the training loop", function()
  local folder, real, out, err
  local train = require "moelua.train"
  local kept = { package.loaded["moelua"], package.loaded["moelua.recipe"] }

  local function sink(parts)
    return { write = function(self, ...)
      for _, text in ipairs { ... } do parts[#parts + 1] = tostring(text) end
      return self
    end, flush = function() return true end }
  end

  before_each(function()
    folder, signal = support.folder(), nil
    real, out, err = { io.stdout, io.stderr }, {}, {}
  end)
  after_each(function()
    support.remove(folder)
    package.loaded["moelua"], package.loaded["moelua.recipe"] = kept[1], kept[2]
  end)

  local function run(recipe, options, arguments)
    local world = fake_world(options or {})
    out, err = {}, {}
    rawset(io, "stdout", sink(out))
    rawset(io, "stderr", sink(err))
    local ok, status = pcall(train.run, recipe, arguments)
    rawset(io, "stdout", real[1])
    rawset(io, "stderr", real[2])
    assert.is_true(ok, tostring(status))
    return status, table.concat(world.log, "\n"), table.concat(err),
      table.concat(out)
  end

  local function recipe(changes)
    local r = { path = "r.lua", name = "r", seed = 1, dtype = "f32",
      schedule = { steps = 4 }, data = { train = "t", seq = 4,
        tokenizer = "bytes", valid_fraction = 0.1 },
      checkpoint = { dir = folder, every = 3, keep = 2, resume = true },
      eval = { every = 3, batches = 8 },
      log = { every = 2, jsonl = true } }
    for key, value in pairs(changes or {}) do r[key] = value end
    return r
  end

  local function steps()
    local list = {}
    for line in support.read(folder .. "/metrics.jsonl"):gmatch("[^\n]+") do
      list[#list + 1] = assert(json.decode(line)).step
    end
    return list
  end

  it("steps, evaluates, saves when due and at the end", function()
    local status, log, messages, result = run(recipe())
    assert.equal(0, status, messages)
    assert.equal(table.concat({
      "loader train true", "loader valid false",
      "step 1 cursor 0", "step 2 cursor 2", "step 3 cursor 4",
      "eval 2", "eval 1", "save 3 keep 2",
      "step 4 cursor 6", "eval 2", "eval 1", "save 4 keep 2",
    }, "\n"), log)
    assert.same({ 1, 2, 3, 4 }, steps())
    assert.is_truthy(messages:find("step 2/4  loss 0.5000  aux 0.1000", 1,
      true))
    assert.is_nil(messages:find("step 1/4", 1, true))
    assert.is_truthy(messages:find("dropped 10.0 %", 1, true))
    assert.is_truthy(messages:find("held-out loss 3.0000", 1, true))
    assert.is_truthy(result:find("1.0000 -> 0.2500", 1, true))
    assert.is_truthy(result:find("moelua r.lua schedule.steps=8", 1, true))
  end)

  it("continues from the newest checkpoint at its cursor", function()
    run(recipe())
    local status, log = run(recipe { schedule = { steps = 5 } }, { saved = 3 })
    assert.equal(0, status)
    assert.is_truthy(log:find("load " .. folder:match("[^/]+$"), 1, true))
    assert.is_truthy(log:find("\nstep 4 cursor 6\nstep 5 cursor 8", 1, true))
    assert.same({ 1, 2, 3, 4, 5 }, steps())
  end)

  it("names the next command with the same changes", function()
    local _, _, _, result = run(recipe(), {}, { "r.lua", "seed=2",
      "schedule.steps=4", "name=a b" })
    assert.is_truthy(result:find("moelua r.lua seed=2 'name=a b' "
      .. "schedule.steps=8\n", 1, true), result)
  end)

  it("warns when the data are others than before", function()
    run(recipe())
    local _, _, messages = run(recipe { schedule = { steps = 5 } },
      { saved = 4, fingerprint = "2" })
    assert.is_truthy(messages:find("differ from those of the checkpoint", 1,
      true))
  end)

  it("starts anew, or from a named checkpoint, when told", function()
    local checkpoint = { dir = folder, every = 0, resume = false }
    local _, log = run(recipe { checkpoint = checkpoint }, { saved = 2 })
    assert.is_nil(log:find("load ", 1, true))
    assert.same({ 1, 2, 3, 4 }, steps())
    checkpoint.resume = "/elsewhere/other"
    _, log = run(recipe { checkpoint = checkpoint,
      schedule = { steps = 101 } })
    assert.is_truthy(log:find("load other\nstep 101 cursor 200", 1, true))
  end)

  it("has nothing to do when all steps are done", function()
    local status, log, messages = run(recipe(), { saved = 4 })
    assert.equal(0, status)
    assert.is_nil(log:find("step", 1, true))
    assert.is_truthy(messages:find("nothing to do: step 4 of 4", 1, true))
  end)

  it("finishes the step, saves and leaves with 1 at a signal", function()
    local status, log, messages = run(recipe(), { signal_at = 2 })
    assert.equal(1, status)
    assert.is_truthy(log:match("step 2 cursor 2\nsave 2 keep 2$"))
    assert.is_truthy(messages:find("interrupted after step 2; checkpoint saved",
      1, true))
    assert.same({ 1, 2 }, steps())
  end)

  it("saves the last good step when numbers go wrong", function()
    local status, log, messages = run(recipe(), { numeric_at = 3 })
    assert.equal(1, status)
    assert.is_truthy(log:match("step 2 cursor 2\nsave 2 keep 2$"))
    assert.is_truthy(messages:find("step 3: the loss is nan", 1, true))
  end)

  it("reports a checkpoint that cannot be written", function()
    local status, _, messages = run(recipe(), { save_fails = true })
    assert.equal(1, status)
    assert.is_truthy(messages:find("no space on", 1, true))
    assert.same({ 1, 2, 3 }, steps())
  end)

  it("refuses an invalid configuration and too small a vocabulary", function()
    local status, _, messages = run(recipe(), { invalid = true })
    assert.equal(2, status)
    assert.is_truthy(messages:find("seq: 0 is too small", 1, true))
    status, _, messages = run(recipe(), { vocab = 301 })
    assert.equal(2, status)
    assert.is_truthy(messages:find("at least 301", 1, true))
  end)

  it("trains without checkpoints, evaluation and log", function()
    local bare = recipe()
    bare.checkpoint, bare.eval, bare.log = nil, nil, nil
    local status, log, messages = run(bare)
    assert.equal(0, status, messages)
    assert.is_nil(log:find("save", 1, true))
    assert.is_nil(log:find("eval", 1, true))
  end)
end)
