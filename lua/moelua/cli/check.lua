-- Owns `moelua check`: everything that is wrong with a recipe, or what it is.
local cli = require "moelua.cli"
local plan = require "moelua.cli.plan"
local memory = require "moelua.memory"
local models = require "moelua.models"
local recipe = require "moelua.recipe"
local report = require "moelua.report"
local summary = require "moelua.summary"

local check = {}

local function layers_text(model)
  local dense = 0
  for _, block in ipairs(model.blocks) do
    if block.ffn_kind == "dense" then dense = dense + 1 end
  end
  local text = ("%d layers"):format(#model.blocks)
  if dense > 0 then text = ("%s, %d of them dense"):format(text, dense) end
  return text
end

-- "tp 2 cp 1 dp 4 pp 8, etp 1 ep 8 edp 1"
local function layout_text(layout, ranks)
  local tp, cp, pp = layout.tp or 1, layout.cp or 1, layout.pp or 1
  local etp, ep = layout.etp or tp, layout.ep or 1
  return ("tp %d cp %d dp %d pp %d, etp %d ep %d edp %d"):format(tp, cp,
    ranks / (tp * cp * pp), pp, etp, ep, ranks / (etp * ep * pp))
end

local function facts_of(resolved, ranks)
  local total, active = models.count(resolved.model)
  local schedule = resolved.schedule
  local layout = recipe.train_config(resolved).layout
  local least = memory.ranks(layout)
  return {
    { "model", ("%s, %s"):format(resolved.model.family,
      layers_text(resolved.model)) },
    { "parameters", ("%s, %s active"):format(report.count(total),
      report.count(active)) },
    { "ranks", ranks and report.integer(ranks)
      or ("%d or a multiple"):format(least) },
    { "layout", layout_text(resolved.layout, ranks or least) },
    { "steps", ("%s of %d x %d tokens"):format(report.integer(schedule.steps),
      schedule.global_batch, resolved.data.seq) },
  }
end

function check.main(arguments)
  local options, message = cli.options(arguments, { ranks = "value" })
  if not options then return cli.usage_error(message, "check") end
  local path, overrides = plan.split(options)
  if not path then return cli.usage_error(overrides, "check") end
  local ranks
  if options.ranks then
    ranks, message = cli.ranks(options.ranks, "--ranks")
    if not ranks then return cli.usage_error(message, "check") end
  end
  local resolved = plan.load(path, overrides)
  if not resolved then return cli.USAGE end
  local problems = ranks and recipe.check(resolved, ranks) or {}
  if #problems > 0 then
    plan.print_errors(path, problems)
    return cli.USAGE
  end
  io.stdout:write(path, " is valid\n", summary.facts(facts_of(resolved, ranks)))
  return cli.OK
end

return check
