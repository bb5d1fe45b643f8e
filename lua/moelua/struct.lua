-- Owns the way from Lua option tables to C structs: every key and type is
-- checked, enums are lowercase strings, sub-structs are tables.  Fields of
-- structs come from the headers (moelua.cdef).
--
-- Problems are collected as "field: text", so that a caller may report all.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local near = require "moelua.near"

local struct = {}

-- Which fields hold an enum (C has int32_t there), and the enums' prefixes.
local FIELD_ENUM = {
  dtype = "moe_dtype",
  ["moe_block_config.qk_norm"] = "moe_qk_norm",
  ["moe_block_config.ffn_kind"] = "moe_ffn_kind",
  ["moe_block_config.score"] = "moe_score_kind",
  ["moe_block_config.aux_scope"] = "moe_aux_scope",
  ["moe_block_config.recompute"] = "moe_recompute",
  ["moe_layout_config.cp_kind"] = "moe_cp_kind",
  ["moe_dispatch_config.kind"] = "moe_dispatch_kind",
  ["moe_dispatch_config.drop"] = "moe_drop_policy",
  ["moe_dispatch_config.capacity_scope"] = "moe_capacity_scope",
  ["moe_lr_config.kind"] = "moe_lr_kind",
  ["moe_loader_config.split"] = "moe_split",
}
local FLAGS = { ["moe_optimizer_config.decay"] = "moe_decay_class" }
-- int32_t fields that are yes or no
local BOOLEAN = {
  qkv_bias = true, renormalise = true, expert_bias = true,
  shared_gate = true, tie_embeddings = true, pad = true, shard = true,
  shuffle = true,
}

local function common_prefix(values)
  local prefix = values[1]:match("^(.*_)") or ""
  for _, value in ipairs(values) do
    while value:sub(1, #prefix) ~= prefix do
      prefix = prefix:sub(1, -2):match("^(.*_)") or ""
    end
  end
  return prefix
end

local by_enum = {}

-- enum("moe_lr_kind") -> { constant = 0, cosine = 1, ... }; also by number.
function struct.enum(name)
  local map = by_enum[name]
  if map then return map end
  local values = binding.enums[name]
  if not values then error("no enum '" .. tostring(name) .. "'", 2) end
  local prefix = common_prefix(values)
  map = {}
  for _, value in ipairs(values) do
    local text = value:sub(#prefix + 1):lower()
    local number = tonumber(ffi.new(name, value))
    map[text], map[number] = number, text
  end
  by_enum[name] = map
  return map
end

local function names_of(map)
  local names = {}
  for key in pairs(map) do
    if type(key) == "string" then names[#names + 1] = key end
  end
  return names
end

-- Each conversion returns the C value, or nil and what is wrong.
local function to_enum(map, value)
  if type(value) ~= "string" then
    return nil, ("expected a name, got %s"):format(type(value))
  end
  local number = map[value]
  if number then return number end
  return nil, ("unknown name '%s'%s"):format(value,
    near.hint(value, names_of(map)))
end

local function to_flags(map, value)
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" then
    return nil, ("expected names, got %s"):format(type(value))
  end
  local bits = 0
  for _, name in ipairs(value) do
    local bit_value, problem = to_enum(map, name)
    if not bit_value then return nil, problem end
    bits = bit.bor(bits, bit_value)
  end
  return bits
end

local INTEGER_LIMIT = {
  int32_t = { -2 ^ 31, 2 ^ 31 - 1 },
  int64_t = { -2 ^ 53, 2 ^ 53 },
  uint64_t = { 0, 2 ^ 53 },
}

local function to_integer(kind, value)
  if ffi.istype("int64_t", value) or ffi.istype("uint64_t", value) then
    if kind ~= "int32_t" then return value end
    value = tonumber(value)
  end
  if type(value) ~= "number" then
    return nil, ("expected an integer, got %s"):format(type(value))
  end
  local low, high = INTEGER_LIMIT[kind][1], INTEGER_LIMIT[kind][2]
  if value ~= math.floor(value) or value < low or value > high then
    return nil, ("%.17g is not an integer of at most %.0f"):format(value, high)
  end
  return value
end

-- The C value of one field that is no struct.
local function to_scalar(field, full_name, value)
  local enum = FIELD_ENUM[full_name] or FIELD_ENUM[field.name]
  if enum then return to_enum(struct.enum(enum), value) end
  if FLAGS[full_name] then
    return to_flags(struct.enum(FLAGS[full_name]), value)
  end
  if type(value) == "boolean" and BOOLEAN[field.name] then
    return value and 1 or 0
  end
  if INTEGER_LIMIT[field.kind] then return to_integer(field.kind, value) end
  if field.kind == "double" then
    if type(value) == "number" then return value end
    return nil, ("expected a number, got %s"):format(type(value))
  end
  if field.kind == "const char *" then
    if type(value) == "string" then return value end
    return nil, ("expected a string, got %s"):format(type(value))
  end
  return nil, "cannot be set from Lua"
end

local declared = {}
for _, name in ipairs(binding.functions) do declared[name] = true end

-- A pointer field that takes an array, of structs or integers, and its count
-- field.
local ARRAYS = {
  ["moe_layout_config.blocks"] = { "int32_t", "n_blocks" },
  ["moe_model_config.blocks"] = { "moe_block_config", "n_blocks" },
  ["moe_loader_config.sources"] = { "moe_source_config", "n_sources" },
}

-- By the library's moe_NAME_init where there is one.
local function initialise(name, value)
  if declared[name .. "_init"] then
    binding.lib[name .. "_init"](value)
  else
    value.size = ffi.sizeof(name)
  end
end

local function field_of(name)
  local fields = {}
  for _, field in ipairs(binding.structs[name]) do
    if field.name ~= "size" then fields[field.name] = field end
  end
  return fields
end

local fill

local function fill_array(rule, target, key, value, path, out)
  if type(value) ~= "table" then
    out.problems[#out.problems + 1] =
      ("%s: expected an array, got %s"):format(path, type(value))
    return
  end
  local items = ffi.new(rule[1] .. "[?]", math.max(1, #value))
  out.anchor[#out.anchor + 1] = items
  for i, item in ipairs(value) do
    local here = ("%s[%d]"):format(path, i)
    if INTEGER_LIMIT[rule[1]] then
      local number, problem = to_integer(rule[1], item)
      items[i - 1] = number or 0
      if problem then
        out.problems[#out.problems + 1] = here .. ": " .. problem
      end
    else
      initialise(rule[1], items[i - 1])
      fill(rule[1], items[i - 1], item, here, out)
    end
  end
  target[key] = items
  target[rule[2]] = #value
end

function fill(name, target, options, path, out)
  local problems, fields = out.problems, field_of(name)
  if type(options) ~= "table" then
    problems[#problems + 1] = ("%s: expected a table, got %s"):format(
      path == "" and name or path, type(options))
    return
  end
  for key, value in pairs(options) do
    local here = (path == "" and "" or path .. ".") .. tostring(key)
    local field, full = fields[key], name .. "." .. tostring(key)
    if not field then
      problems[#problems + 1] = ("%s: unknown option%s"):format(here,
        near.hint(key, fields))
    elseif ARRAYS[full] then
      fill_array(ARRAYS[full], target, key, value, here, out)
    elseif binding.structs[field.kind] then
      fill(field.kind, target[key], value, here, out)
    else
      local c_value, problem = to_scalar(field, full, value)
      if problem then
        problems[#problems + 1] = here .. ": " .. problem
      else
        if type(c_value) == "string" then
          out.anchor[#out.anchor + 1] = c_value
        end
        target[key] = c_value
      end
    end
  end
end

-- build("moe_train_config", {...}) -> cdata, anchor; or nil, array of problems.
-- The cdata points into memory that `anchor` keeps alive: hold both.
function struct.build(name, options)
  local value = ffi.new(name)
  local out = { problems = {}, anchor = { value } }
  initialise(name, value)
  fill(name, value, options or {}, "", out)
  if #out.problems > 0 then
    table.sort(out.problems)
    return nil, out.problems
  end
  return value, out.anchor
end

-- check(level, what, options, rules): options is a table whose keys are those
-- of rules, { key = "type" or "type?" } ("any" for all); raises at `level`.
function struct.check(level, what, options, rules)
  if type(options) ~= "table" then
    error(("%s: expected a table of options, got %s"):format(what,
      type(options)), level + 1)
  end
  for key, value in pairs(options) do
    local rule = rules[key]
    if not rule then
      error(("%s: unknown option '%s'%s"):format(what, tostring(key),
        near.hint(key, rules)), level + 1)
    end
    local kind = rule:gsub("%?$", "")
    if kind ~= "any" and type(value) ~= kind then
      error(("%s: option '%s' is a %s, got %s"):format(what, key, kind,
        type(value)), level + 1)
    end
  end
  for key, rule in pairs(rules) do
    if options[key] == nil and rule:sub(-1) ~= "?" then
      error(("%s: option '%s' is missing"):format(what, key), level + 1)
    end
  end
  return options
end

return struct
