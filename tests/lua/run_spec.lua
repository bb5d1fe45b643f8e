-- `moelua RECIPE.lua` from outside: training, resuming, refusing.
local json = require "moelua.json"
local support = require "support"
local moelua = support.moelua

local RECIPE = [[
local moe = require "moelua"
return {
  model = moe.models.blocks {
    vocab = 257, hidden = 32, max_positions = 32,
    blocks = {
      moe.block { heads = 2, ffn = 64 },
      moe.block { heads = 2, ffn = 32, experts = 4, topk = 2,
        aux_coef = 0.01 },
    },
  },
  schedule = { global_batch = 4, micro_batch = 2, steps = 12 },
  optimizer = moe.adamw { lr = moe.constant { peak = 1e-2 } },
  data = { train = "FOLDER/data", valid_fraction = 0.1, seq = 32 },
  checkpoint = { dir = "FOLDER/run", every = 5, keep = 2 },
  eval = { every = 6, batches = 2 },
  log = { every = 4, jsonl = true, tensorboard = true,
    sample = { every = 6, prompt = "abc", tokens = 8 } },
}
]]

local ready = support.has("moe_trainer_save")
  and pcall(require, "moelua.recipe")

describe("a run", function()
  local folder, recipe

  local function has(text, part)
    assert.is_truthy(text:find(part, 1, true), ("%q is not in %q"):format(part,
      text))
  end

  before_each(function()
    folder = support.folder()
    recipe = folder .. "/r.lua"
    support.write(recipe, (RECIPE:gsub("FOLDER", folder)))
    support.write(folder .. "/text",
      ("abcdefghijklmnopqrstuvwxyz 0123456789\n"):rep(400))
    local status, _, err = moelua { "data", "prepare", "--tokenizer", "bytes",
      "--out", folder .. "/data", folder .. "/text" }
    assert.equal(0, status, err)
  end)
  after_each(function() support.remove(folder) end)

  local function metrics(dir)
    local list = {}
    local text = support.read(dir .. "/metrics.jsonl") or ""
    for line in text:gmatch("([^\n]+)\n") do
      list[#list + 1] = assert(json.decode(line))
    end
    return list
  end

  local function run(...)
    return moelua { recipe, ... }
  end

  it("learns, evaluates, samples, saves and accounts for its time", function()
    if not ready then return pending "the trainer" end
    local status, out, err = run()
    assert.equal(0, status, err)
    local list = metrics(folder .. "/run")
    assert.equal(12, #list)
    assert.is_true(list[12].loss < 0.7 * list[1].loss)
    assert.is_true(math.abs(list[1].loss - math.log(257)) < 0.5)
    assert.is_truthy(list[6].valid_loss and list[12].valid_loss)
    assert.is_nil(list[7].valid_loss)
    assert.equal(128, list[1].tokens)
    has(err, "step 4/12  loss ")
    has(err, "sample at step 6: abc")
    assert.is_nil(err:find("\27", 1, true))
    has(out, "where the time went")
    has(out, "experts")
    has(out, folder .. "/run")
    local _, files = support.shell("ls " .. folder .. "/run")
    has(files, "latest")
    has(files, "events.out.tfevents.")
  end)

  it("stopped by a signal and continued, gives the identical losses",
    function()
      if not ready then return pending "the trainer" end
      local dir = folder .. "/run"
      local status, _, err = support.shell(([[
        %s %s schedule.steps=100000 &
        pid=$!
        for i in $(seq 600); do
          n=$(wc -l 2>/dev/null <%s/metrics.jsonl || echo 0)
          [ "$n" -ge 3 ] && break
          sleep 0.05
        done
        kill -TERM $pid
        wait $pid]]):format(support.program, recipe, dir))
      assert.equal(1, status, err)
      has(err, "checkpoint saved, the same command continues")
      local n = #metrics(dir)
      assert.is_true(n >= 3)
      local steps = "schedule.steps=" .. n + 4
      status, _, err = run(steps)
      assert.equal(0, status, err)
      has(err, ("(step %d)"):format(n))
      local other = folder .. "/other"
      status, _, err = run(steps, "checkpoint.dir=" .. other)
      assert.equal(0, status, err)
      local a, b = metrics(dir), metrics(other)
      assert.equal(n + 4, #a)
      for i = 1, n + 4 do
        assert.equal(i, a[i].step)
        assert.equal(b[i].loss_hex, a[i].loss_hex, "step " .. i)
      end
    end)

  it("again has nothing to do", function()
    if not ready then return pending "the trainer" end
    assert.equal(0, (run("schedule.steps=2")))
    local status, out, err = run("schedule.steps=2")
    assert.same({ 0, "" }, { status, out })
    has(err, "nothing to do")
  end)

  it("refuses an invalid recipe with all its errors", function()
    if not ready then return pending "the trainer" end
    local status, out, err = run("schedule.stepz=3", "data.seq=64")
    assert.same({ 2, "" }, { status, out })
    has(err, "did you mean 'steps'?")
    local code, _, text = run("layout.tp=3")
    assert.is_true(code == 2 or code == 3, text)
    status, out, err = moelua { folder .. "/none.lua" }
    assert.same({ 2, "" }, { status, out })
    has(err, "none.lua")
  end)

  it("reports missing data with status 2", function()
    if not ready then return pending "the trainer" end
    local status, _, err = run("data.train=" .. folder .. "/absent")
    assert.equal(2, status)
    has(err, folder .. "/absent")
  end)

  it("plans, in text and as JSON", function()
    if not ready then return pending "the trainer" end
    local status, out, err = moelua { "plan", recipe, "--json" }
    assert.equal(0, status, err)
    local plan = assert(json.decode(out))
    assert.is_true(plan.fits)
    assert.is_true(plan.total >= plan.weights + plan.optimizer)
    assert.equal(1, plan.ranks)
    status, out = moelua { "plan", recipe }
    assert.equal(0, status)
    has(out, "this machine offers")
  end)

  it("does not start what does not fit, but rehearses it", function()
    if not ready then return pending "the trainer" end
    local big = "recipes/mixtral_8x7b.lua"
    local status, out, err = moelua { big }
    assert.equal(3, status, err)
    has(out, "memory of the fullest device")
    has(err, "--rehearse")
    local small = { moelua { big, "--rehearse",
      "checkpoint.dir=" .. folder .. "/big" } }
    assert.equal(0, small[1], small[3])
  end)
end)
