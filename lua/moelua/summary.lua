-- Owns the account of a run: where the wall time went, and the text at its end.
local report = require "moelua.report"
local sys = require "moelua.sys"

local summary = {}
summary.__index = summary

-- Starts the clock.
function summary.new()
  return setmetatable({ start = sys.now(), parts = {}, order = {}, steps = 0,
    tokens = 0, flops = 0, step_seconds = 0, other = {} }, summary)
end

-- Adds a step's parts.
function summary:step(step)
  for _, part in ipairs(step.parts) do
    local sum = self.parts[part.name]
    if not sum then
      sum = { name = part.name, seconds = 0, flops = 0 }
      self.parts[part.name] = sum
      self.order[#self.order + 1] = sum
    end
    sum.seconds = sum.seconds + part.seconds
    sum.flops = sum.flops + part.flops
  end
  self.steps = self.steps + 1
  self.tokens = self.tokens + step.tokens
  self.flops = self.flops + step.flops
  self.step_seconds = self.step_seconds + step.seconds
end

-- time(name, f, ...): what f returns; its wall time goes to `name`.
function summary:time(name, f, ...)
  local start = sys.now()
  local function account(...)
    self.other[name] = (self.other[name] or 0) + sys.now() - start
    return ...
  end
  return account(f(...))
end

-- { name, seconds, flops or nil } of all that took a thousandth of the time,
-- the longest first; and the total.
function summary:rows()
  local total = sys.now() - self.start
  local rows, known = {}, 0
  local function put(name, seconds, flops)
    if seconds < 1e-3 * total then return end
    known = known + seconds
    rows[#rows + 1] = { name, seconds, flops }
  end
  local in_parts = 0
  for _, part in ipairs(self.order) do
    put(part.name, part.seconds, part.flops > 0 and part.flops or nil)
    in_parts = in_parts + part.seconds
  end
  put("rest of the steps", math.max(0, self.step_seconds - in_parts))
  for name, seconds in pairs(self.other) do put(name, seconds) end
  put("else", math.max(0, total - known))
  table.sort(rows, function(a, b) return a[2] > b[2] end)
  return rows, total
end

-- The table of times; peak (FLOP/s) may be nil.
function summary:table(peak)
  local rows, total = self:rows()
  local cells = {}
  for i, row in ipairs(rows) do
    local speed = row[3] and row[3] / row[2]
    cells[i] = { row[1], report.duration(row[2]),
      ("%.1f %%"):format(100 * row[2] / total),
      speed and report.count(speed, "FLOP/s") or "",
      speed and peak and ("%.0f %%"):format(100 * speed / peak) or "" }
  end
  local speed = self.step_seconds > 0 and self.flops / self.step_seconds
  return report.table {
    header = { "where the time went", "time", "share", "speed", "of peak" },
    rows = cells, align = "lrrrr",
    total = { "total", report.duration(total), "100 %",
      speed and report.count(speed, "FLOP/s") or "",
      speed and peak and ("%.0f %%"):format(100 * speed / peak) or "" },
  }
end

-- Lines "name  value" of how it ended; facts: array of pairs.
function summary.facts(facts)
  return report.table { rows = facts }
end

return summary
