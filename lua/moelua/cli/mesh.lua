-- Owns `moelua mesh`: the groups of a layout and who holds what.
local cli = require "moelua.cli"
local json = require "moelua.json"
local mesh_text = require "moelua.mesh_text"
local near = require "moelua.near"
local plan = require "moelua.cli.plan"
local recipe_keys = require "moelua.recipe_keys"
local report = require "moelua.report"
local schema = require "moelua.schema"

local mesh = {}

local MOST = 65536 -- ranks to print
local KEYS = schema.names(recipe_keys.layout)

-- words -> recipe path or nil, { key=value of the recipe }, or nil, message.
-- A key of the layout needs no "layout.".
local function split(words)
  local overrides, path = {}, nil
  for _, word in ipairs(words) do
    local key = word:match("^([%w_.%[%]]+)=")
    if key and KEYS[key] then
      overrides[#overrides + 1] = "layout." .. word
    elseif key then
      overrides[#overrides + 1] = word
    elseif path then
      return nil, nil, ("'%s': expected key=value"):format(word)
    elseif word:match("%.lua$") or word:find("/", 1, true) then
      path = word
    else
      return nil, nil, ("'%s' is neither key=value nor a recipe%s"):format(word,
        near.hint(word, { "tp=2", "ep=2" }))
    end
  end
  return path, overrides
end

-- The layout of key=value alone: moe_layout_config's options | nil, problems
local function layout_of(overrides)
  local given, problems = {}, {}
  for _, word in ipairs(overrides) do
    local key, text = word:match("^layout%.([%w_]+)=(.*)$")
    if key and key ~= "blocks" then
      given[key] = schema.text(text)
    else
      key = word:match("^[^=]+")
      local text_of = "unknown key" .. near.hint(key, KEYS)
        .. "; other keys need a recipe"
      if key == "layout.blocks" then
        text_of = "needs a recipe, whose model has blocks"
      end
      problems[#problems + 1] = key .. ": " .. text_of
    end
  end
  local layout = schema.read(recipe_keys.layout, given, "layout", problems)
  if #problems > 0 then return nil, problems end
  return layout
end

-- The recipe, checked on world ranks, or nil after its errors were printed.
-- Who holds what does not depend on the batch: it becomes one that dp divides.
local function load(path, overrides, world)
  overrides[#overrides + 1] = "schedule.micro_batch=1"
  overrides[#overrides + 1] = ("schedule.global_batch=%d"):format(
    2 ^ 18 * 3 ^ 2 * 5 * 7)
  local resolved = plan.load(path, overrides)
  if not resolved then return nil end
  if world == 0 then return resolved end
  resolved.schedule.global_batch = world
  local problems = require("moelua.recipe").check(resolved, world)
  if #problems == 0 then return resolved end
  plan.print_errors(path, problems)
  return nil
end

local function show(context, object, resolved, as_json)
  local holdings = require "moelua.holdings"
  local info, kinds = object:info(), object:groups()
  local held, places = holdings.of(context, object, resolved)
  if not held then
    report.fail(places)
    return cli.FAILED
  end
  if as_json then
    io.stdout:write(json.encode(mesh_text.fields(info, kinds, held, places,
      resolved ~= nil)), "\n")
  else
    io.stdout:write(mesh_text.degrees(info), "\n", mesh_text.groups(kinds),
      "\n", mesh_text.picture(info, held, places))
  end
  return cli.OK
end

-- Wrong layouts: a title and their lines, as of a recipe.
local function refuse(lines)
  plan.print_errors("layout", lines)
  return cli.USAGE
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch("[^\n]+") do lines[#lines + 1] = line end
  return lines
end

-- resolved or nil, options of moe_layout_config; nil, nil after printing errors
local function layout_from(path, overrides, world)
  if not path then
    local layout, problems = layout_of(overrides)
    if not layout then refuse(problems) end
    return nil, layout
  end
  local resolved = load(path, overrides, world)
  if not resolved then return nil end
  return resolved, require("moelua.recipe_config").layout(resolved)
end

-- The arguments as path, overrides, world, as_json; or nil, message
local function read(arguments)
  local options, message = cli.options(arguments, { world = "value",
    json = "flag" })
  if not options then return nil, message end
  local path, overrides, problem = split(options)
  if problem then return nil, problem end
  if not path and #overrides == 0 and not options.world then
    return nil, "which layout? e.g. --world 16 tp=2 ep=4 etp=1"
  end
  local world = 0
  if options.world then
    world, message = cli.ranks(options.world, "--world")
    if not world then return nil, message end
  end
  return { path = path, overrides = overrides, world = world,
    json = options.json }
end

function mesh.main(arguments)
  local given, message = read(arguments)
  if not given then return cli.usage_error(message, "mesh") end
  local resolved, layout = layout_from(given.path, given.overrides, given.world)
  if not layout then return cli.USAGE end
  local context = assert(require("moelua").context { threads = 1 })
  local object
  object, message = context:mesh(layout, given.world)
  if not object then return refuse(lines_of(message)) end
  if object:info().world > MOST then
    return cli.usage_error(("%d ranks are too many to print, %d are the most")
      :format(object:info().world, MOST), "mesh")
  end
  local status = show(context, object, resolved, given.json)
  object:close()
  context:close()
  return status
end

return mesh
