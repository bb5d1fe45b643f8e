-- Owns `moelua checkpoint info|verify`.
local cli = require "moelua.cli"
local json = require "moelua.json"
local near = require "moelua.near"
local report = require "moelua.report"

local checkpoint = {}
local actions = {}

local ABSENT = { "reshard", "import", "export", "diff" }
local DEGREES = { "tp", "cp", "dp", "pp", "etp", "ep", "edp", "chunks" }

-- A uint64_t as decimal digits.
local function digits(value) return (tostring(value):gsub("ULL$", "")) end

local function hex(value) return ("%016x"):format(value) end

-- "2 blocks, one of them dense, hidden 32, vocabulary 257"
local function model_text(model)
  local blocks, dense, experts = 0, 0, 0
  for _, block in ipairs(model.blocks) do
    blocks = blocks + block.count
    if block.ffn_kind == "dense" then dense = dense + block.count end
    experts = math.max(experts, block.experts or 0)
  end
  local parts = { ("%d blocks"):format(blocks) }
  if experts > 0 then
    parts[1] = ("%s (%d dense), up to %d experts"):format(parts[1], dense,
      experts)
  end
  parts[2] = ("hidden %d"):format(model.hidden)
  parts[3] = ("vocabulary %d"):format(model.vocab)
  return table.concat(parts, ", ")
end

local function layout_text(info)
  local words = {}
  for i, name in ipairs(DEGREES) do
    words[i] = ("%s %d"):format(name, info[name])
  end
  return table.concat(words, " ") .. ", order " .. info.order
end

local function shape_text(shape) return table.concat(shape, " x ") end

-- The fields for --json, in order.
local function fields_of(info, tensors)
  local layout = {}
  for i, name in ipairs(DEGREES) do layout[i] = { name, info[name] } end
  layout[#layout + 1] = { "order", info.order }
  local fields = {
    { "path", info.path }, { "step", info.step }, { "cursor", info.cursor },
    { "seed", digits(info.seed) }, { "dtype", info.dtype },
    { "params", info.params }, { "bytes", tonumber(info.bytes) },
    { "files", info.files }, { "tensors", info.tensors },
    { "layout", json.object(layout) },
    { "model", json.decode(info.model_json) },
    { "meta", info.meta_json and json.decode(info.meta_json) },
    { "writer", info.writer },
  }
  if not tensors then return fields end
  local list = {}
  for i, tensor in ipairs(tensors) do
    list[i] = json.object { { "group", tensor.group }, { "name", tensor.name },
      { "shape", json.array(tensor.shape) }, { "slices", tensor.slices },
      { "digest", hex(tensor.digest) } }
  end
  fields[#fields + 1] = { "tensor_list", json.array(list) }
  return fields
end

local function summary_text(info)
  local model = json.decode(info.model_json)
  local rows = {
    { "checkpoint", info.path }, { "step", report.integer(info.step) },
    { "cursor", report.integer(info.cursor) .. " samples" },
    { "seed", digits(info.seed) },
    { "model", type(model) == "table" and model_text(model)
      or info.model_json },
    { "parameters", report.count(info.params) },
    { "computed in", info.dtype }, { "layout", layout_text(info) },
    { "size", ("%s in %d file%s, %d tensors"):format(
      report.bytes(tonumber(info.bytes)), info.files,
      info.files == 1 and "" or "s", info.tensors) },
    { "written by", "MoELua " .. info.writer },
  }
  if info.meta_json then rows[#rows + 1] = { "meta", info.meta_json } end
  return report.table { rows = rows }
end

local function tensors_text(tensors)
  local rows = {}
  for i, tensor in ipairs(tensors) do
    rows[i] = { tensor.group, tensor.name, shape_text(tensor.shape),
      tensor.slices, hex(tensor.digest) }
  end
  return report.table { header = { "group", "tensor", "shape", "slices",
    "digest" }, rows = rows, align = "lllrl" }
end

-- Each action prints its result: true | nil, message
function actions.info(opened, options)
  local info, message = opened:info()
  if not info then return nil, message end
  local tensors
  if options.tensors then
    tensors, message = opened:tensors()
    if not tensors then return nil, message end
  end
  if options.json then
    io.stdout:write(json.encode(json.object(fields_of(info, tensors))), "\n")
    return true
  end
  io.stdout:write(summary_text(info))
  if tensors then io.stdout:write("\n", tensors_text(tensors)) end
  return true
end

function actions.verify(opened, options)
  local info, message = opened:info()
  if not info then return nil, message end
  local ok
  ok, message = opened:verify()
  if not ok then return nil, message end
  if options.json then return true end
  io.stdout:write(("%s: %d tensors, %s: every digest is right\n"):format(
    info.path, info.tensors, report.bytes(tonumber(info.bytes))))
  return true
end

local KNOWN = {
  info = { json = "flag", tensors = "flag" },
  verify = { json = "flag" },
}

-- The verdict as JSON; `errors` has the lines of the message.
local function print_verdict(path, message)
  local errors = {}
  for line in (message or ""):gmatch("[^\n]+") do errors[#errors + 1] = line end
  io.stdout:write(json.encode(json.object { { "path", path },
    { "ok", message == nil }, { "errors", json.array(errors) } }), "\n")
end

-- Status of one path. What is not there is wrong usage; what is there and
-- cannot be read has failed.
local function each(context, action, path, options)
  local opened, message, code = context:checkpoint(path)
  local ok = false
  if opened then
    ok, message = actions[action](opened, options)
    opened:close()
  end
  if action == "verify" and options.json and code ~= "notfound" then
    print_verdict(path, not ok and message or nil)
  end
  if ok then return cli.OK end
  report.fail(message)
  return code == "notfound" and cli.USAGE or cli.FAILED
end

local function check_action(action)
  if not action then return "checkpoint: info or verify?" end
  for _, name in ipairs(ABSENT) do
    if action == name then
      return ("checkpoint %s is not part of this version"):format(name)
    end
  end
  if actions[action] then return nil end
  return ("checkpoint: unknown action '%s'%s"):format(action,
    near.hint(action, actions))
end

function checkpoint.main(arguments)
  local action = arguments[1]
  local message = check_action(action)
  if message then return cli.usage_error(message, "checkpoint") end
  local options
  options, message = cli.options({ unpack(arguments, 2) }, KNOWN[action])
  if options and #options == 0 then
    message = ("checkpoint %s needs the folder of a checkpoint or of a run")
      :format(action)
  end
  if message then return cli.usage_error(message, "checkpoint") end
  local context
  context, message = require("moelua").context { log = report.log }
  if not context then
    report.fail(message)
    return cli.FAILED
  end
  local status = cli.OK
  for _, path in ipairs(options) do
    status = math.max(status, each(context, action, path, options))
  end
  context:close()
  return status
end

return checkpoint
