-- `moelua check` and what a run does with a wrong recipe: every error on
-- stderr, status 2, and nothing written.
local bad_recipes = require "bad_recipes"
local support = require "support"

-- The files below a folder, as text.
local function listing(folder)
  local _, out = support.shell("cd " .. support.quote(folder)
    .. " && find . | sort")
  return out
end

local function in_folder(folder, arguments)
  local words = { "cd", support.quote(folder), "&&",
    support.quote(support.program) }
  for _, word in ipairs(arguments) do
    words[#words + 1] = support.quote(word)
  end
  return support.shell(table.concat(words, " "))
end

local function errors_of(entry)
  local want = {}
  for i = 2, #entry do want[i - 1] = entry[i]:gsub("FILE", "bad.lua") end
  return want
end

describe("a wrong recipe", function()
  local folder

  setup(function() folder = support.folder() end)
  teardown(function() support.remove(folder) end)

  for number, entry in ipairs(bad_recipes.list) do
    it("ends with status 2 and no file: " .. entry[1], function()
      support.write(folder .. "/bad.lua", bad_recipes.text(entry))
      local before = listing(folder)
      local commands = { { "bad.lua" } }
      if number % 8 == 0 then commands[2] = { "check", "bad.lua" } end
      for _, arguments in ipairs(commands) do
        local status, out, err = in_folder(folder, arguments)
        assert.same({ 2, "" }, { status, out }, err)
        for _, text in ipairs(errors_of(entry)) do
          assert.is_truthy(err:find(text, 1, true), err)
        end
      end
      assert.equal(before, listing(folder))
    end)
  end
end)

describe("moelua check", function()
  it("describes a good recipe", function()
    local status, out, err = support.moelua { "check",
      "recipes/mixtral_8x22b.lua", "--ranks", "128" }
    assert.same({ 0, "" }, { status, err })
    for _, part in ipairs { "recipes/mixtral_8x22b.lua is valid",
      "mixtral, 56 layers", "tp 2 cp 1 dp 8 pp 8, etp 1 ep 8 edp 2" } do
      assert.is_truthy(out:find(part, 1, true), out)
    end
    status, out = support.moelua { "check", "recipes/tiny.lua" }
    assert.equal(0, status)
    assert.is_truthy(out:find("4 layers, 1 of them dense", 1, true), out)
    assert.is_truthy(out:find("1 or a multiple", 1, true), out)
  end)

  it("checks the number of ranks", function()
    local status, out, err = support.moelua { "check",
      "recipes/mixtral_8x22b.lua", "--ranks", "96" }
    assert.same({ 2, "" }, { status, out })
    assert.is_truthy(err:find("layout: 96 ranks are not a multiple of etp 1 * "
      .. "ep 8 * pp 8 = 64; ranks: 64 or 128, or ep: ", 1, true), err)
  end)

  it("takes changes", function()
    local status, _, err = support.moelua { "check", "recipes/tiny.lua",
      "model.topk=9" }
    assert.equal(2, status)
    assert.is_truthy(err:find("model.topk: 9 of 8 experts", 1, true), err)
  end)

  it("refuses wrong usage", function()
    for _, arguments in ipairs { { "check" },
      { "check", "recipes/tiny.lua", "--ranks", "two" },
      { "check", "recipes/tiny.lua", "--ranks", "0" },
      { "check", "recipes/tiny.lua", "--rank", "2" } } do
      local status, out = support.moelua(arguments)
      assert.same({ 2, "" }, { status, out })
    end
  end)
end)
