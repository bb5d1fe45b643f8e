-- Owns the C table of Lua modules inside the program: text, so that any
-- LuaJIT of the same ABI can load it.  A module that does not parse fails here.
-- usage: gen embed.lua OUT.c ROOT FILES...   (ROOT/moelua/x.lua: moelua.x)
local out, count = ..., select("#", ...)
local args = { ... }

local function module_name(path)
  local name = path:match("(moelua/[%w_/]+)%.lua$")
  assert(name, path .. ": not a path moelua/NAME.lua")
  return (name:gsub("/init$", ""):gsub("/", "."))
end

local function c_bytes(text)
  local parts = {}
  for at = 1, #text, 24 do
    local row = {}
    for _, byte in ipairs { text:byte(at, at + 23) } do row[#row + 1] = byte end
    parts[#parts + 1] = table.concat(row, ",") .. ","
  end
  return table.concat(parts, "\n")
end

local chunks = { '#include "modules.h"' }
local rows = {}
for i = 2, count do
  local file = assert(io.open(args[i], "rb"))
  local text = file:read("*a")
  file:close()
  local name = module_name(args[i])
  assert(loadstring(text, "@" .. args[i]))
  chunks[#chunks + 1] =
    ("static const unsigned char text_%d[] = {\n%s0};"):format(i, c_bytes(text))
  rows[#rows + 1] =
    ('  {"%s", (const char *)text_%d, %d},'):format(name, i, #text)
end
chunks[#chunks + 1] = "const struct lua_module lua_modules[] = {"
chunks[#chunks + 1] = table.concat(rows, "\n")
chunks[#chunks + 1] = "  {0, 0, 0},\n};\n"
local file = assert(io.open(out, "wb"))
assert(file:write(table.concat(chunks, "\n")))
assert(file:close())
