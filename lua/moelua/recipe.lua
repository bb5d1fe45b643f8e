-- Owns recipes: running the file, changes from the command line, and the way
-- to one resolved table in which every default is filled in and every block
-- of the model is written out.
--
-- Invariant: a resolved recipe passed every check that needs no rank count;
-- otherwise load returns all that is wrong, each "path.to.key: text".
local models = require "moelua.models"
local near = require "moelua.near"
local optimizers = require "moelua.optimizers"
local recipe_keys = require "moelua.recipe_keys"
local schema = require "moelua.schema"

local recipe = {}

-- What recipes call as moe.NAME.
recipe.words = {
  adamw = optimizers.adamw, constant = optimizers.constant,
  cosine = optimizers.cosine, linear = optimizers.linear,
  wsd = optimizers.wsd, block = models.block,
  repeat_block = models.repeat_block, count = models.count,
}

-- ---- the file ----

-- Globals a recipe sets stay in it; a name nobody set is an error.
local function environment()
  local env = {}
  return setmetatable(env, { __index = function(_, name)
    local value = rawget(_G, name)
    if value == nil then
      error(("undefined variable '%s'%s"):format(tostring(name),
        near.hint(name, env)), 2)
    end
    return value
  end })
end

-- run(path) -> the table the file returns | nil, message with file and line
local function run(path)
  local chunk, message = loadfile(path)
  if not chunk then return nil, message end
  setfenv(chunk, environment())
  local ok, result = pcall(chunk)
  if not ok then return nil, tostring(result) end
  if type(result) ~= "table" then
    return nil, ("%s: must return a table, got %s"):format(path, type(result))
  end
  return result
end

-- Tables may be shared inside of a recipe; changes must not be.
local function deep_copy(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = deep_copy(item) end
  return copy
end

-- ---- changes from the command line ----

-- apply(recipe table, "a.b.c=value") -> nil | what is wrong
local function apply(target, override)
  local path, text = override:match("^([%w_.%[%]]+)=(.*)$")
  if not path then
    return ("'%s': expected key=value, e.g. schedule.steps=100"):format(
      override)
  end
  local names = {}
  for name in path:gmatch("[^.%[%]]+") do
    names[#names + 1] = tonumber(name) or name
  end
  for i = 1, #names - 1 do
    local next_target = target[names[i]]
    if next_target == nil then
      next_target = {}
      target[names[i]] = next_target
    elseif type(next_target) ~= "table" then
      return ("%s: '%s' is %s, not a table"):format(path, names[i],
        schema.show(next_target))
    end
    target = next_target
  end
  if #names == 0 then return ("'%s': expected key=value"):format(override) end
  target[names[#names]] = schema.text(text)
end

-- optimizer.lr may be written as a number: then lr.peak=x means its value.
local function widen(target)
  local optimizer = target.optimizer
  if type(optimizer) == "table" and type(optimizer.lr) == "number" then
    optimizer.lr = optimizers.constant { peak = optimizer.lr }
  end
end

-- ---- rules between sections ----

-- Each returns what is wrong, or nothing. Only called with whole sections.
local RULES = {
  { "data", function(r)
    if r.data.valid and r.data.valid_fraction > 0 then
      return "data.valid_fraction: give either this or data.valid"
    end
  end },
  { "model data", function(r)
    if r.data.tokenizer == "bytes" and r.model.vocab < 257 then
      return ("model.vocab: %d, but the byte tokenizer has 257 ids"):format(
        r.model.vocab)
    end
  end },
  { "model data", function(r)
    if r.data.mask_id and r.data.mask_id >= r.model.vocab then
      return ("data.mask_id: %d, but the vocabulary ends at %d"):format(
        r.data.mask_id, r.model.vocab - 1)
    end
  end },
  { "eval data", function(r)
    if r.eval and not r.data.valid and r.data.valid_fraction == 0 then
      return "eval: there is nothing to evaluate on; set data.valid or "
        .. "data.valid_fraction"
    end
  end },
  { "log checkpoint", function(r)
    for _, key in ipairs { "jsonl", "tensorboard" } do
      if r.log[key] and not r.checkpoint then
        return ("log.%s: needs checkpoint.dir, where it is written"):format(key)
      end
    end
  end },
}

local function apply_rules(resolved, failed, problems)
  for _, rule in ipairs(RULES) do
    local whole = true
    for section in rule[1]:gmatch("%a+") do
      whole = whole and not failed[section]
    end
    problems[#problems + 1] = whole and rule[2](resolved) or nil
  end
end

-- ---- reading ----

local SECTIONS = schema.join({ { "model", "any", kind = "any", required = true,
  read = models.resolve, doc = "moe.models.mixtral{...} or another family" } },
  recipe_keys.sections)

local function section_of(problem) return problem:match("^[%w_]+") end

local function base_name(path)
  return (path:match("([^/]+)$"):gsub("%.lua$", ""))
end

-- Spans of the learning rate that are shares below 1 become steps.
local function fill_in(resolved, failed)
  if failed.optimizer then return end
  local lr = resolved.optimizer.lr
  local steps = failed.schedule and 1 or resolved.schedule.steps
  local function in_steps(share) return math.floor(share * steps + 0.5) end
  if lr.warmup < 1 then lr.warmup = in_steps(lr.warmup) end
  if lr.kind ~= "wsd" then return end
  lr.decay = lr.decay or 0.1
  if lr.decay < 1 then
    lr.decay = math.max(1, math.min(in_steps(lr.decay), steps - lr.warmup))
  end
end

local function unique(list)
  local seen, out = {}, {}
  for _, text in ipairs(list) do
    if not seen[text] then out[#out + 1] = text end
    seen[text] = true
  end
  return out
end

-- resolve(table as a recipe returns it, overrides, path)
-- -> resolved recipe | nil, list of problems
function recipe.resolve(given, overrides, path)
  local problems, target = {}, deep_copy(given)
  widen(target)
  for _, override in ipairs(overrides or {}) do
    problems[#problems + 1] = apply(target, override)
  end
  local resolved = schema.read(SECTIONS, target, "", problems)
  resolved.path = path or "(recipe)"
  resolved.name = resolved.name or base_name(resolved.path)
  local failed = {}
  for _, problem in ipairs(problems) do
    failed[section_of(problem) or ""] = true
  end
  fill_in(resolved, failed)
  apply_rules(resolved, failed, problems)
  local core = require("moelua.recipe_config").problems(resolved, 0, failed)
  for _, text in ipairs(core) do problems[#problems + 1] = text end
  if #problems > 0 then return nil, unique(problems) end
  return resolved
end

-- load(path, overrides) -> resolved recipe | nil, list of problems
function recipe.load(path, overrides)
  local given, message = run(path)
  if not given then return nil, { message } end
  return recipe.resolve(given, overrides, path)
end

-- check(resolved, world) -> list of problems on world ranks, empty when none
function recipe.check(resolved, world)
  return unique(require("moelua.recipe_config").problems(resolved, world, {}))
end

-- train_config(resolved) -> moe_train_config, anchor: hold both
function recipe.train_config(resolved)
  return require("moelua.recipe_config").build(resolved)
end

-- rehearse(resolved[, world]) -> a small recipe of the same kind
function recipe.rehearse(resolved, world)
  return require("moelua.rehearse").shrink(resolved, world or 1)
end

return recipe
