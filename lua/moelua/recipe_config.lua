-- Owns the way from a resolved recipe to the C library's moe_train_config and
-- back from its error lines to the keys of the recipe.
local recipe_config = {}

local DEGREES = { "tp", "cp", "dp", "pp", "etp", "ep", "edp" }

local function layout_of(resolved)
  local layout = { order = resolved.layout.order,
    chunks = resolved.schedule.chunks, group = resolved.schedule.group,
    cp_kind = resolved.layout.cp_kind, blocks = resolved.layout.blocks }
  for _, name in ipairs(DEGREES) do
    layout[name] = resolved.layout[name] or 0
  end
  return layout
end

-- layout(resolved) -> the options of moe_layout_config
recipe_config.layout = layout_of

local function model_of(resolved)
  local model = {}
  for key, value in pairs(resolved.model) do
    if key ~= "family" then model[key] = value end
  end
  return model
end

local function optimizer_of(resolved)
  local optimizer = {}
  for key, value in pairs(resolved.optimizer) do
    if key ~= "kind" then optimizer[key] = value end
  end
  local lr = resolved.optimizer.lr
  optimizer.lr = { kind = lr.kind, peak = lr.peak, min = lr.min,
    warmup = lr.warmup, decay = lr.decay or 0,
    total = resolved.schedule.steps }
  return optimizer
end

local function fields_of(resolved)
  local dispatch = resolved.dispatch
  return {
    model = model_of(resolved), layout = layout_of(resolved),
    dispatch = { kind = dispatch.kind, drop = dispatch.drop,
      pad = dispatch.pad, capacity_scope = dispatch.capacity_scope,
      capacity_factor = dispatch.capacity_factor or 0 },
    optimizer = optimizer_of(resolved), dtype = resolved.dtype,
    seq = resolved.data.seq, seed = resolved.seed,
    micro_batch = resolved.schedule.micro_batch,
    global_batch = resolved.schedule.global_batch,
  }
end

-- build(resolved) -> moe_train_config, anchor
function recipe_config.build(resolved)
  local struct = require "moelua.struct"
  local config, anchor = struct.build("moe_train_config", fields_of(resolved))
  if not config then
    error("recipe: not a resolved recipe: " .. table.concat(anchor, "; "), 3)
  end
  return config, anchor
end

-- ---- errors ----

local RENAMED = { seq = "data.seq", micro_batch = "schedule.micro_batch",
  global_batch = "schedule.global_batch", ["layout.chunks"] = "schedule.chunks",
  ["layout.group"] = "schedule.group",
  ["optimizer.lr.total"] = "schedule.steps" }

-- "model.blocks[0-3].heads" -> "model.heads", or "model.blocks[1-4].heads"
-- where the recipe lists the blocks.
local function block_key(first, last, field, model)
  if model.family ~= "blocks" then
    local block = model.blocks[first + 1]
    if field == "ffn" and block.ffn_kind == "dense" then field = "dense_ffn" end
    return "model." .. field
  end
  local range = first == last and tostring(first + 1)
    or ("%d-%d"):format(first + 1, last + 1)
  return ("model.blocks[%s].%s"):format(range, field)
end

local function recipe_key(key, model)
  local range, field = key:match("^model%.blocks%[([%d-]+)%]%.(.*)$")
  if range then
    local first, last = range:match("^(%d+)-(%d+)$")
    first, last = tonumber(first or range), tonumber(last or range)
    return block_key(first, last, field, model)
  end
  if key == "model.n_blocks" then
    return model.family == "blocks" and "model.blocks" or "model.layers"
  end
  return RENAMED[key] or key
end

-- Stands in for a section that has errors of its own; what the library says
-- about it is dropped.
local STAND_INS = {
  layout = { order = "tp-cp-ep-dp-pp" },
  dispatch = { kind = "auto", drop = "probs", pad = false,
    capacity_scope = "local" },
  schedule = { chunks = 1, micro_batch = 1, global_batch = 1, steps = 1 },
  optimizer = { lr = { kind = "constant", peak = 1, min = 0, warmup = 0 } },
  data = { seq = 1 },
  model = { family = "mixtral", vocab = 2, hidden = 2, max_positions = 2 ^ 30,
    blocks = { { heads = 1, kv_heads = 1, head_dim = 2, ffn = 1,
      ffn_kind = "dense" } } },
}
-- Keys about which nothing can be said when the section is a stand-in.
local DEPENDENT = {
  model = { ["layout.pp"] = true, ["layout.blocks"] = true,
    ["schedule.chunks"] = true },
  layout = { ["schedule.global_batch"] = true, ["schedule.chunks"] = true,
    ["schedule.group"] = true },
  schedule = { ["layout.pp"] = true, ["layout.blocks"] = true,
    ["optimizer.lr.warmup"] = true, ["optimizer.lr.decay"] = true },
}

local function with_stand_ins(resolved, failed)
  local whole = { seed = resolved.seed, dtype = resolved.dtype }
  for section, stand_in in pairs(STAND_INS) do
    whole[section] = not failed[section] and resolved[section] or stand_in
  end
  if failed.seed then whole.seed = 1 end
  if failed.dtype then whole.dtype = "f32" end
  return whole
end

local function dropped(key, failed)
  for section in pairs(failed) do
    if key:match("^[%w_]+") == section then return true end
    if DEPENDENT[section] and DEPENDENT[section][key] then return true end
  end
  return false
end

-- problems(resolved, world, failed) -> what the library says about it on world
-- ranks (0: the fewest that fit), in the recipe's words.  failed: set of
-- sections that are known to be wrong.
function recipe_config.problems(resolved, world, failed)
  local Context = require "moelua.context"
  local whole = with_stand_ins(resolved, failed)
  local config, anchor = recipe_config.build(whole)
  local context = assert(Context.create { threads = 1 })
  local ok, message, code = context:check_config(config, world)
  context:close()
  local list = {}
  if ok and anchor then return list end
  if code ~= "invalid" then return { message } end
  for line in message:gmatch("[^\n]+") do
    local key, text = line:match("^([%w_.%[%]-]+): (.*)$")
    local name = key and recipe_key(key, whole.model)
    if not name then
      list[#list + 1] = line
    elseif not dropped(name, failed) then
      if name == "model.dense_ffn" then
        text = text:gsub(", or ffn: ", ", or dense_ffn: ")
      end
      list[#list + 1] = name .. ": " .. text
    end
  end
  return list
end

return recipe_config
