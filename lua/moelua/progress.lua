-- Owns how a run is told while it goes: one refreshed line on a terminal,
-- else a line every `every` steps; all on stderr.
local report = require "moelua.report"
local sys = require "moelua.sys"

local progress = {}
progress.__index = progress

local REFRESH = 0.1 -- seconds

-- new{ steps = last step, every = steps a line, peak = FLOP/s or nil,
-- silent = true on a rank that does not speak }
function progress.new(options)
  return setmetatable({
    steps = options.steps, every = math.max(1, options.every or 1),
    peak = options.peak, live = sys.is_terminal("stderr"), last = 0,
    rate = nil, silent = options.silent,
  }, progress)
end

-- Seconds a step, smoothed over some ten steps.
local function smooth(self, seconds)
  self.rate = self.rate and 0.9 * self.rate + 0.1 * seconds or seconds
  return self.rate
end

-- The words of one step, shortest form that is still clear.
function progress.words(self, step, seconds)
  local rate = smooth(self, seconds)
  local speed = step.flops / step.seconds
  local words = {
    ("step %d/%d"):format(step.step, self.steps),
    ("loss %.4f"):format(step.loss),
  }
  local function put(...) words[#words + 1] = string.format(...) end
  if step.aux_loss ~= 0 then put("aux %.4f", step.aux_loss) end
  put("norm %.3g", step.grad_norm)
  put("lr %.3g", step.lr)
  put("%s tok/s", report.count(step.tokens / seconds))
  if self.peak then
    put("%s (%.0f %%)", report.count(speed, "FLOP/s"), 100 * speed / self.peak)
  else
    put("%s", report.count(speed, "FLOP/s"))
  end
  if step.load_max > 0 then put("load %.2f", step.load_max) end
  if step.dropped > 0 then
    put("dropped %.1f %%", 100 * step.dropped / math.max(1, step.routed))
  end
  local left = (self.steps - step.step) * rate
  if left > 0 then put("eta %s", report.duration(left)) end
  return table.concat(words, "  ")
end

-- After each step; seconds: wall time since the step before.
function progress:step(step, seconds)
  if self.silent then return end
  local text = self:words(step, seconds)
  if not self.live then
    if step.step % self.every == 0 or step.step == self.steps then
      io.stderr:write(text, "\n")
    end
    return
  end
  local now = sys.now()
  if now - self.last < REFRESH and step.step < self.steps then return end
  self.last = now
  io.stderr:write("\r\27[K", text:sub(1, sys.columns() - 1))
end

-- A line that stays, above the refreshed one.
function progress:note(text)
  if self.silent then return end
  io.stderr:write(self.live and "\r\27[K" or "", text, "\n")
end

-- Leaves the refreshed line where it is.
function progress:finish()
  if self.live and not self.silent then io.stderr:write("\n") end
end

return progress
