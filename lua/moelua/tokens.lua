-- Owns token files (.bin/.idx): the reader and the writer objects.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local lib = binding.lib

jit.off(true, true)

local Tokens = handle.class("tokens")
local Writer = handle.class("token_writer")

local function check_prefix(what, prefix, level)
  if type(prefix) ~= "string" then
    error(("%s: expected a path without .bin or .idx, got %s"):format(what,
      type(prefix)), level + 1)
  end
  return (prefix:gsub("%.bin$", ""):gsub("%.idx$", ""))
end

function Tokens.open(context, prefix)
  prefix = check_prefix("tokens", prefix, 2)
  local out = ffi.new("moe_tokens *[1]")
  local status = lib.moe_tokens_open(context._pointer, prefix, out)
  if status ~= 0 then return handle.failure(context._core, status) end
  return handle.own(Tokens, context._core, out[0], lib.moe_tokens_close,
    { prefix = prefix })
end

local function info_table(info)
  return {
    sequences = tonumber(info.sequences),
    documents = tonumber(info.documents),
    tokens = tonumber(info.tokens),
    id_bytes = info.id_bytes,
    max_id = info.max_id >= 0 and tonumber(info.max_id) or nil,
  }
end

local function new_info()
  local info = ffi.new("moe_tokens_info")
  info.size = ffi.sizeof("moe_tokens_info")
  return info
end

-- sequences, documents, tokens, id_bytes
function Tokens:info()
  local pointer, info = handle.pointer(self, Tokens, 2), new_info()
  local status = lib.moe_tokens_get_info(pointer, info)
  if status ~= 0 then return handle.failure(self._core, status) end
  return info_table(info)
end

-- Reads every id; info with max_id, or nil, message, "format" where one is
-- outside [0, vocab) (vocab 0 or nil: no upper limit).
function Tokens:verify(vocab)
  local pointer, info = handle.pointer(self, Tokens, 2), new_info()
  local status = lib.moe_tokens_verify(pointer, vocab or 0, info)
  if status ~= 0 then return handle.failure(self._core, status) end
  return info_table(info)
end

-- Number of ids of sequence `index` (from 0)
function Tokens:length(index)
  local pointer, out = handle.pointer(self, Tokens, 2), ffi.new("int64_t[1]")
  local status = lib.moe_tokens_length(pointer, index, out)
  if status ~= 0 then return handle.failure(self._core, status) end
  return tonumber(out[0])
end

-- read(index[, first[, count]]) -> array of ids; indexes from 0, by default
-- all of the sequence
function Tokens:read(index, first, count)
  local pointer = handle.pointer(self, Tokens, 2)
  first = first or 0
  if not count then
    local length, message, code = self:length(index)
    if not length then return nil, message, code end
    count = length - first
  end
  local ids = ffi.new("int32_t[?]", math.max(1, count))
  local status = lib.moe_tokens_read(pointer, index, first, count, ids)
  if status ~= 0 then return handle.failure(self._core, status) end
  local list = {}
  for i = 1, count do list[i] = ids[i - 1] end
  return list
end

function Tokens.describe(self)
  local info = self:info()
  return ("%s, %d documents, %d tokens"):format(self.prefix, info.documents,
    info.tokens)
end

-- Writer.create(context, prefix, vocab): vocab decides the id type
function Writer.create(context, prefix, vocab)
  prefix = check_prefix("token_writer", prefix, 2)
  if type(vocab) ~= "number" then
    error("token_writer: expected the vocabulary size, got " .. type(vocab), 2)
  end
  local out = ffi.new("moe_tokens_writer *[1]")
  local status = lib.moe_tokens_writer_create(context._pointer, prefix, vocab,
    out)
  if status ~= 0 then return handle.failure(context._core, status) end
  return handle.own(Writer, context._core, out[0],
    lib.moe_tokens_writer_destroy, { prefix = prefix })
end

-- Appends one document.
function Writer:add(ids, count)
  local pointer = handle.pointer(self, Writer, 2)
  if not count then ids, count = handle.ids(ids, 2) end
  local status = lib.moe_tokens_writer_add(pointer, ids, count)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- Syncs, gives the files their names and closes. Without it close() removes
-- what was written.
function Writer:finish()
  local pointer = handle.pointer(self, Writer, 2)
  local status = lib.moe_tokens_writer_finish(pointer)
  if status ~= 0 then return handle.failure(self._core, status) end
  self:close()
  return true
end

function Writer.describe(self) return self.prefix end

return { Tokens = Tokens, Writer = Writer }
