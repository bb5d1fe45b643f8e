-- Owns metrics.jsonl of a run: one JSON object a step, whole lines only.  A
-- run that resumes at step n first drops the lines past n.
local json = require "moelua.json"
local sys = require "moelua.sys"

local metrics = {}
metrics.__index = metrics

-- The complete lines of steps 1..step, in order.
local function kept_lines(path, step)
  local file = io.open(path, "rb")
  if not file then return "", false end
  local text = file:read("*a")
  file:close()
  local lines = {}
  for line in text:gmatch("([^\n]*)\n") do
    local number = tonumber(line:match('^{"step":(%d+)[,}]'))
    if number and number <= step and line:sub(-1) == "}" then
      lines[#lines + 1] = line .. "\n"
    end
  end
  local kept = table.concat(lines)
  return kept, kept ~= text
end

-- open(path, step) -> writer | nil, message, code
function metrics.open(path, step)
  local kept, changed = kept_lines(path, step)
  if changed then
    local ok, message, code = sys.replace_file(path, kept)
    if not ok then return nil, message, code end
  end
  local file, message = io.open(path, "ab")
  if not file then return nil, message, "io" end
  file:setvbuf("full", 65536)
  return setmetatable({ file = file, path = path }, metrics)
end

local FIELDS = { "aux_loss", "z_loss", "grad_norm", "lr", "tokens",
  "loss_tokens", "load_max", "routed", "dropped", "seconds", "flops" }

-- line(step_metrics, extra) -> the object's text; extra: array of pairs
function metrics.line(step, extra)
  local object = { { "step", step.step }, { "loss", step.loss },
    { "loss_hex", ("%a"):format(step.loss) } }
  for _, name in ipairs(FIELDS) do
    object[#object + 1] = { name, step[name] }
  end
  for _, pair in ipairs(extra or {}) do object[#object + 1] = pair end
  local parts = {}
  for i, part in ipairs(step.parts) do
    parts[i] = { part.name, part.seconds }
  end
  object[#object + 1] = { "part_seconds", json.object(parts) }
  return json.encode(json.object(object))
end

-- true | nil, message, code
function metrics:write(step, extra)
  local ok, message = self.file:write(metrics.line(step, extra), "\n")
  if ok then ok, message = self.file:flush() end
  if not ok then
    return nil, ("cannot write %s: %s"):format(self.path, message), "io"
  end
  return true
end

function metrics:close()
  if self.file then self.file:close() end
  self.file = nil
end

return metrics
