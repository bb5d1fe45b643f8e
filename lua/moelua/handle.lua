-- Owns the life of C handles.  A context is destroyed after the last handle
-- made from it, in whatever order Lua drops or closes them: context and
-- children share a counted `core`, which holds the C pointer.
--
-- Invariant: no finalizer refers to the cdata it finalizes.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local lib = binding.lib

-- A context may log (call back into Lua) out of any call.
jit.off(true, true)

local handle = {}

-- core(pointer) -> a context's counted pointer, with one reference.
-- on_destroy, if any, runs after the context is gone.
function handle.core(pointer, on_destroy)
  return { pointer = pointer, references = 1, on_destroy = on_destroy }
end

function handle.release(core)
  core.references = core.references - 1
  if core.references == 0 then
    lib.moe_ctx_destroy(core.pointer)
    core.pointer = nil
    if core.on_destroy then core.on_destroy() end
  end
end

-- A guard runs `finish` once: by close(), or when it is collected.
local function guard(object, finish)
  local marker = ffi.gc(ffi.new("char[1]"), finish)
  rawset(object, "_guard", marker)
  rawset(object, "_finish", finish)
end

-- own(class, core, pointer, destroy, fields) -> object of class.  destroy is
-- the C function; nil for the context itself.
function handle.own(class, core, pointer, destroy, fields)
  local object = fields or {}
  object._core, object._pointer = core, pointer
  if destroy then core.references = core.references + 1 end
  guard(object, function()
    if destroy then destroy(pointer) end
    handle.release(core)
  end)
  return setmetatable(object, class)
end

-- Idempotent.
function handle.close(object)
  if not object._pointer then return end
  ffi.gc(object._guard, nil)
  object._pointer, object._guard = nil, nil
  object._finish()
end

-- The C pointer of an open object of `class`; raises at `level` otherwise.
function handle.pointer(object, class, level)
  if getmetatable(object) ~= class then
    error(("expected a %s, got %s%s"):format(class.name, type(object),
      object == nil and " (call methods with ':')" or ""), level + 1)
  end
  if not object._pointer then
    error(class.name .. " is closed", level + 1)
  end
  return object._pointer
end

-- What every failing call returns: nil, message, code.
function handle.failure(core, status)
  local text = ffi.string(lib.moe_ctx_error(core.pointer))
  if text == "" then text = ffi.string(lib.moe_status_text(status)) end
  return nil, text, binding.status(status)
end

-- class(name): a metatable whose methods live in itself.
function handle.class(name)
  local class = { name = name }
  function class.__index(_, key)
    local method = class[key]
    if method == nil and type(key) == "string" and key:sub(1, 1) ~= "_" then
      error(("a %s has no field or method '%s'%s"):format(name, key,
        require("moelua.near").hint(key, class)), 2)
    end
    return method
  end
  function class.__tostring(object)
    local state = object._pointer and class.describe(object) or "closed"
    return ("moelua.%s (%s)"):format(name, state)
  end
  class.close = handle.close
  return class
end

-- ids(values, level) -> int32_t[n], n from a Lua array of integers, an array
-- of such rows, or an ffi array of int32_t (which is used as it is).
function handle.ids(values, level)
  if type(values) == "cdata" then
    if not tostring(ffi.typeof(values)):match("^ctype<int %[") then
      error("token ids: expected an array int32_t[n], got " ..
        tostring(ffi.typeof(values)), level + 1)
    end
    return values, ffi.sizeof(values) / 4
  end
  if type(values) ~= "table" then
    error("token ids: expected an array, got " .. type(values), level + 1)
  end
  local flat = values
  if type(values[1]) == "table" then
    flat = {}
    for _, row in ipairs(values) do
      for _, id in ipairs(row) do flat[#flat + 1] = id end
    end
  end
  local ids = ffi.new("int32_t[?]", math.max(1, #flat))
  for i, id in ipairs(flat) do
    if type(id) ~= "number" or id ~= math.floor(id) then
      error(("token ids: item %d is not an integer (%s)"):format(i,
        tostring(id)), level + 1)
    end
    ids[i - 1] = id
  end
  return ids, #flat
end

return handle
