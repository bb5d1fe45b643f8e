-- MoELua in Lua: `local moe = require "moelua"`.  Sets no global.
--
-- Misuse raises an error at the caller's line; what the world does wrong
-- (files, memory, numbers) returns nil, message, code, where code is a
-- lowercase status name ("invalid", "io", "notfound", ...).
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local near = require "moelua.near"
local Context = require "moelua.context"

local moe = {}

-- Version of the library that runs, "major.minor.patch".
moe.version = ffi.string(binding.lib.moe_version())

-- context{threads=, isa=, log=} -> context. Everything below also exists as a
-- method of a context; without one a shared default context is used.
moe.context = Context.create

local default

-- The shared context, made on first use.
function moe.default()
  if not default then
    local message, code
    default, message, code = Context.create {}
    if not default then return nil, message, code end
  end
  return default
end

-- Methods that make objects: name -> function(context, ...). All calls down
-- to the maker are tail calls, so that level 2 there is the user's line.
local MAKERS = {
  tokens = function(...) return require("moelua.tokens").Tokens.open(...) end,
  token_writer = function(...)
    return require("moelua.tokens").Writer.create(...)
  end,
  loader = function(...) return require("moelua.loader").create(...) end,
  tokenizer = function(...) return require("moelua.tokenizer").open(...) end,
  trainer = function(...) return require("moelua.trainer").create(...) end,
  checkpoint = function(...)
    return require("moelua.checkpoint").open(...)
  end,
  mesh = function(...) return require("moelua.mesh").Mesh.create(...) end,
  placement = function(...) return require("moelua.mesh").placement(...) end,
  prepare = function(...) return require("moelua.prepare").run(...) end,
}

for name, make in pairs(MAKERS) do
  Context[name] = function(self, ...)
    handle.pointer(self, Context, 2)
    return make(self, ...)
  end
  moe[name] = function(...)
    local context, message, code = moe.default()
    if not context then return nil, message, code end
    return make(context, ...)
  end
end

for _, name in ipairs { "plan_memory", "bench_peak", "check_config" } do
  moe[name] = function(...)
    local context, message, code = moe.default()
    if not context then return nil, message, code end
    return Context[name](context, ...)
  end
end

-- Bytes of memory a process may use here, cgroup limits included.
function moe.machine_memory()
  return tonumber(binding.lib.moe_machine_memory())
end

-- status(code) -> lowercase name of a C status code
moe.status = binding.status

-- Modules that are loaded when they are first asked for.
local LAZY = {
  models = "moelua.models",
  recipe = "moelua.recipe",
  json = "moelua.json",
  report = "moelua.report",
}

-- Words of recipes (moe.adamw, moe.cosine, ...) come from recipe.words.
local function lookup(key)
  if LAZY[key] then return require(LAZY[key]) end
  return require("moelua.recipe").words[key]
end

return setmetatable(moe, {
  __index = function(self, key)
    local value = type(key) == "string" and lookup(key)
    if not value then
      local names = {}
      for name in pairs(self) do names[name] = true end
      for name in pairs(LAZY) do names[name] = true end
      for name in pairs(require("moelua.recipe").words) do
        names[name] = true
      end
      error(("moelua has no field '%s'%s"):format(tostring(key),
        near.hint(key, names)), 2)
    end
    rawset(self, key, value)
    return value
  end,
  __tostring = function(self) return "moelua " .. self.version end,
})
