-- Owns `moelua plan`.
local cli = require "moelua.cli"
local json = require "moelua.json"
local memory = require "moelua.memory"
local report = require "moelua.report"

local plan = {}

-- split(words) -> recipe path, array of key=value; or nil, message
function plan.split(words)
  local overrides, path = {}, nil
  for _, word in ipairs(words) do
    if word:match("^[%w_.%[%]]+=") then
      overrides[#overrides + 1] = word
    elseif path then
      return nil, ("'%s': expected key=value"):format(word)
    else
      path = word
    end
  end
  if not path then return nil, "which recipe? (a file NAME.lua)" end
  return path, overrides
end

function plan.print_errors(path, errors)
  local lines = { ("%s: %d error%s"):format(path, #errors,
    #errors == 1 and "" or "s") }
  for _, text in ipairs(errors) do
    lines[#lines + 1] = "  " .. text:gsub("\n", "\n  ")
  end
  report.fail(table.concat(lines, "\n"))
end

-- load(path, overrides) -> resolved recipe | nil after printing its errors
function plan.load(path, overrides)
  local resolved, errors = require("moelua.recipe").load(path, overrides)
  if resolved then return resolved end
  plan.print_errors(path, errors)
  return nil
end

-- predict(resolved) -> memory.predict's table | nil, message
function plan.predict(resolved)
  local context, message = require("moelua").context { threads = 1 }
  if not context then return nil, message end
  local keep = { require("moelua.recipe").train_config(resolved) }
  local prediction
  prediction, message = memory.predict(context, keep[1])
  context:close()
  return prediction, message
end

function plan.main(arguments)
  local options, message = cli.options(arguments, { json = "flag" })
  if not options then return cli.usage_error(message, "plan") end
  local path, overrides = plan.split(options)
  if not path then return cli.usage_error(overrides, "plan") end
  local resolved = plan.load(path, overrides)
  if not resolved then return cli.USAGE end
  local prediction
  prediction, message = plan.predict(resolved)
  if not prediction then
    report.fail(message)
    return cli.FAILED
  end
  if options.json then
    io.stdout:write(json.encode(json.object(memory.fields(prediction))), "\n")
  else
    io.stdout:write(memory.table(prediction))
  end
  return prediction.fits and cli.OK or cli.NOFIT
end

return plan
