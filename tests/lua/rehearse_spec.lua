-- Every recipe of the folder can be rehearsed here: a small model of its kind
-- trains on made-up data, and learns.
local support = require "support"

local function recipes()
  local _, out = support.shell "ls recipes/*.lua"
  local list = {}
  for path in out:gmatch("%S+") do list[#list + 1] = path end
  return list
end

describe("moelua RECIPE --rehearse", function()
  for _, path in ipairs(recipes()) do
    it("learns something with " .. path, function()
      local status, out, err = support.moelua { path, "--rehearse",
        "checkpoint=none", "log.jsonl=false" }
      assert.equal(0, status, err)
      local first, last = out:match("loss%s+(%d+%.%d+) %-> (%d+%.%d+)")
      assert.is_true(tonumber(last) < tonumber(first) - 0.1, out)
    end)
  end
end)
