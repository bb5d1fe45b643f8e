-- Owns `moelua data prepare|info|verify`.
local cli = require "moelua.cli"
local corpora = require "moelua.corpora"
local json = require "moelua.json"
local near = require "moelua.near"
local prepare = require "moelua.prepare"
local report = require "moelua.report"
local sys = require "moelua.sys"

local data = {}
local actions = {}

local function failed(message, status)
  report.fail(message)
  return status or cli.FAILED
end

-- Redraws one line on a terminal, at most ten times a second.
local function progress_line()
  if not sys.is_terminal("stderr") then return nil end
  local last, start = 0, sys.now()
  return function(totals)
    local now = sys.now()
    if now - last < 0.1 then return end
    last = now
    io.stderr:write(("\r\27[K%s documents, %s tokens, %s/s"):format(
      report.integer(totals.documents), report.count(totals.tokens),
      report.bytes(totals.bytes / (now - start))))
  end
end

local function print_fields(options, fields)
  if options.json then
    io.stdout:write(json.encode(json.object(fields)), "\n")
    return
  end
  local rows = {}
  for i, field in ipairs(fields) do
    local value = field[2]
    rows[i] = { field[1], type(value) == "number" and report.integer(value)
      or tostring(value) }
  end
  io.stdout:write(report.table { rows = rows })
end

-- `data prepare NAME`: a text this machine has (moelua.corpora).
local function fill_in_corpus(options)
  local corpus = #options == 1 and corpora[options[1]]
  if not corpus or sys.exists(options[1]) then return nil end
  options.tokenizer = options.tokenizer or "bytes"
  options.out = options.out or "data/" .. options[1]
  return corpus
end

local PREPARE = { tokenizer = "value", out = "value", documents = "value",
  field = "value", ["no-eod"] = "flag", special = "flag", json = "flag" }

local function check_prepare(options)
  options.corpus = fill_in_corpus(options)
  if not options.tokenizer then
    return "data prepare needs --tokenizer ('bytes' or a tokenizer.json)"
  elseif not options.out then
    return "data prepare needs --out PREFIX"
  elseif #options == 0 then
    return "data prepare needs the text files to read"
  end
  local kind = options.documents
  if not kind then return nil end
  for _, known in ipairs(prepare.KINDS) do
    if kind == known then return nil end
  end
  return ("--documents: unknown kind '%s'%s"):format(kind,
    near.hint(kind, prepare.KINDS))
end

local function make_folder(prefix)
  local folder = prefix:match("^(.*)/[^/]*$")
  if not folder or folder == "" then return true end
  return sys.mkdirs(folder)
end

function actions.prepare(context, options)
  local progress = progress_line()
  local files, texts, message = {}
  for i, path in ipairs(options) do files[i] = path end
  if options.corpus then
    files = nil
    texts, message = options.corpus()
    if not texts then return failed(message) end
  end
  local tokenizer, made, code
  tokenizer, message, code = context:tokenizer(options.tokenizer)
  if not tokenizer then return failed(message, cli.open_status(code)) end
  made, message = make_folder(options.out)
  if not made then return failed(message) end
  local start = sys.now()
  local totals
  totals, message = context:prepare {
    tokenizer = tokenizer, out = options.out, files = files,
    texts = texts,
    documents = options.documents, field = options.field,
    eod = not options["no-eod"], special = options.special,
    progress = progress,
  }
  tokenizer:close()
  if progress then io.stderr:write("\r\27[K") end
  if not totals then return failed(message) end
  print_fields(options, {
    { "prefix", options.out }, { "documents", totals.documents },
    { "tokens", totals.tokens }, { "bytes", totals.bytes },
  })
  report.say(("wrote %s.bin and %s.idx in %s"):format(options.out, options.out,
    report.duration(sys.now() - start)))
  return cli.OK
end

local function describe(options, prefix, info)
  print_fields(options, {
    { "prefix", prefix }, { "sequences", info.sequences },
    { "documents", info.documents }, { "tokens", info.tokens },
    { "id_bytes", info.id_bytes }, { "max_id", info.max_id },
  })
end

-- Opens each prefix and shows what `look` returns about it. What is no token
-- file is wrong usage; bad ids in one are a failure. The worst status counts.
local function each(context, options, look)
  local status = cli.OK
  for _, prefix in ipairs(options) do
    local info
    local tokens, message, code = context:tokens(prefix)
    local bad = not tokens and cli.open_status(code) or cli.FAILED
    if tokens then
      info, message = look(tokens)
      tokens:close()
    end
    if info then
      describe(options, prefix, info)
    else
      status = math.max(status, failed(message, bad))
    end
  end
  return status
end

function actions.info(context, options)
  return each(context, options, function(tokens) return tokens:info() end)
end

function actions.verify(context, options)
  local vocab = tonumber(options.vocab or 0)
  local status = each(context, options, function(tokens)
    return tokens:verify(vocab)
  end)
  if status == cli.OK then report.say("every id read and in range") end
  return status
end

local KNOWN = {
  prepare = PREPARE,
  info = { json = "flag" },
  verify = { json = "flag", vocab = "value" },
}

local function check_usage(action, options)
  if action == "prepare" then return check_prepare(options) end
  if #options == 0 then
    return ("data %s needs the prefix of a token file"):format(action)
  end
  if options.vocab and not tonumber(options.vocab) then
    return ("--vocab: '%s' is not a number"):format(options.vocab)
  end
end

function data.main(arguments)
  local action = arguments[1]
  if not action then
    return cli.usage_error("data: prepare, info or verify?", "data")
  end
  if not actions[action] then
    return cli.usage_error(("data: unknown action '%s'%s"):format(action,
      near.hint(action, actions)), "data")
  end
  local options, message = cli.options({ unpack(arguments, 2) }, KNOWN[action])
  message = message or check_usage(action, options)
  if message then return cli.usage_error(message, "data") end
  local context
  context, message = require("moelua").context { threads = 1,
    log = report.log }
  if not context then return failed(message) end
  local status = actions[action](context, options)
  context:close()
  return status
end

return data
