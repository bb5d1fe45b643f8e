-- Owns the reading of tables that a user wrote: unknown keys, types, ranges,
-- defaults.  A schema is an ordered list of keys, so that the documentation
-- can be made from the same list:
--
--   { "steps", "integer", min = 1, required = true, doc = "..." }
--
-- Kinds: integer, number, string, boolean, enum (values), table (keys), list
-- (item), any (read: a function of value, path, problems).  Invariant: what
-- read() returns has only known keys with values in range; every problem is a
-- line "path: text", and all of them are found.
local near = require "moelua.near"

local schema = {}

-- A value from the command line: text that takes the type its key wants.
local Text = {}
function schema.text(text) return setmetatable({ text = text }, Text) end

local BOOLEANS = { ["true"] = true, ["false"] = false, yes = true, no = false }

-- Text without a wanted type: a number, a boolean, or itself.
local function guess(text)
  if tonumber(text) then return tonumber(text) end
  if BOOLEANS[text] ~= nil then return BOOLEANS[text] end
  return text
end

local function contains(values, name)
  for _, value in ipairs(values or {}) do
    if value == name then return true end
  end
  return false
end

local function split(text)
  local items = {}
  for item in text:gmatch("[^,]+") do
    items[#items + 1] = schema.text(item:match("^%s*(.-)%s*$"))
  end
  return items
end

-- The plain value for a key from what was given; nil: leave the key out.
local function plain(key, value)
  if getmetatable(value) ~= Text then return value end
  local text = value.text
  if key.kind == "enum" and contains(key.values, text) then return text end
  if text == "none" or text == "nil" then return nil end
  if key.kind == "string" or key.kind == "enum" then return text end
  if key.kind == "list" then return split(text) end
  return guess(text)
end

local function show(value)
  if type(value) == "string" then return ("'%s'"):format(value) end
  if type(value) == "number" then return ("%.10g"):format(value) end
  if type(value) == "boolean" then return tostring(value) end
  return type(value)
end

schema.show = show

local ARTICLE = { integer = "a whole number", number = "a number",
  string = "text in quotes", boolean = "true or false", table = "a table",
  list = "a list", enum = "a name in quotes" }

local function number_problem(key, value)
  if value ~= value or value == math.huge or value == -math.huge then
    return ("%s is not a finite number"):format(show(value))
  end
  if key.kind == "integer" and value ~= math.floor(value) then
    return ("%s is not a whole number"):format(show(value))
  end
  local hint = key.hint and ("; " .. key.hint) or ""
  if key.above and value <= key.above then
    return ("%s must be above %s%s"):format(show(value), show(key.above), hint)
  end
  if key.min and value < key.min then
    return ("%s must be at least %s%s"):format(show(value), show(key.min), hint)
  end
  local max = key.max or (key.kind == "integer" and 2 ^ 31 - 1)
  if max and value > max then
    return ("%s must be at most %s%s"):format(show(value), show(max), hint)
  end
end

local READERS = {}

function READERS.number(key, value, path, problems)
  local problem = number_problem(key, value)
  if not problem then return value end
  problems[#problems + 1] = path .. ": " .. problem
end
READERS.integer = READERS.number

function READERS.string(key, value, path, problems)
  if value ~= "" or key.empty then return value end
  problems[#problems + 1] = path .. ": is empty"
end

function READERS.boolean(_, value) return value end

function READERS.enum(key, value, path, problems)
  if contains(key.values, value) then return value end
  problems[#problems + 1] = ("%s: unknown name '%s'%s"):format(path, value,
    near.hint(value, key.values))
end

function READERS.list(key, value, path, problems)
  if type(value) == "string" then value = split(value) end
  local items = {}
  for name in pairs(value) do
    if type(name) ~= "number" then
      problems[#problems + 1] = ("%s.%s: %s is a list, it has no names")
        :format(path, tostring(name), path)
    end
  end
  for i, item in ipairs(value) do
    items[#items + 1] = schema.value(key.item, item,
      ("%s[%d]"):format(path, i), problems)
  end
  return items
end

function READERS.table(key, value, path, problems)
  return schema.read(key.keys, value, path, problems)
end

local LUA_TYPE = { integer = "number", enum = "string", list = "table" }

-- value(key, given, path, problems) -> the checked value, or nil
function schema.value(key, given, path, problems)
  given = plain(key, given)
  if given == nil then return nil end
  if key.kind == "any" then return key.read(given, path, problems) end
  local want = LUA_TYPE[key.kind] or key.kind
  local fits = type(given) == want
    or (key.kind == "list" and type(given) == "string")
  if not fits then
    problems[#problems + 1] = ("%s: expected %s, got %s"):format(path,
      ARTICLE[key.kind], show(given))
    return nil
  end
  return READERS[key.kind](key, given, path, problems)
end

local function join(path, name)
  if path == "" then return tostring(name) end
  return path .. "." .. tostring(name)
end

-- Names of a schema as a set.
function schema.names(keys)
  local names = {}
  for _, key in ipairs(keys) do names[key[1]] = key end
  return names
end

local function unknown_keys(keys, given, path, problems)
  local names, unknown = schema.names(keys), {}
  for name in pairs(given) do
    if not names[name] then unknown[#unknown + 1] = tostring(name) end
  end
  table.sort(unknown)
  for _, name in ipairs(unknown) do
    problems[#problems + 1] = ("%s: unknown key%s"):format(join(path, name),
      near.hint(name, names))
  end
end

-- Defaults that are tables are made anew each time.
local function default_of(key)
  if key.kind == "table" and key.default then
    return schema.read(key.keys, {}, "", {})
  end
  if type(key.default) == "table" then return { unpack(key.default) } end
  return key.default
end

-- read(keys, given, path, problems) -> a new table with defaults filled in
function schema.read(keys, given, path, problems)
  local out = {}
  unknown_keys(keys, given, path, problems)
  for _, key in ipairs(keys) do
    local name = key[1]
    local before = #problems
    local value = schema.value(key, given[name], join(path, name), problems)
    if value == nil and #problems == before then
      value = default_of(key)
      if value == nil and key.required then
        problems[#problems + 1] = ("%s: is missing (%s)"):format(
          join(path, name), key.doc)
      end
    end
    out[name] = value
  end
  return out
end

-- keys{ {"name", "kind", ...}, ... } -> the same list; kinds are checked here,
-- at load time, so that a wrong schema cannot hide.
function schema.keys(list)
  for _, key in ipairs(list) do
    key.kind = key[2]
    if key.kind ~= "any" and not READERS[key.kind] then
      error(("schema: key '%s' has no kind '%s'"):format(key[1],
        tostring(key.kind)), 2)
    end
    if not key.doc then error("schema: no doc for " .. key[1], 2) end
  end
  return list
end

-- Several lists as one.
function schema.join(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, key in ipairs(list) do all[#all + 1] = key end
  end
  return all
end

-- A copy of keys where the defaults of some are others (false: none), or are
-- required: { name = value } .
function schema.with_defaults(keys, defaults)
  local copies = {}
  for i, key in ipairs(keys) do
    local copy = {}
    for name, value in pairs(key) do copy[name] = value end
    if defaults[key[1]] ~= nil then copy.default = defaults[key[1]] end
    copies[i] = copy
  end
  return copies
end

return schema
