-- Owns the description of all keys of a recipe as Markdown, made from the
-- schemas that check recipes. recipes/README.md ends with it; a test compares.
local model_keys = require "moelua.model_keys"
local models = require "moelua.models"
local optimizers = require "moelua.optimizers"
local recipe_keys = require "moelua.recipe_keys"
local schema = require "moelua.schema"

local recipe_doc = {}

recipe_doc.marker = "<!-- From here on made from the schemas: "
  .. "moelua -e 'io.write(require(\"moelua.recipe_doc\").markdown())' -->"

local function show_list(list)
  if #list == 0 then return "{}" end
  local items = {}
  for i, item in ipairs(list) do items[i] = ('"%s"'):format(item) end
  return "{ " .. table.concat(items, ", ") .. " }"
end

local function show_default(key)
  local value = key.default
  if key.required then return "required" end
  if value == nil then return "" end
  if key.kind == "table" then return "all defaults" end
  if type(value) == "table" then return "`" .. show_list(value) .. "`" end
  if type(value) == "string" then return ('`"%s"`'):format(value) end
  return "`" .. schema.show(value) .. "`"
end

local function show_number(value)
  if value == 2 ^ 53 then return "2^53" end
  return schema.show(value)
end

local function show_type(key)
  if key.type then return key.type end
  if key.kind == "enum" then
    return '`"' .. table.concat(key.values, '"` `"') .. '"`'
  end
  local text = key.kind
  local above = key.above and (not key.min or key.min <= key.above)
  local low = above and "above " .. show_number(key.above)
    or key.min and show_number(key.min)
  if low and key.max then
    text = ("%s, %s to %s"):format(text, low, show_number(key.max))
  elseif low then
    text = ("%s, %s%s"):format(text, above and "" or "at least ", low)
  end
  return text
end

local function add_table(out, keys)
  out[#out + 1] = "| key | type | default | meaning |"
  out[#out + 1] = "|---|---|---|---|"
  for _, key in ipairs(keys) do
    out[#out + 1] = ("| `%s` | %s | %s | %s |"):format(key[1], show_type(key),
      show_default(key), key.doc)
  end
  out[#out + 1] = ""
end

-- Title, keys, and a line of text where one is needed.
local SECTIONS = {
  { "The recipe", recipe_keys.sections, "`model` is required too, see below." },
  { "layout", recipe_keys.layout },
  { "dispatch", recipe_keys.dispatch },
  { "schedule", recipe_keys.schedule },
  { "optimizer: moe.adamw", optimizers.keys },
  { "optimizer.lr: moe.constant, moe.cosine, moe.linear, moe.wsd",
    optimizers.curve_keys },
  { "data", recipe_keys.data },
  { "data.train, data.valid: a source of a list", recipe_keys.source },
  { "checkpoint", recipe_keys.checkpoint },
  { "log", recipe_keys.log },
  { "log.sample", recipe_keys.sample },
  { "eval", recipe_keys.eval },
  { "compute", recipe_keys.compute },
  { "comm", recipe_keys.comm },
  { "model: every family",
    schema.join(model_keys.model, model_keys.family),
    "Families take the keys of this table and of the three after it." },
  { "model: attention", model_keys.attention },
  { "model: ffn and shared expert", model_keys.ffn },
  { "model: router", model_keys.router },
  { "model: moe.models.blocks", models.block_list_keys },
  { "moe.block", model_keys.block_kind, "A block takes these and the keys of "
    .. "attention, ffn and router." },
}

-- What each family sets differently.
local function add_families(out)
  local names = {}
  for family in pairs(models.families) do names[#names + 1] = family end
  table.sort(names)
  out[#out + 1] = "| family | its defaults |"
  out[#out + 1] = "|---|---|"
  for _, family in ipairs(names) do
    local facts = {}
    for key, value in pairs(models.families[family]) do
      facts[#facts + 1] = ("`%s = %s`"):format(key, type(value) == "string"
        and ('"%s"'):format(value) or schema.show(value))
    end
    table.sort(facts)
    out[#out + 1] = ("| `moe.models.%s` | %s |"):format(family,
      table.concat(facts, ", "))
  end
  out[#out + 1] = ""
end

-- markdown() -> the text after the marker
function recipe_doc.markdown()
  local out = { "", "## All keys", "" }
  for _, section in ipairs(SECTIONS) do
    out[#out + 1] = ("### %s\n"):format(section[1])
    if section[3] then out[#out + 1] = section[3] .. "\n" end
    add_table(out, section[2])
  end
  out[#out + 1] = "### What the families set\n"
  add_families(out)
  return table.concat(out, "\n")
end

-- text() -> the same for a terminal
function recipe_doc.text()
  local out = {}
  for _, section in ipairs(SECTIONS) do
    out[#out + 1] = section[1]
    for _, key in ipairs(section[2]) do
      local default = show_default(key)
      out[#out + 1] = ("  %-20s %s%s"):format(key[1], show_type(key),
        default == "" and "" or "; " .. (key.required and "" or "default ")
          .. default):gsub("`", "")
      out[#out + 1] = "      " .. key.doc
    end
    out[#out + 1] = ""
  end
  return table.concat(out, "\n")
end

return recipe_doc
