-- Owns the tokenizer object.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local struct = require "moelua.struct"
local lib = binding.lib

jit.off(true, true)

local Tokenizer = handle.class("tokenizer")

-- open(context, path): "bytes" or a tokenizer.json
function Tokenizer.open(context, path)
  if type(path) ~= "string" then
    error("tokenizer: expected 'bytes' or the path of a tokenizer.json, got "
      .. type(path), 2)
  end
  local out = ffi.new("moe_tokenizer *[1]")
  local status = lib.moe_tokenizer_open(context._pointer, path, out)
  if status ~= 0 then return handle.failure(context._core, status) end
  return handle.own(Tokenizer, context._core, out[0], lib.moe_tokenizer_close,
    { path = path })
end

-- encode(text[, {special = true}]) -> array of ids | nil, message, code
-- special: also what the file's post-processor adds (e.g. bos).
function Tokenizer:encode(text, options)
  local ids, count, code = self:encode_raw(text, options, 3)
  if not ids then return nil, count, code end
  local list = {}
  for i = 1, count do list[i] = ids[i - 1] end
  return list
end

-- The same as const int32_t *ids, count; valid until the next call.
function Tokenizer:encode_raw(text, options, level)
  level = level or 2
  local pointer = handle.pointer(self, Tokenizer, level)
  if type(text) ~= "string" then
    error("encode: expected a string, got " .. type(text), level)
  end
  struct.check(level, "encode", options or {}, { special = "boolean?" })
  local ids, count = ffi.new("const int32_t *[1]"), ffi.new("int64_t[1]")
  local status = lib.moe_tokenizer_encode(pointer, text, #text,
    options and options.special and 1 or 0, ids, count)
  if status ~= 0 then return handle.failure(self._core, status) end
  return ids[0], tonumber(count[0])
end

-- decode(ids[, {skip_special = true}]) -> text | nil, message, code
function Tokenizer:decode(ids, options)
  local pointer = handle.pointer(self, Tokenizer, 2)
  struct.check(2, "decode", options or {}, { skip_special = "boolean?" })
  local c_ids, count = handle.ids(ids, 2)
  local text, bytes = ffi.new("const char *[1]"), ffi.new("size_t[1]")
  local status = lib.moe_tokenizer_decode(pointer, c_ids, count,
    options and options.skip_special and 1 or 0, text, bytes)
  if status ~= 0 then return handle.failure(self._core, status) end
  return ffi.string(text[0], bytes[0])
end

-- 1 + the largest id
function Tokenizer:vocab()
  return tonumber(lib.moe_tokenizer_vocab(
    handle.pointer(self, Tokenizer, 2)))
end

-- The id that ends a document, or nil
function Tokenizer:eod()
  local id = lib.moe_tokenizer_eod(handle.pointer(self, Tokenizer, 2))
  return id >= 0 and id or nil
end

function Tokenizer.describe(self)
  return ("%s, %d ids"):format(self.path, self:vocab())
end

return Tokenizer
