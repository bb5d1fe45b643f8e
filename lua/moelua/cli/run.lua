-- Owns `moelua RECIPE.lua [key=value ...] [--rehearse]`.
local cli = require "moelua.cli"
local memory = require "moelua.memory"
local plan = require "moelua.cli.plan"
local ranks = require "moelua.ranks"
local report = require "moelua.report"

local run = {}

-- nil when the recipe fits this machine, else the exit status
local function refuse(path, resolved)
  local prediction, message = plan.predict(resolved)
  if not prediction then
    report.fail(message)
    return cli.USAGE
  end
  if prediction.fits and prediction.ranks <= ranks.size() then return nil end
  if ranks.first() then
    io.stdout:write(memory.table(prediction))
    io.stdout:flush()
  end
  if prediction.fits then
    report.fail(("%s: its layout has %d ranks, this job has %d"):format(
      path, prediction.ranks, ranks.size()))
  else
    report.fail(("%s does not fit: a device needs %s, this machine offers %s")
      :format(path, report.bytes(prediction.total),
        report.bytes(prediction.machine)))
  end
  if not ranks.first() then return cli.NOFIT end
  io.stderr:write(("to run a small model of the same kind here: "
    .. "moelua %s --rehearse\n"):format(path))
  return cli.NOFIT
end

-- -> resolved recipe | nil, exit status after saying why
local function prepare(arguments)
  local options, message = cli.options(arguments, { rehearse = "flag" })
  if not options then return nil, cli.usage_error(message, "run") end
  local path, overrides = plan.split(options)
  if not path then return nil, cli.usage_error(overrides, "run") end
  local resolved = plan.load(path, overrides)
  if not resolved then return nil, cli.USAGE end
  if options.rehearse then
    local small
    small, message = require("moelua.recipe").rehearse(resolved, ranks.size())
    if not small then
      report.fail(message)
      return nil, cli.USAGE
    end
    resolved = small
  end
  local status = refuse(path, resolved)
  if status then return nil, status end
  local problems = require("moelua.recipe").check(resolved, ranks.size())
  if #problems > 0 then
    plan.print_errors(path, problems)
    return nil, cli.USAGE
  end
  return resolved
end

function run.main(arguments)
  local resolved, status = prepare(arguments)
  if resolved then return require("moelua.train").run(resolved, arguments) end
  if ranks.size() > 1 then ranks.refuse(status, report.held) end
  return status
end

return run
