-- Owns the checkpoint object: a saved state as files, without a trainer.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local near = require "moelua.near"
local lib = binding.lib

jit.off(true, true)

local Checkpoint = handle.class("checkpoint")

-- open(context, path): a checkpoint folder, or a folder that has `latest`
function Checkpoint.open(context, path)
  if type(path) ~= "string" then
    error("checkpoint: expected the path of a folder, got " .. type(path), 2)
  end
  local out = ffi.new("moe_checkpoint *[1]")
  local status = lib.moe_checkpoint_open(context._pointer, path, out)
  if status ~= 0 then return handle.failure(context._core, status) end
  return handle.own(Checkpoint, context._core, out[0],
    lib.moe_checkpoint_close, { path = path })
end

-- The fields of a C struct as Lua values: strings, numbers, and uint64_t as it
-- is. Arrays are left out.
local function values_of(name, value)
  local result = {}
  for _, field in ipairs(binding.structs[name]) do
    local item = value[field.name]
    if field.kind == "const char *" then
      result[field.name] = item ~= nil and ffi.string(item) or nil
    elseif not field.count then
      result[field.name] = field.kind == "uint64_t" and item or tonumber(item)
    end
  end
  result.size = nil
  return result
end

-- step, cursor, seed (uint64_t), tensors, params, bytes (uint64_t), the layout
-- and texts: the fields of moe_checkpoint_summary
function Checkpoint:info()
  local pointer = handle.pointer(self, Checkpoint, 2)
  local info = ffi.new("moe_checkpoint_summary")
  info.size = ffi.sizeof("moe_checkpoint_summary")
  local status = lib.moe_checkpoint_info(pointer, info)
  if status ~= 0 then return handle.failure(self._core, status) end
  return values_of("moe_checkpoint_summary", info)
end

local function tensor_at(self, pointer, index)
  local info = ffi.new("moe_checkpoint_tensor")
  info.size = ffi.sizeof("moe_checkpoint_tensor")
  local status = lib.moe_checkpoint_tensor_info(pointer, index, info)
  if status ~= 0 then return handle.failure(self._core, status) end
  local tensor = values_of("moe_checkpoint_tensor", info)
  tensor.index, tensor.dims, tensor.dim = index, nil, nil
  tensor.shape, tensor.elements = {}, 1
  for i = 1, info.dims do
    tensor.shape[i] = tonumber(info.dim[i - 1])
    tensor.elements = tensor.elements * tensor.shape[i]
  end
  return tensor
end

-- Array of { group, name, shape, elements, slices, digest (uint64_t), index },
-- sorted by group ("weights", "exp_avg", "exp_avg_sq") and name
function Checkpoint:tensors()
  local pointer = handle.pointer(self, Checkpoint, 2)
  local info, message, code = self:info()
  if not info then return nil, message, code end
  local list = {}
  for i = 1, info.tensors do
    list[i], message, code = tensor_at(self, pointer, i - 1)
    if not list[i] then return nil, message, code end
  end
  return list
end

-- read(name[, group = "weights"]) -> float[n], n: a whole tensor, its digests
-- checked
function Checkpoint:read(name, group)
  local pointer = handle.pointer(self, Checkpoint, 2)
  group = group or "weights"
  local list, message, code = self:tensors()
  if not list then return nil, message, code end
  local names = {}
  for _, tensor in ipairs(list) do
    if tensor.group == group and tensor.name == name then
      local n = tensor.elements
      local values = ffi.new("float[?]", n)
      local status = lib.moe_checkpoint_read(pointer, tensor.index, nil, nil,
        values, n)
      if status ~= 0 then return handle.failure(self._core, status) end
      return values, n
    end
    if tensor.group == group then names[#names + 1] = tensor.name end
  end
  return nil, ("%s has no tensor '%s' in '%s'%s"):format(self.path,
    tostring(name), tostring(group), near.hint(name, names)), "notfound"
end

-- Reads everything: true | nil, message naming all that is damaged, "format"
function Checkpoint:verify()
  local status = lib.moe_checkpoint_verify(
    handle.pointer(self, Checkpoint, 2))
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

function Checkpoint.describe(self)
  local info = self:info()
  return ("%s, step %d, %d tensors"):format(info.path, info.step, info.tensors)
end

return Checkpoint
