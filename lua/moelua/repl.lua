-- Owns the interactive prompt.  A line that is an expression prints its
-- values; a line that is not finished asks for more.  Input from a pipe is
-- read the same way, without a prompt, and stops at the first error.
local report = require "moelua.report"
local show = require "moelua.show"
local sys = require "moelua.sys"

local repl = {}

-- compile(text) -> function | nil, message, whether more lines may finish it
function repl.compile(text)
  local f = loadstring("return " .. text:gsub("^%s*=", ""), "=stdin")
  if f then return f end
  local message
  f, message = loadstring(text, "=stdin")
  if f then return f end
  return nil, message, message:find("near '?<eof>'?$") ~= nil
end

local function print_values(n, values)
  if n == 0 then return end
  local parts = {}
  for i = 1, n do parts[i] = show(values[i]) end
  io.stdout:write(table.concat(parts, "\t"), "\n")
end

local function traceback(message)
  if type(message) ~= "string" then return show(message) end
  if message:find("interrupted$") then return message end
  local text = debug.traceback(message, 2)
  return (text:gsub("\n%s*%[C%]: in function 'xpcall'.*$", ""))
end

-- run(f) -> true, or nil after printing the error
function repl.run(f)
  local function pack(ok, ...) return ok, select("#", ...), { ... } end
  local ok, n, values = pack(xpcall(f, traceback))
  io.stdout:flush()
  if not ok then
    report.fail(tostring(values[1]))
    return nil
  end
  print_values(n, values)
  io.stdout:flush()
  return true
end

-- ---- completion ----

local KEYWORDS = { "and", "break", "do", "else", "elseif", "end", "false",
  "for", "function", "goto", "if", "in", "local", "nil", "not", "or",
  "repeat", "return", "then", "true", "until", "while" }

-- Fields of a value and, where it is an object, of its class; no field with a
-- leading underscore, no call into __index functions.
local function field_names(value)
  local names, depth = {}, 0
  while type(value) == "table" and depth < 5 do
    for key in pairs(value) do
      if type(key) == "string" and key:match("^%a[%w_]*$") then
        names[key] = true
      end
    end
    local meta = getmetatable(value)
    local index = type(meta) == "table" and rawget(meta, "__index")
    value = type(index) == "function" and rawget(meta, "name") and meta or index
    depth = depth + 1
  end
  if type(value) == "string" then
    for key in pairs(string) do names[key] = true end
  end
  return names
end

-- The value of a path "a.b.c" from the globals; never calls a metamethod.
local function resolve(path)
  local value = _G
  for name in path:gmatch("[%w_]+") do
    if type(value) ~= "table" then return nil end
    value = rawget(value, name)
  end
  return value
end

-- complete(word) -> sorted array of what it may become
function repl.complete(word)
  local base, separator, start = word:match("^(.*)([.:])([%w_]*)$")
  local names
  if base then
    names = field_names(resolve(base))
  else
    start, base, separator = word, "", ""
    names = field_names(_G)
    for _, keyword in ipairs(KEYWORDS) do names[keyword] = true end
  end
  local list = {}
  for name in pairs(names) do
    if name:sub(1, #start) == start then
      list[#list + 1] = base .. separator .. name
    end
  end
  table.sort(list)
  return list
end

-- ---- where lines come from ----

local function history_path()
  local folder = sys.state_folder()
  if not folder or not sys.mkdirs(folder) then return nil end
  return folder .. "/history"
end

-- A reader: read(prompt) -> line | nil at the end | false after Ctrl-C
local function terminal_reader()
  local ok, line = pcall(require, "moelua.line")
  if not ok then
    return { read = function(prompt)
      io.stdout:write(prompt)
      io.stdout:flush()
      return io.read("*l")
    end, add = function() end, done = function() end }
  end
  local path = history_path()
  if path then line.load(path) end
  line.completer(repl.complete)
  return {
    read = line.read,
    add = line.add,
    done = function() if path then line.save(path) end end,
  }
end

-- Reads one statement or expression: text, function | nil at the end | false
-- when it was given up.
local function read_statement(reader)
  local text
  while true do
    local line = reader.read(text and ">> " or "> ")
    if line == false then
      io.stdout:write("\n")
      return false
    end
    if line == nil then return nil, text end
    text = text and text .. "\n" .. line or line
    local f, message, unfinished = repl.compile(text)
    if f or not unfinished then
      if text:find("%S") then reader.add((text:gsub("\n", " "))) end
      return f or false, message
    end
  end
end

local function interactive()
  local reader = terminal_reader()
  while true do
    local f, message = read_statement(reader)
    if f == nil then break end
    if f then
      repl.run(f)
    elseif message then
      report.fail(message)
    end
  end
  io.stdout:write("\n")
  reader.done()
  return 0
end

local function piped()
  local reader = { read = function() return io.read("*l") end,
    add = function() end }
  while true do
    local f, message = read_statement(reader)
    if f == nil then
      if not message then return 0 end
      local _, text = repl.compile(message)
      report.fail(text or "input ends in the middle of a statement")
      return 1
    end
    if not f then
      report.fail(message)
      return 1
    end
    if not repl.run(f) then return 1 end
  end
end

-- start() -> exit status. The global `moe` is there for convenience.
function repl.start()
  local moe = require "moelua"
  rawset(_G, "moe", rawget(_G, "moe") or moe)
  if not sys.is_terminal("stdin") then return piped() end
  io.stdout:write(("MoELua %s on %s. moe.%s; Ctrl-D leaves.\n"):format(
    moe.version, jit.version, "<Tab> lists what there is"))
  return interactive()
end

return repl
