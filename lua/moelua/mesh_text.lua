-- Owns how a mesh looks: its groups and the picture of who holds what, as text
-- and as fields for JSON.
local holdings = require "moelua.holdings"
local json = require "moelua.json"
local report = require "moelua.report"

local mesh_text = {}

local WIDTH = 79

-- Lines of pieces, each at most `width` long where pieces allow it.
local function wrap(pieces, width)
  local lines, line = {}, ""
  for _, piece in ipairs(pieces) do
    if line ~= "" and #line + #piece > width then
      lines[#lines + 1] = (line:gsub("%s+$", ""))
      line = ""
    end
    line = line .. piece
  end
  lines[#lines + 1] = (line:gsub("%s+$", ""))
  return lines
end

-- "[0,1] [2,3]" in pieces that lines may break between
local function pieces_of(groups)
  local pieces = {}
  for _, group in ipairs(groups) do
    for i, rank in ipairs(group) do
      pieces[#pieces + 1] = (i == 1 and "[" or "") .. rank
        .. (i == #group and "] " or ",")
    end
  end
  return pieces
end

-- Degrees of both views.
function mesh_text.degrees(info)
  return ("%d rank%s, order %s\n"):format(info.world,
    info.world == 1 and "" or "s", info.order)
    .. report.table { rows = {
      { "attention view", "tp " .. info.tp, "cp " .. info.cp,
        "dp " .. info.dp, "pp " .. info.pp },
      { "MoE view", "etp " .. info.etp, "ep " .. info.ep, "edp " .. info.edp,
        "pp " .. info.pp },
    } }
end

function mesh_text.groups(kinds)
  local lines, widest = {}, 0
  for _, kind in ipairs(kinds) do widest = math.max(widest, #kind.name) end
  for _, kind in ipairs(kinds) do
    local name = kind.name
    for _, line in ipairs(wrap(pieces_of(kind.groups), WIDTH - widest - 2)) do
      lines[#lines + 1] = name .. (" "):rep(widest + 2 - #name) .. line
      name = ""
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- the picture ----

local VIEWS = {
  { axes = { "tp" }, copies = { "cp", "dp" }, columns = {
    { "heads", "heads" }, { "kv_heads", "kv heads" },
    { "dense_ffn", "dense ffn" }, { "shared_ffn", "shared ffn" },
    { "vocabulary", "vocabulary" } } },
  { axes = { "ep", "etp" }, copies = { "edp" }, columns = {
    { "experts", "experts" }, { "expert_ffn", "expert ffn" } } },
}

-- The ranks of a stage, in the order of the view: those with the same
-- coordinates on its axes are one entry { place, held, ranks }.
local function shares(view, stage, held, places)
  local list, known = {}, {}
  local function less(a, b)
    local names = { unpack(view.axes) }
    for i = #view.copies, 1, -1 do names[#names + 1] = view.copies[i] end
    for _, axis in ipairs(names) do
      if places[a][axis] ~= places[b][axis] then
        return places[a][axis] < places[b][axis]
      end
    end
    return false
  end
  table.sort(stage, less)
  for _, rank in ipairs(stage) do
    local key = places[rank][view.axes[1]] .. " "
      .. places[rank][view.axes[#view.axes]]
    if not known[key] then
      known[key] = { place = places[rank], held = held[rank], ranks = {} }
      list[#list + 1] = known[key]
    end
    table.insert(known[key].ranks, rank .. " ")
  end
  return list
end

local function view_table(view, list)
  local header, rows, align, columns = {}, {}, "", {}
  for _, axis in ipairs(view.axes) do
    header[#header + 1], align = axis, align .. "r"
  end
  for _, column in ipairs(view.columns) do
    for _, share in ipairs(list) do
      if share.held[column[1]] then
        columns[#columns + 1] = column[1]
        header[#header + 1], align = column[2], align .. "l"
        break
      end
    end
  end
  header[#header + 1] = "ranks, by " .. table.concat(view.copies, ", ")
  for _, share in ipairs(list) do
    local row = {}
    for _, axis in ipairs(view.axes) do row[#row + 1] = share.place[axis] end
    for _, name in ipairs(columns) do
      row[#row + 1] = holdings.text(share.held[name] or {})
    end
    for _, line in ipairs(wrap(share.ranks, 40)) do
      row[#header] = line
      rows[#rows + 1] = row
      row = {}
      for i = 1, #header do row[i] = "" end
    end
  end
  return report.table { header = header, rows = rows, align = align }
end

local function stage_title(number, held)
  local words = { "blocks " .. holdings.text(held.blocks) }
  if type(held.blocks) == "string" then words[1] = held.blocks end
  if #held.blocks == 0 then words[1] = "no blocks" end
  if held.embedding then table.insert(words, 1, "embedding") end
  if held.head then words[#words + 1] = "head" end
  return ("stage %d: %s\n"):format(number, table.concat(words, ", "))
end

-- Who holds what, a stage after the other.
function mesh_text.picture(info, held, places)
  local parts = {}
  for pp = 0, info.pp - 1 do
    local stage = {}
    for rank = 0, info.world - 1 do
      if places[rank].pp == pp then stage[#stage + 1] = rank end
    end
    parts[#parts + 1] = stage_title(pp, held[stage[1]])
    for _, view in ipairs(VIEWS) do
      local list = shares(view, stage, held, places)
      if view.axes[1] == "tp" or list[1].held.experts then
        parts[#parts + 1] = (view_table(view, list):gsub("([^\n]+)", "  %1"))
      end
    end
  end
  return table.concat(parts, "\n")
end

-- ---- JSON ----

local AXES = { "tp", "cp", "dp", "pp", "etp", "ep", "edp" }

local function held_fields(held)
  local names = {}
  for name in pairs(held) do names[#names + 1] = name end
  table.sort(names)
  local fields = {}
  for i, name in ipairs(names) do
    local value = held[name]
    if type(value) == "table" then
      local list = {}
      for j, range in ipairs(value) do list[j] = json.array(range) end
      value = json.array(list)
    end
    fields[i] = { name, value }
  end
  return json.object(fields)
end

-- Everything as an object; holds: whether `held` is of a model
function mesh_text.fields(info, kinds, held, places, holds)
  local fields, groups, ranks = { { "world", info.world },
    { "order", info.order } }, {}, {}
  for _, axis in ipairs(AXES) do fields[#fields + 1] = { axis, info[axis] } end
  for i, kind in ipairs(kinds) do
    local lists = {}
    for j, group in ipairs(kind.groups) do lists[j] = json.array(group) end
    groups[i] = json.object { { "name", kind.name }, { "view", kind.view },
      { "ranks", json.array(lists) } }
  end
  for rank = 0, info.world - 1 do
    local one = { { "rank", rank } }
    for _, axis in ipairs(AXES) do
      one[#one + 1] = { axis, places[rank][axis] }
    end
    if holds then one[#one + 1] = { "holds", held_fields(held[rank]) } end
    ranks[rank + 1] = json.object(one)
  end
  fields[#fields + 1] = { "groups", json.array(groups) }
  fields[#fields + 1] = { "ranks", json.array(ranks) }
  return json.object(fields)
end

return mesh_text
