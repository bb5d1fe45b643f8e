-- Owns the mesh object: a layout over some number of ranks, its coordinates
-- and groups; and what a rank of a layout keeps of a model.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local struct = require "moelua.struct"
local lib = binding.lib

jit.off(true, true)

local Mesh = handle.class("mesh")

-- create(context, layout, world): layout is a table of options of
-- moe_layout_config; world nil or 0: the fewest ranks it allows
function Mesh.create(context, layout, world)
  local config, anchor = struct.build("moe_layout_config", layout)
  if not config then error("mesh: " .. table.concat(anchor, "; "), 2) end
  if world ~= nil and type(world) ~= "number" then
    error("mesh: expected a number of ranks, got " .. type(world), 2)
  end
  local out = ffi.new("moe_mesh *[1]")
  local status = lib.moe_mesh_create(context._pointer, config, world or 0, out)
  if status ~= 0 or not anchor then
    return handle.failure(context._core, status)
  end
  return handle.own(Mesh, context._core, out[0], lib.moe_mesh_destroy)
end

-- A struct of the library as a table of numbers and strings.
local function read(self, name, get, ...)
  local value = ffi.new(name)
  value.size = ffi.sizeof(name)
  local arguments = { ... }
  arguments[#arguments + 1] = value
  local status = get(handle.pointer(self, Mesh, 3), unpack(arguments))
  if status ~= 0 then return handle.failure(self._core, status) end
  local result = {}
  for _, field in ipairs(binding.structs[name]) do
    local item = value[field.name]
    result[field.name] = field.kind == "const char *" and ffi.string(item)
      or tonumber(item)
  end
  result.size = nil
  return result
end

-- world, order, and all degrees: tp cp dp pp etp ep edp
function Mesh:info()
  return (read(self, "moe_mesh_info", lib.moe_mesh_get_info))
end

-- place(rank) -> { tp=, cp=, dp=, pp=, etp=, ep=, edp= } | nil, message, code
function Mesh:place(rank)
  return read(self, "moe_mesh_place", lib.moe_mesh_get_place, rank)
end

-- All groups of a kind, by their first rank.
local function groups_of(self, kind, world, members)
  local list, seen = {}, {}
  local ranks = ffi.new("int32_t[?]", members)
  for rank = 0, world - 1 do
    if not seen[rank] then
      local status = lib.moe_mesh_get_members(self._pointer, kind, rank, ranks,
        members)
      if status ~= 0 then return handle.failure(self._core, status) end
      local group = {}
      for i = 1, members do
        group[i] = ranks[i - 1]
        seen[group[i]] = true
      end
      list[#list + 1] = group
    end
  end
  return list
end

-- Array of { name, view = "attn" or "moe", members, groups = { {rank, ...},
-- ... } }
function Mesh:groups()
  local info, list = self:info(), {}
  for kind = 0, info.groups - 1 do
    local group = read(self, "moe_mesh_group", lib.moe_mesh_get_group, kind)
    list[kind + 1] = { name = group.name, members = group.members,
      view = group.moe == 1 and "moe" or "attn",
      groups = groups_of(self, kind, info.world, group.members) }
  end
  return list
end

function Mesh.describe(self)
  local info = self:info()
  return ("%d ranks, order %s"):format(info.world, info.order)
end

-- ---- what a rank keeps ----

local function params_of(context, placement)
  local info, list = ffi.new("moe_param_info"), {}
  info.size = ffi.sizeof("moe_param_info")
  for i = 1, tonumber(lib.moe_placement_count(placement)) do
    local status = lib.moe_placement_info(placement, i - 1, info)
    if status ~= 0 then return handle.failure(context._core, status) end
    local param = { name = ffi.string(info.name), expert = info.expert == 1,
      shape = {}, start = {}, count = {} }
    for d = 1, info.dims do
      param.shape[d] = tonumber(info.dim[d - 1])
      param.start[d] = tonumber(info.start[d - 1])
      param.count[d] = tonumber(info.count[d - 1])
    end
    list[i] = param
  end
  return list
end

-- placement(context, config, world, rank) -> the parameters that this rank has,
-- array of { name, shape, start, count, expert } | nil, message, code
local function placement(context, config, world, rank)
  local Context = require "moelua.context"
  local c_config, anchor = Context.train_config(config, 2)
  local out = ffi.new("moe_placement *[1]")
  local status = lib.moe_placement_create(context._pointer, c_config,
    world or 0, rank or 0, out)
  if status ~= 0 or not anchor then
    return handle.failure(context._core, status)
  end
  local list, message, code = params_of(context, out[0])
  lib.moe_placement_destroy(out[0])
  return list, message, code
end

return { Mesh = Mesh, placement = placement }
