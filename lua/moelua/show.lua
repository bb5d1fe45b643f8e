-- Owns how the REPL prints values: Lua source where it can, tables shallow.
local ffi = require "ffi"

local LIMIT_ITEMS, LIMIT_WIDTH, LIMIT_TEXT = 40, 76, 400

local function quote(text)
  local cut = #text > LIMIT_TEXT
  local out = ("%q"):format(cut and text:sub(1, LIMIT_TEXT) or text)
  out = out:gsub("\\\n", "\\n"):gsub("\r", "\\r"):gsub("\t", "\\t")
    :gsub("[%z\1-\31\127]", function(c) return ("\\%03d"):format(c:byte()) end)
  return out .. (cut and (" .. (%d bytes)"):format(#text) or "")
end

local function number(x)
  if x == math.floor(x) and math.abs(x) < 2 ^ 53 then
    return ("%.0f"):format(x)
  end
  local short = ("%.14g"):format(x)
  return tonumber(short) == x and short or ("%.17g"):format(x)
end

local function brief(value)
  local kind = type(value)
  if kind == "string" then return quote(value) end
  if kind == "number" then return number(value) end
  if kind == "table" and not (getmetatable(value) or {}).__tostring then
    local count = 0
    for _ in pairs(value) do count = count + 1 end
    if count == 0 then return "{}" end
    return #value == count and ("{ %d items }"):format(count)
      or ("{ %d fields }"):format(count)
  end
  local ok, text = pcall(tostring, value)
  return ok and text or ("(%s: error in __tostring)"):format(kind)
end

local function key_text(key)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") then return key end
  return "[" .. brief(key) .. "]"
end

local function sorted_keys(value)
  local keys = {}
  for key in pairs(value) do
    if type(key) ~= "number" or key < 1 or key > #value
      or key ~= math.floor(key) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "string" or type(a) == "number") then
      return a < b
    end
    return tostring(a) < tostring(b)
  end)
  return keys
end

local function items_of(value)
  local items, left = {}, 0
  local function put(text)
    if #items < LIMIT_ITEMS then items[#items + 1] = text
    else left = left + 1 end
  end
  for i = 1, #value do put(brief(value[i])) end
  for _, key in ipairs(sorted_keys(value)) do
    put(key_text(key) .. " = " .. brief(value[key]))
  end
  if left > 0 then items[#items + 1] = ("-- %d more"):format(left) end
  return items
end

-- show(value) -> text, one level deep
return function(value)
  if type(value) == "cdata" and ffi.istype("int64_t", value) then
    return tostring(value)
  end
  if type(value) ~= "table" or (getmetatable(value) or {}).__tostring then
    return brief(value)
  end
  local items = items_of(value)
  if #items == 0 then return "{}" end
  local line = "{ " .. table.concat(items, ", ") .. " }"
  if #line <= LIMIT_WIDTH and not line:find("-- ", 1, true) then
    return line
  end
  return "{\n  " .. table.concat(items, ",\n  ") .. "\n}"
end
