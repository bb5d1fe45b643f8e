-- Owns the way from texts to a token file.  Documents are whole files, lines,
-- the text field of JSON lines, or what an iterator gives; each ends with the
-- tokenizer's end-of-document id, where it has one.
local struct = require "moelua.struct"

local prepare = {}

local RULES = {
  tokenizer = "any", out = "string", files = "table?", texts = "function?",
  documents = "string?",
  field = "string?", eod = "boolean?", special = "boolean?",
  progress = "function?",
}

prepare.KINDS = { "auto", "file", "line", "jsonl" }

-- Each reader calls add(text) for every document of a file, and returns true,
-- or nil, message, code.
local readers = {}

function readers.file(path, add)
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "io" end
  local text = file:read("*a")
  file:close()
  if not text then return nil, path .. ": cannot read", "io" end
  return add(text)
end

local function each_line(path, visit)
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "io" end
  local number = 0
  for line in file:lines() do
    number = number + 1
    local ok, text, code = visit((line:gsub("\r$", "")), number)
    if not ok then
      file:close()
      return nil, text, code
    end
  end
  file:close()
  return true
end

function readers.line(path, add)
  return each_line(path, function(line)
    return line == "" or add(line)
  end)
end

function readers.jsonl(path, add, field)
  local json = require "moelua.json"
  return each_line(path, function(line, number)
    if not line:find("%S") then return true end
    local object, message = json.decode(line)
    if type(object) ~= "table" then
      return nil, ("%s:%d: %s"):format(path, number,
        message or "not a JSON object"), "format"
    end
    if type(object[field]) ~= "string" then
      return nil, ("%s:%d: no text in field '%s'; choose another field"):format(
        path, number, field), "format"
    end
    return add(object[field])
  end)
end

local function reader_of(kind, path)
  if kind == "auto" then
    kind = path:match("%.jsonl$") and "jsonl" or "file"
  end
  return readers[kind]
end

-- Copies ids and appends `eod`, in a buffer that grows.
local function with_eod(buffer, ids, count, eod)
  local ffi = require "ffi"
  if count + 1 > buffer.size then
    buffer.size = math.max(2 * buffer.size, count + 1)
    buffer.ids = ffi.new("int32_t[?]", buffer.size)
  end
  ffi.copy(buffer.ids, ids, 4 * count)
  buffer.ids[count] = eod
  return buffer.ids, count + 1
end

local function encode_all(options, tokenizer, writer, totals)
  local eod = options.eod ~= false and tokenizer:eod() or nil
  local buffer, special = { size = 0 }, { special = options.special or false }
  local function add(text)
    local ids, count, code = tokenizer:encode_raw(text, special)
    if not ids then return nil, count, code end
    if eod then ids, count = with_eod(buffer, ids, count, eod) end
    local ok, message
    ok, message, code = writer:add(ids, count)
    if not ok then return nil, message, code end
    totals.documents = totals.documents + 1
    totals.bytes = totals.bytes + #text
    totals.tokens = totals.tokens + count
    if options.progress then options.progress(totals) end
    return true
  end
  for text in options.texts or function() end do
    local ok, message, code = add(text)
    if not ok then return nil, message, code end
  end
  for _, path in ipairs(options.files or {}) do
    local read = reader_of(options.documents or "auto", path)
    local ok, message, code = read(path, add, options.field or "text")
    if not ok then return nil, message, code end
  end
  return true
end

-- run(context, { tokenizer = object or path, out = prefix,
--   files = {...} or texts = iterator of strings,
--   documents = "auto" (jsonl by name, else file), "file", "line", "jsonl",
--   field = "text", eod = true, special = false, progress = f(totals) })
-- -> { documents, tokens, bytes } | nil, message, code
function prepare.run(context, options)
  struct.check(2, "prepare", options, RULES)
  local kind = options.documents or "auto"
  if kind ~= "auto" and not readers[kind] then
    error(("prepare: unknown kind of documents '%s'%s"):format(kind,
      require("moelua.near").hint(kind, prepare.KINDS)), 2)
  end
  local message, code
  local tokenizer = options.tokenizer
  if type(tokenizer) == "string" then
    tokenizer, message, code = context:tokenizer(tokenizer)
    if not tokenizer then return nil, message, code end
  end
  local writer
  writer, message, code = context:token_writer(options.out, tokenizer:vocab())
  if not writer then return nil, message, code end
  local totals = { documents = 0, tokens = 0, bytes = 0 }
  local ok
  ok, message, code = encode_all(options, tokenizer, writer, totals)
  if ok then ok, message, code = writer:finish() end
  writer:close()
  if tokenizer ~= options.tokenizer then tokenizer:close() end
  if not ok then return nil, message, code end
  return totals
end

return prepare
