-- Owns what each rank of a mesh holds of a model: blocks, heads, experts, ..
-- as ranges { first, last } of the whole model's numbers. Read from the
-- parameters that the library would give the rank, so it cannot say otherwise
-- than a run does; without a model, as the part of an axis.
local holdings = {}

-- Suffix of a parameter's name after "blocks.N.", what it shows, which of its
-- dims, and the key of the block that says how many rows are one.
local RULES = {
  { "attn.q", "heads", 1, "head_dim" },
  { "attn.k", "kv_heads", 1, "head_dim" },
  { "ffn.in", "dense_ffn", 2 },
  { "moe.shared.in", "shared_ffn", 2 },
  { "moe.experts.in", "experts", 1 },
  { "moe.experts.in", "expert_ffn", 3 },
}

-- Puts a range into a list of different ones.
local function put(list, first, last)
  for _, range in ipairs(list) do
    if range[1] == first and range[2] == last then return end
  end
  list[#list + 1] = { first, last }
end

-- Ranges of blocks: neighbours are one.
local function put_block(list, number)
  local last = list[#list]
  if last and last[2] == number - 1 then
    last[2] = number
  elseif not last or last[2] ~= number then
    list[#list + 1] = { number, number }
  end
end

local function by_block(params)
  local numbers, seen = {}, {}
  for _, param in ipairs(params) do
    local number = tonumber(param.name:match("^blocks%.(%d+)%."))
    if number and not seen[number] then
      seen[number] = true
      numbers[#numbers + 1] = number
    end
  end
  table.sort(numbers)
  return numbers
end

-- of_params(params, model, stage) -> holding. With tied weights the last stage
-- has the embedding's too, as its head.
local function of_params(params, model, stage)
  local held = { blocks = {}, embedding = false, head = false }
  for _, number in ipairs(by_block(params)) do
    put_block(held.blocks, number)
  end
  for _, param in ipairs(params) do
    if param.name == "embed" or param.name == "head" then
      local first = param.name == "embed" and stage == 0
      held[first and "embedding" or "head"] = true
      held.vocabulary = { { param.start[1],
        param.start[1] + param.count[1] - 1 } }
    elseif param.name == "norm" then
      held.head = true
    end
    local number, suffix = param.name:match("^blocks%.(%d+)%.(.*)$")
    for _, rule in ipairs(RULES) do
      if suffix == rule[1] and param.count[rule[3]] > 0 then
        local unit = rule[4] and model.blocks[number + 1][rule[4]] or 1
        local start = param.start[rule[3]]
        held[rule[2]] = held[rule[2]] or {}
        put(held[rule[2]], start / unit,
          (start + param.count[rule[3]]) / unit - 1)
      end
    end
  end
  return held
end

-- parts(place, info) -> holding whose values are texts: "1 of 2"
local function parts(place, info)
  local function part(axis)
    return ("%d of %d"):format(place[axis] + 1, info[axis])
  end
  return { blocks = "part " .. part "pp", heads = part "tp",
    experts = part "ep", expert_ffn = part "etp" }
end

-- of(context, mesh, resolved) -> holding by rank (from 0), place by rank.
-- resolved: a recipe that fits the mesh, or nil
function holdings.of(context, mesh, resolved)
  local info, held, places, known = mesh:info(), {}, {}, {}
  local config, anchor
  if resolved then
    config, anchor = require("moelua.recipe").train_config(resolved)
  end
  for rank = 0, info.world - 1 do
    local place = mesh:place(rank)
    local key = ("%d %d %d %d"):format(place.pp, place.tp, place.etp, place.ep)
    if not known[key] and anchor then
      local params, message = context:placement(config, info.world, rank)
      if not params then return nil, message end
      known[key] = of_params(params, resolved.model, place.pp)
    end
    places[rank] = place
    held[rank] = known[key] or parts(place, info)
  end
  return held, places
end

-- text({ {0, 3}, {8, 8} }) -> "0-3, 8"; a text is itself
function holdings.text(ranges)
  if type(ranges) == "string" then return ranges end
  local words = {}
  for i, range in ipairs(ranges) do
    words[i] = range[1] == range[2] and ("%d"):format(range[1])
      or ("%d-%d"):format(range[1], range[2])
  end
  return table.concat(words, ", ")
end

return holdings
