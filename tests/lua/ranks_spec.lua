-- The program under mpirun.
local support = require "support"

local MPIRUN = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
  .. "ASAN_OPTIONS=detect_leaks=0 " -- Open MPI's plugins leak
  .. "OMPI_MCA_mpi_yield_when_idle=1 mpirun --oversubscribe --bind-to none "

-- -> status, stdout, stderr
local function run(ranks, arguments, folder)
  return support.shell(("%s-n %d %s %s checkpoint.dir=%s/run"):format(MPIRUN,
    ranks, support.quote(support.program), arguments, folder))
end

local RECIPE = [[
local moe = require "moelua"
return {
  model = moe.models.mixtral { layers = 2, hidden = 32, heads = 4,
    kv_heads = 2, ffn = 32, experts = 4, topk = 2, vocab = 260,
    max_positions = 32 },
  schedule = { global_batch = 8, micro_batch = 2, steps = 6 },
  optimizer = moe.adamw { lr = moe.constant { peak = 1e-2 }, clip = 1 },
  data = { train = "PREFIX", seq = 32 },
  checkpoint = { every = 3 },
  log = { jsonl = true, every = 1 },
}
]]

-- A folder with r.lua and the token files it reads.
local function prepared()
  local folder = support.folder()
  support.write(folder .. "/text", ("a few words to learn, "):rep(200))
  assert.equal(0, (support.shell(("%s data prepare --tokenizer bytes --out %s/t"
    .. " %s/text"):format(support.quote(support.program), folder, folder))))
  support.write(folder .. "/r.lua", (RECIPE:gsub("PREFIX", folder .. "/t")))
  return folder
end

local function losses(folder)
  local list = {}
  local text = support.read(folder .. "/run/metrics.jsonl")
  for loss in text:gmatch('"loss":([%d.eE+-]+)') do
    list[#list + 1] = tonumber(loss)
  end
  return list
end

describe("several ranks", function()
  if support.shell(MPIRUN .. "-n 1 true") ~= 0
    or not require("moelua.sys").exists(
      support.program:match("^(.*)/") .. "/libmoelua_mpi.so") then
    return pending("no MPI here")
  end

  it("train as one, tell once, save, and resume in another layout", function()
    local folder, one = prepared(), support.folder()
    local path = folder .. "/r.lua"
    assert.equal(0, (support.shell(("%s %s checkpoint.dir=%s/run"):format(
      support.quote(support.program), path, one))))
    local status, out, err = run(2, path .. " layout.pp=2 schedule.steps=3",
      folder)
    assert.equal(0, status, out .. err)
    status, out, err = run(4, path .. " layout.tp=2 layout.cp=2 layout.ep=4 "
      .. "layout.etp=1", folder)
    assert.equal(0, status, out .. err)
    assert.equal(1, select(2, (out .. err):gsub("step 6/6", "")))
    local alone, together = losses(one), losses(folder)
    assert.equal(6, #alone)
    assert.equal(6, #together)
    for i = 1, 6 do
      assert.is_true(math.abs(alone[i] - together[i]) < 1e-5 * alone[i])
    end
    support.remove(folder)
    support.remove(one)
  end)

  -- Runs the recipe on ranks after `code`, which may change `recipe` and
  -- knows `rank`. -> status, all output
  local function with(count, code)
    local folder = prepared()
    local text = support.read(folder .. "/r.lua")
    support.write(folder .. "/r.lua", (text:gsub("\nreturn {",
      "\nlocal rank = tonumber(os.getenv \"OMPI_COMM_WORLD_RANK\")"
      .. "\nlocal recipe = {")) .. code .. "\nreturn recipe\n")
    local status, out, err = run(count, folder .. "/r.lua", folder)
    support.remove(folder)
    return status, out .. err
  end

  local function times(expected, text, pattern)
    local _, n = text:gsub(pattern, "")
    assert.equal(expected, n, pattern .. "\n" .. text)
  end

  -- Puts code before the trainer's third step on rank 1.
  local function third_step(code)
    return ([[
if rank == 1 then
  local trainer = require "moelua.trainer"
  local step, n = trainer.step, 0
  function trainer.step(...)
    n = n + 1
    if n == 3 then %s end
    return step(...)
  end
end]]):format(code)
  end

  it("tell once what all of them find", function()
    local status, out = with(4, "recipe.schedule.steps = 0")
    assert.equal(2, status, out)
    times(1, out, "schedule.steps: ")
    times(0, out, "moelua: rank %d")
    status, out = with(4, "recipe.data.train = '/nonexistent'")
    assert.equal(2, status, out)
    times(1, out, "data.train: ")
    times(0, out, "moelua: rank %d")
  end)

  it("tell once what one of them finds before it begins", function()
    local status, out = with(4, "if rank == 3 then recipe.depth = 1 end")
    assert.equal(2, status, out)
    times(1, out, "moelua: rank 3: ")
    times(1, out, "depth: ")
    status, out = with(4, "if rank == 3 then recipe.data.train = "
      .. "'/nonexistent' end")
    assert.equal(2, status, out)
    times(1, out, "moelua: rank 3 %(tp 0, cp 0, dp 3, pp 0%): data.train: ")
    times(1, out, "moelua: ")
  end)

  it("tell once what one of them finds later", function()
    local status, out = with(2, third_step "return nil, 'no luck', 'io'")
    assert.equal(1, status, out)
    times(1, out, "moelua: rank 1 %(tp 0, cp 0, dp 1, pp 0%): no luck")
    times(1, out, "no luck")
  end)

  it("end when one does not come, and say which", function()
    local status, out = with(4, "recipe.comm = { timeout = 1 }\n"
      .. third_step "require('moelua.sys').sleep(300)")
    assert.equal(1, status, out)
    times(1, out, "has waited 1 s in ")
    times(1, out, "\nrank 1 %(tp 0, cp 0, dp 1, pp 0%) is in no transfer")
  end)

  it("end when one dies, and say which", function()
    local status, out = with(4, third_step [[
      os.execute("kill -9 " .. require("ffi").C.getpid())]])
    assert.are_not.equal(0, status, out)
    assert.is_truthy(out:find("rank 1 .*signal 9"), out)
  end)

  it("refuse what does not divide", function()
    local folder = prepared()
    local status, out, err = run(3, folder .. "/r.lua", folder)
    assert.equal(2, status, out .. err)
    assert.equal(1, select(2, (out .. err):gsub("global_batch: 8", "")))
    support.remove(folder)
  end)
end)
