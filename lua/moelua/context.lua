-- Owns the context object; its methods make every other object.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local struct = require "moelua.struct"
local lib = binding.lib

-- Log callbacks may come out of any call, so none may be compiled.
jit.off(true, true)

local Context = handle.class("context")

local LEVELS = { [0] = "debug", "info", "warn", "error" }

-- The C callback for a Lua function, and what frees it.
local function log_callback(log)
  local callback = ffi.cast("moe_log_fn", function(_, level, text)
    pcall(log, LEVELS[tonumber(level)] or "error", ffi.string(text))
  end)
  return callback, function() callback:free() end
end

-- create{threads=, isa=, log=function(level, text)}, all optional
-- -> context | nil, message, code
function Context.create(options)
  struct.check(2, "moelua.context", options or {},
    { threads = "number?", isa = "string?", log = "function?" })
  options = options or {}
  local c_options, anchor = struct.build("moe_ctx_options",
    { threads = options.threads, isa = options.isa })
  if not c_options then
    error("moelua.context: " .. table.concat(anchor, "; "), 2)
  end
  local release_log
  if options.log then
    c_options.log, release_log = log_callback(options.log)
  end
  local out = ffi.new("moe_ctx *[1]")
  local status = lib.moe_ctx_create(c_options, out)
  if status ~= 0 then
    if release_log then release_log() end
    return nil, ffi.string(lib.moe_status_text(status)),
      binding.status(status)
  end
  local context = handle.own(Context, handle.core(out[0], release_log), out[0],
    nil, { log = options.log or false })
  if context:isa() == "" then -- the set is looked up when it is first used
    local _, message = handle.failure(context._core, lib.MOE_UNSUPPORTED)
    context:close()
    return nil, message, "unsupported"
  end
  return context
end

function Context:threads()
  return lib.moe_ctx_threads(handle.pointer(self, Context, 2))
end

-- join_mpi() -> true | nil, message, code: joins the ranks of an MPI job,
-- before the context is used; MPI ends with it. Collective.
function Context:join_mpi()
  local status = lib.moe_ctx_join_mpi(handle.pointer(self, Context, 2), nil)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- This process among the ranks: rank, ranks.
function Context:rank()
  local pointer = handle.pointer(self, Context, 2)
  return lib.moe_ctx_rank(pointer), lib.moe_ctx_ranks(pointer)
end

-- Longest wait for other ranks in one transfer, in seconds; 0: for ever.
function Context:comm_timeout(seconds)
  lib.moe_ctx_comm_timeout(handle.pointer(self, Context, 2), seconds)
end

-- agree([code[, text]]) -> true | nil, message, code: every rank learns whether
-- any of them failed; all get the same message. Collective.
function Context:agree(code, text)
  local status = code and struct.enum("moe_status")[code] or 0
  status = lib.moe_ctx_agree(handle.pointer(self, Context, 2), status, text)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- Who tells the user of the last error: "own" (this rank, whose own it is),
-- "all" (this rank, for all), "not" (another rank).
function Context:tells()
  local pointer = handle.pointer(self, Context, 2)
  return struct.enum("moe_tells")[tonumber(lib.moe_ctx_tells(pointer))]
end

-- Makes the layout of a configuration known to messages.
function Context:name_ranks(config)
  local pointer = handle.pointer(self, Context, 2)
  local c_config, anchor = Context.train_config(config, 2)
  local status = lib.moe_ctx_name_ranks(pointer, c_config.layout)
  if status ~= 0 then return handle.failure(self._core, status) end
  return anchor ~= nil
end

-- "rank 5 (tp 1, cp 0, dp 1, pp 0)"
function Context:rank_name()
  return ffi.string(lib.moe_ctx_rank_name(handle.pointer(self, Context, 2)))
end

function Context:isa()
  return ffi.string(lib.moe_ctx_isa(handle.pointer(self, Context, 2)))
end

-- Allocations so far, bytes now, bytes at the highest point.
function Context:memory()
  local pointer = handle.pointer(self, Context, 2)
  return {
    count = tonumber(lib.moe_ctx_alloc_count(pointer)),
    bytes = tonumber(lib.moe_ctx_alloc_bytes(pointer)),
    peak = tonumber(lib.moe_ctx_alloc_peak(pointer)),
  }
end

-- Highest FLOP/s of the matrix kernels: dtype "f32" (default) or "bf16",
-- measured for about `seconds` (0.2).
function Context:bench_peak(dtype, seconds)
  local pointer = handle.pointer(self, Context, 2)
  local kind = struct.enum("moe_dtype")[dtype or "f32"]
  if not kind then
    error(("bench_peak: unknown dtype '%s'"):format(tostring(dtype)), 2)
  end
  local flops = ffi.new("double[1]")
  local status = lib.moe_bench_peak(pointer, kind, seconds or 0.2, flops)
  if status ~= 0 then return handle.failure(self._core, status) end
  return flops[0]
end

-- bench_dispatch{tokens=, hidden=, experts=, topk=, dtype=} -> the fields of
-- moe_dispatch_bench. Collective over the context's ranks.
function Context:bench_dispatch(options)
  local pointer = handle.pointer(self, Context, 2)
  local built, anchor = struct.build("moe_dispatch_bench", options)
  if not built then
    error("bench_dispatch: " .. table.concat(anchor, "; "), 2)
  end
  local status = lib.moe_bench_dispatch(pointer, built)
  if status ~= 0 or not anchor then
    return handle.failure(self._core, status)
  end
  local result = {}
  for _, field in ipairs(binding.structs.moe_dispatch_bench) do
    result[field.name] = tonumber(built[field.name])
  end
  return result
end

-- A moe_train_config from a table of options or, unchanged, from cdata.
-- Returns config, anchor; raises on misuse at `level`.
function Context.train_config(config, level)
  if ffi.istype("moe_train_config", config) then return config, config end
  local built, anchor = struct.build("moe_train_config", config)
  if not built then
    error("train config: " .. table.concat(anchor, "\n  "), level + 1)
  end
  return built, anchor
end

-- Every problem of a configuration for `world` ranks (1):
-- true | nil, message (a line each), code
function Context:check_config(config, world)
  local pointer = handle.pointer(self, Context, 2)
  local c_config, anchor = Context.train_config(config, 2)
  local status = lib.moe_train_config_check(pointer, c_config, world or 1)
  if status ~= 0 then return handle.failure(self._core, status) end
  return anchor ~= nil
end

-- Bytes and parameters a configuration needs; the fields of
-- moe_memory_report as numbers.
function Context:plan_memory(config)
  local pointer = handle.pointer(self, Context, 2)
  local c_config, anchor = Context.train_config(config, 2)
  local report = ffi.new("moe_memory_report")
  report.size = ffi.sizeof("moe_memory_report")
  local status = lib.moe_plan_memory(pointer, c_config, report)
  if status ~= 0 or not anchor then
    return handle.failure(self._core, status)
  end
  local result = {}
  for _, field in ipairs(binding.structs.moe_memory_report) do
    result[field.name] = tonumber(report[field.name])
  end
  result.size = nil
  return result
end

-- Path of the newest checkpoint in dir | nil, message, "notfound"
function Context:latest_checkpoint(dir)
  local pointer = handle.pointer(self, Context, 2)
  local buffer = ffi.new("char[4096]")
  local status = lib.moe_checkpoint_latest(pointer, dir, buffer, 4096)
  if status ~= 0 then return handle.failure(self._core, status) end
  return ffi.string(buffer)
end

function Context.describe(self)
  return ("%s, %d threads"):format(self:isa(), self:threads())
end

return Context
