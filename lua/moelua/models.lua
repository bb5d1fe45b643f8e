-- Owns the descriptions of models: the families with their defaults, free
-- lists of blocks, and the way from a description to one list of full blocks.
--
-- A description is a plain table with `family` and the keys the user wrote; it
-- is checked when a recipe is read, so that all errors are reported together
-- and `model.layers=2` on the command line can change it.  A resolved model
-- has every field of moe_model_config, and a list of blocks with every field
-- of moe_block_config.
local keys = require "moelua.model_keys"
local near = require "moelua.near"
local schema = require "moelua.schema"

local models = {}

-- What each family does unless a recipe says otherwise.
local FAMILIES = {
  mixtral = { renormalise = true, rope_theta = 1e6, norm_eps = 1e-5,
    max_positions = 32768, hf_aux_coef = 1e-3 },
  qwen2_moe = { qkv_bias = true, shared_gate = true, rope_theta = 1e6,
    norm_eps = 1e-6, max_positions = 32768, hf_aux_coef = 1e-3 },
  qwen3_moe = { renormalise = true, qk_norm = "head", head_dim = 128,
    rope_theta = 1e6, norm_eps = 1e-6, max_positions = 32768,
    hf_aux_coef = 1e-3 },
  olmoe = { qk_norm = "all", rope_theta = 1e4, norm_eps = 1e-5,
    max_positions = 4096, hf_aux_coef = 1e-2, z_coef = 1e-3 },
}
models.families = FAMILIES

local FAMILY_KEYS = schema.join(keys.model, keys.family, keys.attention,
  keys.ffn, keys.router)
local BLOCK_KEYS = schema.join(keys.block_kind, keys.attention, keys.ffn,
  keys.router)
local DENSE_KEYS = schema.join(keys.block_kind, keys.attention,
  { schema.names(keys.ffn).ffn, schema.names(keys.ffn).recompute })

-- Resolved models and descriptions can be told apart and printed.
local Resolved = {}
local Description = {}

-- ---- what a recipe calls ----

local function describe(family, options, level)
  if type(options) ~= "table" then
    error(("moe.models.%s: expected a table of options, got %s"):format(family,
      type(options)), level + 1)
  end
  local description = { family = family }
  for key, value in pairs(options) do
    if key == "family" then
      error(("moe.models.%s: 'family' is given by the name of the function")
        :format(family), level + 1)
    end
    description[key] = value
  end
  return setmetatable(description, Description)
end

for family in pairs(FAMILIES) do
  models[family] = function(options)
    local description = describe(family, options, 2) -- no tail call: levels
    return description
  end
end

-- Appends blocks, and the blocks of lists in it, to out.
local function flatten(list, out)
  for _, item in ipairs(list) do
    if type(item) == "table" and item[1] ~= nil then
      flatten(item, out)
    else
      out[#out + 1] = item
    end
  end
  return out
end

-- blocks{ vocab=, hidden=, ..., blocks = { block{...}, repeat_block(...) } }
function models.blocks(options)
  local description = describe("blocks", options, 2)
  if type(description.blocks) == "table" then
    description.blocks = flatten(description.blocks, {})
  end
  return description
end

-- One block; kept as written, checked with the model.
function models.block(options)
  if type(options) ~= "table" then
    error("moe.block: expected a table of options, got " .. type(options), 2)
  end
  return options
end

-- n times a block or a list of blocks.
function models.repeat_block(n, block)
  if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
    error(("moe.repeat_block: expected a count and a block, got %s"):format(
      schema.show(n)), 2)
  end
  if type(block) ~= "table" then
    error("moe.repeat_block: the block is a " .. type(block), 2)
  end
  local list = {}
  for i = 1, n do list[i] = block end
  return list
end

-- ---- from a description to blocks ----

-- hidden / heads, where it is whole.
local function default_head_dim(hidden, heads, path, problems)
  if not hidden or not heads then return 2 end
  if hidden % heads == 0 then return hidden / heads end
  problems[#problems + 1] = ("%s.head_dim: is missing, and hidden %d / heads "
    .. "%d is not whole"):format(path, hidden, heads)
  return 2
end

local function take(keys_list, from, to)
  for _, key in ipairs(keys_list) do to[key[1]] = from[key[1]] end
  return to
end

-- The attention fields and what all blocks have, from checked options.
local function common_block(options, hidden, path, problems)
  local block = take(keys.attention, options, { recompute = options.recompute })
  block.kv_heads = block.kv_heads or block.heads
  block.head_dim = block.head_dim
    or default_head_dim(hidden, block.heads, path, problems)
  return block
end

local function dense_block(options, width, hidden, path, problems)
  local block = common_block(options, hidden, path, problems)
  block.ffn_kind, block.ffn = "dense", width
  return block
end

local function moe_block(options, hidden, path, problems)
  local block = common_block(options, hidden, path, problems)
  take(keys.router, options, take(keys.ffn, options, block))
  block.ffn_kind = "moe"
  if block.shared_gate == nil then block.shared_gate = false end
  return block
end

-- Set of the numbers (from 0) of dense layers, and how many they are.
local function dense_layers(options, path, problems)
  local set, count = {}, 0
  for i, number in ipairs(options.mlp_only_layers or {}) do
    if options.layers and number >= options.layers then
      problems[#problems + 1] = ("%s.mlp_only_layers[%d]: %d, but the last "
        .. "layer is %d"):format(path, i, number, options.layers - 1)
    end
    set[number] = true
  end
  for i = 0, (options.layers or 0) - 1 do
    if (i + 1) % (options.decoder_sparse_step or 1) ~= 0 then set[i] = true end
    if set[i] then count = count + 1 end
  end
  if count > 0 and not options.dense_ffn then
    local first = 0
    while not set[first] do first = first + 1 end
    problems[#problems + 1] = ("%s.dense_ffn: is missing, but layer %d is "
      .. "dense"):format(path, first)
  end
  return set, count
end

-- Hugging Face pools its loss over the MoE layers and its balanced value is
-- topk; ours is summed over them and balanced at 1.
local function aux_coef(given, options, moe_layers, path, problems)
  if given.aux_coef ~= nil and given.hf_aux_coef ~= nil then
    problems[#problems + 1] = ("%s.hf_aux_coef: give either this or aux_coef")
      :format(path)
  end
  local hf = options.hf_aux_coef
  if given.aux_coef ~= nil or not hf or moe_layers < 1 then
    return options.aux_coef
  end
  return hf * (options.topk or 1) / moe_layers
end

local function resolve_family(given, path, problems)
  local family_keys = schema.with_defaults(FAMILY_KEYS, FAMILIES[given.family])
  local stripped = {}
  for key, value in pairs(given) do
    if key ~= "family" then stripped[key] = value end
  end
  local options = schema.read(family_keys, stripped, path, problems)
  local dense, dense_count = dense_layers(options, path, problems)
  local layers = options.layers or 0
  options.aux_coef = aux_coef(stripped, options, layers - dense_count, path,
    problems)
  if stripped.shared_gate == nil then
    options.shared_gate = options.shared_gate
      and (options.shared_ffn or 0) > 0
  end
  local found = #problems
  local model = take(keys.model, options, { family = given.family })
  local hidden = options.hidden
  model.blocks = {}
  for i = 0, layers - 1 do
    model.blocks[i + 1] = dense[i]
      and dense_block(options, options.dense_ffn, hidden, path, problems)
      or moe_block(options, hidden, path, problems)
    if #problems > found then break end
  end
  return model
end

local ROUTER_NAMES = schema.names(keys.router)

local function kind_of(given, path, problems)
  local key = keys.block_kind[1]
  local kind = schema.value(key, given.ffn_kind, path .. ".ffn_kind", problems)
  local router = given.shared_ffn ~= nil and "shared_ffn" or nil
  for name in pairs(given) do
    if ROUTER_NAMES[name] then router = name end
  end
  if kind == "dense" and router then
    problems[#problems + 1] = ("%s.%s: a dense block has no experts"):format(
      path, router)
  end
  return kind or (router and "moe" or "dense"), kind == "dense" and router
end

local function resolve_block(given, hidden, path, problems)
  if type(given) ~= "table" then
    problems[#problems + 1] = ("%s: expected a block, got %s"):format(path,
      schema.show(given))
    return nil
  end
  local kind, contradiction = kind_of(given, path, problems)
  if contradiction then return nil end
  local options = schema.read(kind == "dense" and DENSE_KEYS or BLOCK_KEYS,
    given, path, problems)
  if kind == "dense" then
    return dense_block(options, options.ffn, hidden, path, problems)
  end
  return moe_block(options, hidden, path, problems)
end

local BLOCKS_KEY = { "blocks", "any", required = true,
  doc = "list of moe.block{...}; lists in it are flattened",
  read = function(value, path, problems)
    if type(value) == "table" and #value > 0 then return value end
    problems[#problems + 1] = ("%s: expected a list of blocks, got %s")
      :format(path, type(value) == "table" and "none" or schema.show(value))
  end }
models.block_list_keys = schema.join(keys.model,
  schema.keys { BLOCKS_KEY })

local function resolve_blocks(given, path, problems)
  local stripped = {}
  for key, value in pairs(given) do
    if key ~= "family" then stripped[key] = value end
  end
  local model = schema.read(models.block_list_keys, stripped, path, problems)
  local list = flatten(model.blocks or {}, {})
  model.family, model.blocks = "blocks", {}
  local seen = {} -- a block that stands several times is reported once
  for i, block in ipairs(list) do
    local sink = seen[block] and {} or problems
    seen[block] = true
    model.blocks[i] = resolve_block(block, model.hidden,
      ("%s.blocks[%d]"):format(path, i), sink)
  end
  return model
end

local function family_names()
  local names = { "blocks" }
  for name in pairs(FAMILIES) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- resolve(description, path, problems) -> resolved model, or nil with at least
-- one new problem
function models.resolve(given, path, problems)
  local before = #problems
  if type(given) ~= "table" then
    problems[#problems + 1] = ("%s: expected a model such as moe.models."
      .. "mixtral{...}, got %s"):format(path, schema.show(given))
    return nil
  end
  if getmetatable(given) == Resolved then return given end
  local model
  if given.family == "blocks" then
    model = resolve_blocks(given, path, problems)
  elseif FAMILIES[given.family] then
    model = resolve_family(given, path, problems)
  else
    problems[#problems + 1] = ("%s.family: unknown family %s%s"):format(path,
      schema.show(given.family), near.hint(given.family, family_names()))
  end
  if #problems > before then return nil end
  return models.mark(model)
end

-- Says that a table is a resolved model.
function models.mark(model) return setmetatable(model, Resolved) end

-- ---- counting ----

local function attention_params(b, hidden)
  local q, kv = b.heads * b.head_dim, b.kv_heads * b.head_dim
  local n = 2 * hidden * q + 2 * hidden * kv
  if b.qkv_bias then n = n + q + 2 * kv end
  if b.qk_norm == "head" then n = n + 2 * b.head_dim end
  if b.qk_norm == "all" then n = n + q + kv end
  return n
end

-- Parameters of a block: all, and those one token meets.
local function block_params(b, hidden)
  local n = 2 * hidden + attention_params(b, hidden)
  if b.ffn_kind == "dense" then
    n = n + 3 * hidden * b.ffn
    return n, n
  end
  n = n + b.experts * hidden + 3 * hidden * b.shared_ffn
  if b.expert_bias then n = n + b.experts end
  if b.shared_gate then n = n + hidden end
  local expert = 3 * hidden * b.ffn
  return n + b.experts * expert, n + b.topk * expert
end

-- count(model) -> total, active per token; both embeddings are in both
function models.count(model)
  local problems = {}
  local resolved = models.resolve(model, "model", problems)
  if not resolved then error(table.concat(problems, "\n"), 2) end
  local h, embeddings = resolved.hidden, resolved.tie_embeddings and 1 or 2
  local total = embeddings * resolved.vocab * h + h
  local active = total
  for _, block in ipairs(resolved.blocks) do
    local all, met = block_params(block, h)
    total, active = total + all, active + met
  end
  return total, active
end

local function short(n)
  for _, unit in ipairs { { 1e9, "B" }, { 1e6, "M" }, { 1e3, "K" } } do
    if n >= unit[1] then return ("%.4g%s"):format(n / unit[1], unit[2]) end
  end
  return tostring(n)
end

local function summary(model)
  local ok, total, active = pcall(models.count, model)
  if not ok then return ("%s model (with errors)"):format(model.family) end
  return ("%s model, %s parameters, %s active"):format(model.family,
    short(total), short(active))
end
Resolved.__tostring, Description.__tostring = summary, summary

return near.strict("moe.models", models)
