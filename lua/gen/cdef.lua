-- Owns the step from the preprocessed public headers to moelua/cdef.lua: the
-- text for ffi.cdef plus what LuaJIT cannot tell at run time (fields of
-- structs, names of enum values, functions).  With a third argument it also
-- writes a C table of sizes and offsets, which a test compares with LuaJIT's.
-- usage: gen cdef.lua HEADERS.i OUT.lua [OUT.inc]
local source, out_lua, out_inc = ...

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

-- "const char *order" -> "order", "const char *", nil
-- "double part_flops[16]" -> "part_flops", "double", 16
local function declarator(text)
  local name = text:match("%(%s*%*%s*([%w_]+)%s*%)")
  if name then return name, "function" end
  local kind, field, count = text:match("^(.-)([%w_]+)%s*%[(%d+)%]$")
  if not kind then
    kind, field = text:match("^(.-)([%w_]+)$")
  end
  kind = kind:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")
  return field, kind, tonumber(count)
end

-- Splits at commas outside of parentheses.
local function split_commas(text)
  local parts, depth, from = {}, 0, 1
  for at = 1, #text + 1 do
    local c = text:sub(at, at)
    if c == "(" then depth = depth + 1 end
    if c == ")" then depth = depth - 1 end
    if c == "" or (c == "," and depth == 0) then
      parts[#parts + 1] = text:sub(from, at - 1):match("^%s*(.-)%s*$")
      from = at + 1
    end
  end
  return parts
end

local function struct_fields(body)
  local fields = {}
  for line in body:gmatch("([^;]+);") do
    local base
    for i, part in ipairs(split_commas(line)) do
      local name, kind, count = declarator(part)
      if i == 1 then base = kind else kind = base end
      fields[#fields + 1] = { name = name, kind = kind, count = count }
    end
  end
  return fields
end

local text = read(source):gsub("\n%s*\n+", "\n")
local structs, enums, functions = {}, {}, {}
local BODY_AND_NAME = "%s+[%w_]+%s*(%b{})%s*([%w_]+)"
for body, name in text:gmatch("typedef%s+struct" .. BODY_AND_NAME) do
  structs[#structs + 1] = { name = name,
    fields = struct_fields(body:sub(2, -2)) }
end
for body, name in text:gmatch("typedef%s+enum" .. BODY_AND_NAME) do
  local values = {}
  for value in body:sub(2, -2):gmatch("([%a_][%w_]*)[^,]*") do
    values[#values + 1] = value
  end
  enums[#enums + 1] = { name = name, values = values }
end
for name in text:gmatch("[%s*](moe_[%w_]+)%s*%b()%s*;") do
  functions[#functions + 1] = name
end
assert(#structs > 5 and #enums > 5 and #functions > 20,
  "cdef: headers not understood")

local lines = { "-- Made from the public headers; do not edit.", "return {",
  "text = [==[" }
local function put(...) lines[#lines + 1] = string.format(...) end
lines[#lines + 1] = text .. "]==],"
put("structs = {")
for _, struct in ipairs(structs) do
  put("%s = {", struct.name)
  for _, f in ipairs(struct.fields) do
    put("{ name = %q, kind = %q, count = %s },", f.name, f.kind,
      f.count or "nil")
  end
  put("},")
end
put("},\nenums = {")
for _, enum in ipairs(enums) do
  put("%s = { '%s' },", enum.name, table.concat(enum.values, "', '"))
end
put("},\nfunctions = {")
for _, name in ipairs(functions) do put("%q,", name) end
put("},\n}\n")
write(out_lua, table.concat(lines, "\n"))

if out_inc then
  local rows = {}
  for _, struct in ipairs(structs) do
    rows[#rows + 1] = ("{\"%s\", \"\", sizeof(%s)},"):format(
      struct.name, struct.name)
    for _, f in ipairs(struct.fields) do
      rows[#rows + 1] = ("{\"%s\", \"%s\", offsetof(%s, %s)},"):format(
        struct.name, f.name, struct.name, f.name)
    end
  end
  write(out_inc, table.concat(rows, "\n") .. "\n")
end
