-- Owns the command line of `moelua`: what is a recipe, a command, an option.
--
-- A command is a module with main(arguments) -> exit status:
-- 0 done, 1 a failed run, 2 wrong usage or an invalid recipe, 3 does not fit.
local near = require "moelua.near"
local job = require "moelua.ranks"
local report = require "moelua.report"

local cli = {}

cli.OK, cli.FAILED, cli.USAGE, cli.NOFIT = 0, 1, 2, 3

-- name, module, one line for `moelua help`
cli.commands = {
  { "check", "moelua.cli.check", "validate a recipe, report all its errors" },
  { "plan", "moelua.cli.plan", "memory a recipe needs, by device" },
  { "mesh", "moelua.cli.mesh", "groups of a layout, and who holds what" },
  { "checkpoint", "moelua.cli.checkpoint", "look at and verify checkpoints" },
  { "data", "moelua.cli.data", "prepare, describe, verify token files" },
  { "bench", "moelua.bench", "measure this machine and this library" },
  { "doctor", "moelua.cli.doctor", "what is on this machine, self-tests" },
  { "help", "moelua.cli.help", "help on a topic" },
}

-- What a file that cannot be opened means, by the code of the failure: the
-- user gave something wrong (USAGE), or the machine failed.
local WRONG_INPUT = { invalid = true, format = true, notfound = true,
  unsupported = true }
function cli.open_status(code)
  return WRONG_INPUT[code] and cli.USAGE or cli.FAILED
end

-- Prints "moelua: text" and how to get help; returns the usage status.
function cli.usage_error(text, topic)
  report.fail(text)
  if job.first() then
    io.stderr:write(("try 'moelua help%s'\n"):format(topic and " " .. topic
      or ""))
  end
  return cli.USAGE
end

-- ranks("16", "--world") -> 16 | nil, message
function cli.ranks(text, option)
  local ranks = tonumber(text)
  if ranks and ranks >= 1 and ranks < 2 ^ 31 and ranks % 1 == 0 then
    return ranks
  end
  return nil, ("%s takes a number of ranks, got '%s'"):format(option, text)
end

-- options(arguments, known) -> { flag or value by name, [i] = the rest }
-- known: { json = "flag", out = "value", ... }; nil, message on misuse.
-- "--" ends the options; "--out=x" and "--out x" are the same.
function cli.options(arguments, known)
  local result, i = {}, 1
  while i <= #arguments do
    local word = arguments[i]
    local name, value = word:match("^%-%-([^=]+)=?(.*)$")
    if word == "--" then
      for j = i + 1, #arguments do result[#result + 1] = arguments[j] end
      break
    elseif not name then
      if word:match("^%-.") then
        return nil, ("unknown option '%s'"):format(word)
      end
      result[#result + 1] = word
    elseif known[name] == "flag" then
      if word:find("=", 1, true) then
        return nil, ("option '--%s' takes no value"):format(name)
      end
      result[name] = true
    elseif known[name] == "value" then
      if not word:find("=", 1, true) then
        i = i + 1
        value = arguments[i]
      end
      if not value then
        return nil, ("option '--%s' needs a value"):format(name)
      end
      result[name] = value
    else
      local best = near.nearest(name, known)
      return nil, ("unknown option '--%s'%s"):format(name,
        best and ("; did you mean '--%s'?"):format(best) or "")
    end
    i = i + 1
  end
  return result
end

local function find_command(name)
  for _, command in ipairs(cli.commands) do
    if command[1] == name then return command end
  end
end

local function run_command(command, arguments)
  local ok, module = pcall(require, command[2])
  if not ok then
    if not tostring(module):find("module '" .. command[2] .. "'", 1, true) then
      error(module, 0)
    end
    report.fail(("'%s' is not part of this version"):format(command[1]))
    return cli.FAILED
  end
  return module.main(arguments)
end

local function unknown_command(name)
  local names = {}
  for i, command in ipairs(cli.commands) do names[i] = command[1] end
  local best = near.nearest(name, names)
  return cli.usage_error(("'%s' is neither a command nor a recipe%s"):format(
    name, best and ("; did you mean '%s'?"):format(best)
      or " (a recipe's name ends in .lua)"))
end

local function file_exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function rest(arguments, from)
  local list = {}
  for i = from, #arguments do list[#list + 1] = arguments[i] end
  return list
end

-- ---- lua(1)'s options ----

local function run_chunk(f, message, ...)
  if not f then
    report.fail(message)
    return cli.FAILED
  end
  local arguments, n = { ... }, select("#", ...)
  local ok, text = xpcall(function() return f(unpack(arguments, 1, n)) end,
    function(err)
      return type(err) == "string" and debug.traceback(err, 2) or tostring(err)
    end)
  io.stdout:flush()
  if not ok then
    report.fail(text)
    return cli.FAILED
  end
  return cli.OK
end

local function print_version()
  local moe = require "moelua"
  io.stdout:write(("MoELua %s (%s)\n"):format(moe.version, jit.version))
  return cli.OK
end

local OPTIONS = {}

OPTIONS["-e"] = function(value) return run_chunk(loadstring(value, "=-e")) end
OPTIONS["-i"] = function(value) return run_chunk(loadfile(value)) end
OPTIONS["-l"] = function(value)
  return run_chunk(function() require(value) end)
end

local WORDS = { ["-v"] = true, ["--version"] = true, ["-h"] = true,
  ["--help"] = true, ["-e"] = true, ["-i"] = true, ["-l"] = true }

-- Options in order; then the REPL, unless -e, -v or a failure came.
local function run_options(arguments)
  local i, interactive = 1, true
  _G.arg = arguments
  while i <= #arguments do
    local word = arguments[i]
    local name, value = word:sub(1, 2), word:sub(3)
    if word == "-v" or word == "--version" then
      print_version()
      interactive = false
    elseif word == "-h" or word == "--help" then
      return require("moelua.cli.help").main {}
    elseif OPTIONS[name] and word:sub(1, 2) ~= "--" then
      if value == "" then
        i = i + 1
        value = arguments[i]
        if not value then
          return cli.usage_error(("option '%s' needs a value"):format(name))
        end
      end
      local status = OPTIONS[name](value)
      if status ~= cli.OK then return status end
      if name == "-e" then interactive = false end
      if name == "-i" then interactive = true end
    elseif word:sub(1, 1) == "-" then
      return cli.usage_error(("unknown option '%s'%s"):format(word,
        near.hint(word, WORDS)))
    else
      break
    end
    i = i + 1
  end
  if i <= #arguments then return cli.dispatch(rest(arguments, i)) end
  if not interactive then return cli.OK end
  return require("moelua.repl").start()
end

-- A recipe or a command with its arguments.
function cli.dispatch(arguments)
  local name = arguments[1]
  local command = find_command(name)
  if command then return run_command(command, rest(arguments, 2)) end
  if name:match("%.lua$") or name:find("/", 1, true) or file_exists(name) then
    return require("moelua.cli.run").main(arguments)
  end
  return unknown_command(name)
end

-- arguments: [0] the program's name, [1].. as typed. Returns the exit status.
function cli.main(arguments)
  if #arguments == 0 then return require("moelua.repl").start() end
  if arguments[1]:sub(1, 1) == "-" then return run_options(arguments) end
  return cli.dispatch(arguments)
end

return cli
