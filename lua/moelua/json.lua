-- Owns JSON text.  encode sorts keys; an object that wants an order is made
-- with json.object{ {key, value}, ... }, an empty array with json.array{}.
-- null is json.null; NaN and infinities become null.
local ffi = require "ffi"

local json = { null = setmetatable({}, { __tostring = function()
  return "null"
end }) }

local Object, Array = {}, {}

function json.object(pairs_list) return setmetatable(pairs_list, Object) end
function json.array(list) return setmetatable(list, Array) end

local ESCAPES = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f",
  ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
}

-- Bytes that are not UTF-8 become U+FFFD, so that the text is always valid.
function json.utf8(text)
  if not text:find("[\128-\255]") then return text end
  local out, at = {}, 1
  while at <= #text do
    local n = json.utf8_length(text, at)
    out[#out + 1] = n and text:sub(at, at + n - 1) or "\239\191\189"
    at = at + (n or 1)
  end
  return table.concat(out)
end

-- Bytes of the UTF-8 character at `at`, nil where there is none.
function json.utf8_length(text, at)
  local a, b = text:byte(at, at + 1)
  if a < 0x80 then return 1 end
  b = b or 0
  local n
  if a >= 0xC2 and a <= 0xDF then n = 2
  elseif a >= 0xE0 and a <= 0xEF then
    n = 3
    if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F) then return nil end
  elseif a >= 0xF0 and a <= 0xF4 then
    n = 4
    if (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F) then return nil end
  else return nil end
  for i = at + 1, at + n - 1 do
    local c = text:byte(i)
    if not c or c < 0x80 or c > 0xBF then return nil end
  end
  return n
end

local function encode_string(text)
  return '"' .. json.utf8(text):gsub('[%c"\\\127]', function(c)
    return ESCAPES[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

local function encode_number(x)
  if x ~= x or x == math.huge or x == -math.huge then return "null" end
  if x == math.floor(x) and math.abs(x) < 2 ^ 53 then
    return ("%.0f"):format(x)
  end
  for digits = 15, 16 do
    local text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then return text end
  end
  return ("%.17g"):format(x)
end

local encode

local function encode_object(items)
  local parts = {}
  for i, item in ipairs(items) do
    parts[i] = encode_string(tostring(item[1])) .. ":" .. encode(item[2])
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function encode_table(value)
  local class = getmetatable(value)
  if value == json.null then return "null" end
  if class == Object then return encode_object(value) end
  if class == Array or value[1] ~= nil then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = encode(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  local items = {}
  for key, item in pairs(value) do items[#items + 1] = { key, item } end
  table.sort(items, function(a, b) return tostring(a[1]) < tostring(b[1]) end)
  return encode_object(items)
end

function encode(value)
  local kind = type(value)
  if kind == "table" then return encode_table(value) end
  if kind == "string" then return encode_string(value) end
  if kind == "number" then return encode_number(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "nil" then return "null" end
  if ffi.istype("int64_t", value) or ffi.istype("uint64_t", value) then
    return (tostring(value):gsub("[UL]+$", ""))
  end
  error("json: cannot encode a " .. kind, 2)
end

json.encode = encode

-- ---- reading ----

local function fail(text, at, what)
  local _, line = text:sub(1, at):gsub("\n", "")
  error({ json = ("line %d: %s"):format(line + 1, what) }, 0)
end

local function skip(text, at) return text:match("^[ \t\r\n]*()", at) end

local function utf8_char(code)
  if code < 0x80 then return string.char(code) end
  local tail, limit = {}, 0x40
  while code >= limit do
    table.insert(tail, 1, string.char(0x80 + code % 64))
    code = math.floor(code / 64)
    limit = limit == 0x40 and 0x20 or limit / 2
  end
  local lead = ({ 0xC0, 0xE0, 0xF0 })[#tail]
  return string.char(lead + code) .. table.concat(tail)
end

local UNESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function decode_escape(text, at)
  local c = text:sub(at + 1, at + 1)
  if c ~= "u" then return UNESCAPES[c] or c, at + 2 end
  local code = tonumber(text:match("^%x%x%x%x", at + 2) or
    fail(text, at, "bad \\u escape"), 16)
  at = at + 6
  if code >= 0xD800 and code < 0xDC00 then
    local low = text:match("^\\u([dD][c-fC-F]%x%x)", at)
    if not low then return "\239\191\189", at end
    code = 0x10000 + (code - 0xD800) * 1024 + tonumber(low, 16) - 0xDC00
    at = at + 6
  elseif code >= 0xDC00 and code < 0xE000 then
    return "\239\191\189", at
  end
  return utf8_char(code), at
end

local function decode_string(text, at)
  local parts, from = {}, at + 1
  while true do
    local stop = text:find('["\\]', from)
    if not stop then fail(text, at, "string without end") end
    parts[#parts + 1] = text:sub(from, stop - 1)
    if text:byte(stop) == 34 then return table.concat(parts), stop + 1 end
    parts[#parts + 1], from = decode_escape(text, stop)
  end
end

local decode_value

local function decode_array(text, at)
  local list = json.array {}
  at = skip(text, at + 1)
  if text:sub(at, at) == "]" then return list, at + 1 end
  while true do
    list[#list + 1], at = decode_value(text, at)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "]" then return list, at + 1 end
    if c ~= "," then fail(text, at, "expected ',' or ']'") end
    at = at + 1
  end
end

local function decode_object(text, at)
  local object = {}
  at = skip(text, at + 1)
  if text:sub(at, at) == "}" then return object, at + 1 end
  while true do
    at = skip(text, at)
    if text:sub(at, at) ~= '"' then fail(text, at, "expected a key") end
    local key
    key, at = decode_string(text, at)
    at = skip(text, at)
    if text:sub(at, at) ~= ":" then fail(text, at, "expected ':'") end
    object[key], at = decode_value(text, at + 1)
    at = skip(text, at)
    local c = text:sub(at, at)
    if c == "}" then return object, at + 1 end
    if c ~= "," then fail(text, at, "expected ',' or '}'") end
    at = at + 1
  end
end

local LITERALS = { ["true"] = true, ["false"] = false, null = json.null }

function decode_value(text, at)
  at = skip(text, at)
  local c = text:sub(at, at)
  if c == "{" then return decode_object(text, at) end
  if c == "[" then return decode_array(text, at) end
  if c == '"' then return decode_string(text, at) end
  local number, after = text:match("^(%-?%d[%d.eE+-]*)()", at)
  if number and tonumber(number) then return tonumber(number), after end
  local word = text:match("^%a+", at)
  if word and LITERALS[word] ~= nil then
    return LITERALS[word], at + #word
  end
  fail(text, at, c == "" and "text ends early" or "unexpected '" .. c .. "'")
end

-- decode(text) -> value | nil, message, "format"
function json.decode(text)
  local ok, value, at = pcall(decode_value, text, 1)
  if not ok then
    if type(value) ~= "table" then error(value, 0) end
    return nil, "json: " .. value.json, "format"
  end
  at = skip(text, at)
  if at <= #text then return nil, "json: text after the value", "format" end
  return value
end

return json
