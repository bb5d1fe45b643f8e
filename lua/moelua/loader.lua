-- Owns the loader object: samples in the endless global order.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local struct = require "moelua.struct"
local lib = binding.lib

jit.off(true, true)

local Loader = handle.class("loader")

-- Sources as a prefix, an array of prefixes, or of { prefix=, weight= }.
local function sources_of(value)
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" then return value end
  local list = {}
  for i, item in ipairs(value) do
    if type(item) == "string" then item = { prefix = item } end
    if type(item) == "table" and item.weight == nil then
      local copy = { weight = 1 }
      for key, field in pairs(item) do copy[key] = field end
      item = copy
    end
    list[i] = item
  end
  return list
end

-- create(context, {sources=, seq=, vocab=, seed=, shuffle=, split=,
-- valid_fraction=, mask_id=})
function Loader.create(context, options)
  if type(options) ~= "table" then
    error("loader: expected a table of options, got " .. type(options), 2)
  end
  local copy = {}
  for key, value in pairs(options) do copy[key] = value end
  copy.sources = sources_of(options.sources)
  local config, anchor = struct.build("moe_loader_config", copy)
  if not config then
    error("loader: " .. table.concat(anchor, "\n  "), 2)
  end
  local out = ffi.new("moe_loader *[1]")
  local status = lib.moe_loader_create(context._pointer, config, out)
  if status ~= 0 then return handle.failure(context._core, status) end
  return handle.own(Loader, context._core, out[0], lib.moe_loader_destroy,
    { seq = config.seq })
end

-- read(cursor, count[, tokens, labels]) -> tokens, labels: int32_t arrays of
-- count * seq, made where not given; labels are -1 where masked.
function Loader:read(cursor, count, tokens, labels)
  local pointer, n = handle.pointer(self, Loader, 2), count * self.seq
  tokens = tokens or ffi.new("int32_t[?]", n)
  labels = labels or ffi.new("int32_t[?]", n)
  if ffi.sizeof(tokens) < 4 * n or ffi.sizeof(labels) < 4 * n then
    error(("loader: read of %d samples needs arrays of %d"):format(count, n),
      2)
  end
  local status = lib.moe_loader_read(pointer, cursor, count, tokens, labels)
  if status ~= 0 then return handle.failure(self._core, status) end
  return tokens, labels
end

function Loader:epoch_samples()
  return tonumber(lib.moe_loader_epoch_samples(
    handle.pointer(self, Loader, 2)))
end

-- Text that differs when a cursor would no longer mean the same samples.
function Loader:fingerprint()
  return ("%016x"):format(lib.moe_loader_fingerprint(
    handle.pointer(self, Loader, 2)))
end

function Loader.describe(self)
  return ("%d samples of %d tokens an epoch"):format(self:epoch_samples(),
    self.seq)
end

return Loader
