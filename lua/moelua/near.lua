-- Owns "did you mean": the nearest of a set of names, or nothing.
local near = {}

-- Edit distance where a swap of neighbours counts once; gives up past `limit`.
local function distance(a, b, limit)
  if math.abs(#a - #b) > limit then return limit + 1 end
  local before, row, next_row = {}, {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    next_row[0] = i
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local best = math.min(row[j] + 1, next_row[j - 1] + 1,
        row[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1)
        and a:byte(i - 1) == b:byte(j) then
        best = math.min(best, before[j - 2] + 1)
      end
      next_row[j] = best
    end
    before, row, next_row = row, next_row, before
  end
  return row[#b]
end

-- nearest(name, set) -> the key of `set` (or item, of an array) nearest to
-- `name`, or nil when none is near.
function near.nearest(name, set)
  name = tostring(name):lower()
  local limit = math.max(1, math.floor(#name / 3))
  local best, best_cost
  for key, value in pairs(set) do
    local item = type(key) == "number" and value or key
    if type(item) == "string" then
      local cost = distance(name, item:lower(), limit)
      if cost <= limit and (not best or cost < best_cost
        or (cost == best_cost and item < best)) then
        best, best_cost = item, cost
      end
    end
  end
  return best
end

-- hint(name, set) -> "; did you mean 'x'?" or, where nothing is near and the
-- set is small, "; one of a, b, c", or "".
function near.hint(name, set)
  local best = near.nearest(name, set)
  if best then return ("; did you mean '%s'?"):format(best) end
  local all = {}
  for key, value in pairs(set) do
    all[#all + 1] = tostring(type(key) == "number" and value or key)
  end
  if #all == 0 or #all > 16 then return "" end
  table.sort(all)
  return "; one of " .. table.concat(all, ", ")
end

-- A table that raises, two levels up, on a field it does not have.
function near.strict(name, fields)
  return setmetatable(fields, {
    __index = function(self, key)
      error(("%s has no field '%s'%s"):format(name, tostring(key),
        near.hint(key, self)), 2)
    end,
  })
end

return near
