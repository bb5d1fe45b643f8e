-- Owns the answer to "does it fit": the predicted memory of one device, as a
-- table for people and as fields for programs.
local report = require "moelua.report"

local memory = {}

local PARTS = {
  { "weights", "weights" },
  { "gradients", "gradients" },
  { "optimizer", "optimizer state" },
  { "prepared", "prepared weights" },
  { "saved", "activations" },
  { "scratch", "scratch" },
}

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

-- The fewest ranks of a moe_layout_config: both views, with the degrees left 0
-- at their least.
function memory.ranks(layout)
  local function degree(name) return math.max(1, layout[name]) end
  local etp = layout.etp > 0 and layout.etp or degree "tp"
  local attn = degree "tp" * degree "cp" * degree "dp"
  local moe = etp * degree "ep" * degree "edp"
  return attn * moe / gcd(attn, moe) * degree "pp"
end

-- predict(context, config) -> moe_memory_report's fields and
-- { ranks, machine, fits } | nil, message, code
function memory.predict(context, config)
  local prediction, message, code = context:plan_memory(config)
  if not prediction then return nil, message, code end
  prediction.ranks = memory.ranks(config.layout)
  prediction.machine = require("moelua").machine_memory()
  prediction.fits = prediction.total <= prediction.machine
  return prediction
end

function memory.table(prediction)
  local rows = {}
  for i, part in ipairs(PARTS) do
    local n = prediction[part[1]]
    rows[i] = { part[2], report.bytes(n),
      ("%.1f %%"):format(100 * n / math.max(1, prediction.total)) }
  end
  local counts = report.table { rows = {
    { "parameters", report.count(prediction.params_total) },
    { "active a token", report.count(prediction.params_active) },
    { "on one device", report.count(prediction.params_local) },
    { "devices", report.integer(prediction.ranks) },
    { "a token costs", report.count(prediction.flops_per_token, "FLOP") },
  }, align = "lr" }
  return counts .. "\n" .. report.table {
    header = { "memory of the fullest device", "bytes", "share" },
    rows = rows, align = "lrr",
    total = { "total", report.bytes(prediction.total) },
  } .. ("\nthis machine offers %s\n"):format(report.bytes(prediction.machine))
end

-- The prediction as ordered fields, for json.object.
function memory.fields(prediction)
  local fields = {}
  for _, name in ipairs { "params_total", "params_active", "params_local",
    "ranks", "weights", "gradients", "optimizer", "prepared", "saved",
    "scratch", "total", "machine", "fits", "flops_per_token" } do
    fields[#fields + 1] = { name, prediction[name] }
  end
  return fields
end

return memory
