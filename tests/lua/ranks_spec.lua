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

  it("train as one, tell once, save and resume", function()
    local folder, one = prepared(), support.folder()
    local path = folder .. "/r.lua"
    assert.equal(0, (support.shell(("%s %s checkpoint.dir=%s/run"):format(
      support.quote(support.program), path, one))))
    local status, out, err = run(2, path .. " schedule.steps=3", folder)
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

  it("refuse what does not divide, and axes that are not there", function()
    local folder = prepared()
    local status, out, err = run(3, folder .. "/r.lua", folder)
    assert.equal(2, status, out .. err)
    assert.equal(1, select(2, (out .. err):gsub("global_batch: 8", "")))
    status, out, err = run(2, folder .. "/r.lua layout.pp=2", folder)
    assert.equal(1, status, out .. err)
    assert.is_truthy((out .. err):find("layout.pp: 2", 1, true))
    support.remove(folder)
  end)
end)
