-- Owns `moelua bench` and the list of what it measures.  A benchmark is a
-- function(context, say) -> rows { name, value, unit }; say(text) is progress.
-- Another one: add it to `list`, or name the module that returns the function.
local cli = require "moelua.cli"
local json = require "moelua.json"
local near = require "moelua.near"
local ranks = require "moelua.ranks"
local report = require "moelua.report"

local bench = {}

local function peak(context, say)
  local rows = {}
  for _, dtype in ipairs { "f32", "bf16" } do
    say("matrix peak, " .. dtype)
    local flops, message = context:bench_peak(dtype, 0.5)
    if not flops then return nil, message end
    rows[#rows + 1] = { "peak_" .. dtype, flops, "FLOP/s" }
  end
  return rows
end

-- name, one line of help, function or module name
bench.list = {
  { "peak", "highest FLOP/s of the matrix kernels, by type", peak },
  { "dispatch", "rows to their experts and back, against plain copies; under "
    .. "mpirun also between ranks", "moelua.bench_dispatch" },
  { "step", "training steps of models A and B, share of the peak, parts",
    "moelua.bench_step" },
}

local function find(name)
  for _, entry in ipairs(bench.list) do
    if entry[1] == name then return entry end
  end
end

local function names()
  local list = {}
  for i, entry in ipairs(bench.list) do list[i] = entry[1] end
  return list
end

local function print_list()
  local rows = {}
  for i, entry in ipairs(bench.list) do rows[i] = { entry[1], entry[2] } end
  io.stdout:write(report.table { rows = rows })
  return cli.OK
end

-- Rates and sizes by their scale; small numbers (seconds, shares) as they are.
local function value_text(value, unit)
  if value < 100 then return ("%.4g %s"):format(value, unit) end
  return report.count(value, unit)
end

local function print_rows(rows, context, as_json)
  if as_json then
    local object = { { "threads", context:threads() },
      { "isa", context:isa() } }
    for _, row in ipairs(rows) do object[#object + 1] = { row[1], row[2] } end
    io.stdout:write(json.encode(json.object(object)), "\n")
    return
  end
  local cells = {}
  for i, row in ipairs(rows) do
    cells[i] = { row[1], value_text(row[2], row[3]) }
  end
  io.stdout:write(report.table { header = { "measure", "value" },
    rows = cells, align = "lr" })
end

local function run(entries, context, as_json)
  local all = {}
  for _, entry in ipairs(entries) do
    local measure = entry[3]
    if type(measure) == "string" then measure = require(measure) end
    local rows, message = measure(context, report.say)
    if not rows then
      report.fail(("%s: %s"):format(entry[1], message))
      return cli.FAILED
    end
    for _, row in ipairs(rows) do all[#all + 1] = row end
  end
  if ranks.first() then print_rows(all, context, as_json) end
  return cli.OK
end

function bench.main(arguments)
  local options, message = cli.options(arguments, { json = "flag",
    list = "flag", threads = "value", isa = "value" })
  if not options then return cli.usage_error(message, "bench") end
  if options.list then return print_list() end
  local entries = {}
  for _, name in ipairs(options) do
    local entry = find(name)
    if not entry then
      return cli.usage_error(("no benchmark '%s'%s"):format(name,
        near.hint(name, names())), "bench")
    end
    entries[#entries + 1] = entry
  end
  if #entries == 0 then entries = bench.list end
  local context
  context, message = require("moelua").context {
    threads = tonumber(options.threads), isa = options.isa }
  if not context then
    report.fail(message)
    return cli.FAILED
  end
  if ranks.size() > 1 then
    local ok
    ok, message = context:join_mpi()
    if not ok then
      report.fail(message)
      return cli.FAILED
    end
  end
  local status = run(entries, context, options.json)
  context:close()
  return status
end

return bench
