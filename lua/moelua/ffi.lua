-- Owns the one ffi.cdef of the public C interface and the library handle.
-- The library is the one this process is linked with, else MOELUA_LIB, else
-- libmoelua.so beside or above this file, else the system's.
local ffi = require "ffi"
local cdef = require "moelua.cdef"

-- Declarations live as long as the process: a module loaded anew finds them.
if not pcall(ffi.typeof, "moe_train_config") then ffi.cdef(cdef.text) end

local binding = {
  structs = cdef.structs,
  enums = cdef.enums,
  functions = cdef.functions,
}

local function linked()
  return pcall(function() return ffi.C.moe_version end)
end

-- Folders to look in: this file's and those above it (share/lua/5.1/moelua is
-- four below the build folder, and lib/ is beside share/ when installed).
local function candidates()
  local folder = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$")
  local list = {}
  while folder do
    list[#list + 1] = folder .. "/libmoelua.so"
    list[#list + 1] = folder .. "/lib/libmoelua.so"
    list[#list + 1] = ("%s/lib/%s-linux-gnu/libmoelua.so"):format(folder,
      jit.arch == "x64" and "x86_64" or "aarch64")
    folder = #list < 18 and folder:match("^(.+)/[^/]*$") or nil
  end
  return list
end

local function readable(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function load()
  if linked() then return ffi.C end
  local chosen = os.getenv("MOELUA_LIB")
  if chosen and chosen ~= "" then return ffi.load(chosen) end
  for _, path in ipairs(candidates()) do
    if readable(path) then return ffi.load(path) end
  end
  local ok, lib = pcall(ffi.load, "moelua")
  if ok then return lib end
  error("cannot find libmoelua.so; set MOELUA_LIB to its path (" ..
    tostring(lib) .. ")", 0)
end

binding.lib = load()

-- has("moe_trainer_step"): whether the library that was found has it.
function binding.has(name)
  return (pcall(function() return binding.lib[name] end))
end

-- Lowercase name of a status: "ok", "invalid", ...
function binding.status(code)
  return ffi.string(binding.lib.moe_status_name(code)):lower()
end

return binding
