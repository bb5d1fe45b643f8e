-- `moelua mesh` and the objects behind it: groups, places, who holds what.
local json = require "moelua.json"
local moe = require "moelua"
local support = require "support"

local function run(...)
  return support.moelua { "mesh", ... }
end

local function has(text, part)
  assert.is_truthy(text:find(part, 1, true), ("%q is not in %q"):format(part,
    text))
end

local function groups_by_name(object)
  local by = {}
  for _, kind in ipairs(object.groups) do by[kind.name] = kind.ranks end
  return by
end

describe("moelua mesh", function()
  it("prints every group and both views", function()
    local status, out, err = run("--world", "16", "tp=2", "cp=2", "pp=2",
      "ep=4", "etp=1")
    assert.same({ 0, "" }, { status, err })
    for _, line in ipairs {
      "16 ranks, order tp-cp-ep-dp-pp\n",
      "attention view  tp 2   cp 2  dp 2   pp 2\n",
      "MoE view        etp 1  ep 4  edp 2  pp 2\n",
      "\ntp         [0,1] [2,3] [4,5] [6,7] [8,9] [10,11] [12,13] [14,15]\n",
      "\ndp-cp      [0,2,4,6] [1,3,5,7] [8,10,12,14] [9,11,13,15]\n",
      "\nep         [0,1,2,3] [4,5,6,7] [8,9,10,11] [12,13,14,15]\n",
      "\netp-ep-pp  [0,1,2,3,8,9,10,11] [4,5,6,7,12,13,14,15]\n",
      "stage 1: part 2 of 2\n",
      "\n   1  2 of 2  9 11 13 15\n",
      "\n   3    0  4 of 4   1 of 1      3 7\n",
    } do has(out, line) end
    for line in out:gmatch("[^\n]+") do assert.is_true(#line < 80, line) end
  end)

  it("says which rank holds what of a recipe's model", function()
    local status, out, err = run("recipes/tiny.lua", "layout.tp=4",
      "model.kv_heads=2", "ep=2", "etp=2", "pp=2", "--world=16")
    assert.same({ 0, "" }, { status, err })
    for _, line in ipairs {
      "stage 0: embedding, blocks 0-1\n", "stage 1: blocks 2-3, head\n",
      "  tp  heads  kv heads  dense ffn  shared ffn  vocabulary  ranks, by "
        .. "cp, dp\n",
      "   1  1      0         192-383    64-127      65-129      1 5\n",
      "   2  2      1         384-575    128-191     130-194     2 6\n",
      "   1    0  4-7      0-127       2 6\n",
      "   1    1  4-7      128-255     11 15\n",
    } do has(out, line) end
  end)

  it("follows chunks and lists of blocks", function()
    for _, case in ipairs {
      { { "schedule.chunks=2" }, "stage 0: embedding, blocks 0, 2\n",
        "stage 1: blocks 1, 3, head\n" },
      { { "blocks=3,1" }, "stage 0: embedding, blocks 0-2\n",
        "stage 1: blocks 3, head\n" },
      { { "blocks=4,0", "model.tie_embeddings=true" },
        "stage 0: embedding, blocks 0-3\n", "stage 1: no blocks, head\n" },
    } do
      local status, out, err = run("recipes/tiny.lua", "pp=2",
        unpack(case[1]))
      assert.same({ 0, "" }, { status, err })
      has(out, case[2])
      has(out, case[3])
    end
  end)

  it("writes JSON", function()
    local status, out, err = run("recipes/tiny.lua", "tp=2", "ep=4", "etp=1",
      "pp=2", "order=tp-cp-ep-dp-pp", "--world", "16", "--json")
    assert.same({ 0, "" }, { status, err })
    local object = assert(json.decode(out))
    assert.same({ 16, 2, 1, 4, 2, 1, 4, 2 }, { object.world, object.tp,
      object.cp, object.dp, object.pp, object.etp, object.ep, object.edp })
    assert.equal(13, #object.groups)
    local by = groups_by_name(object)
    assert.same({ 3, 11 }, { by.pp[4][1], by.pp[4][2] })
    assert.equal(16, #object.ranks)
    local last = object.ranks[16]
    assert.same({ 15, 1, 3, 1, 3, 1 }, { last.rank, last.tp, last.dp, last.pp,
      last.ep, last.edp })
    assert.same({ 6, 7 }, { last.holds.experts[1][1],
      last.holds.experts[1][2] })
    assert.is_true(last.holds.head)
    assert.is_false(last.holds.embedding)
    local _, bare = run("--world", "2", "--json")
    assert.is_nil(json.decode(bare).ranks[1].holds)
  end)

  it("takes the fewest ranks when none are given", function()
    local status, out = run("tp=2", "cp=3", "pp=5", "etp=1", "ep=4", "--json")
    assert.equal(0, status)
    assert.equal(60, json.decode(out).world)
  end)

  it("refuses a wrong layout with the arithmetic and status 2", function()
    for _, case in ipairs {
      { { "--world", "16", "tp=2", "cp=2", "pp=2", "ep=8", "etp=1",
        "order=tp-cp-ep-pp-dp" }, "layout.order: \"tp-cp-ep-pp-dp\" has 4 "
        .. "ranks left of pp in the attention view and 8 in the MoE view" },
      { { "--world", "12", "tp=4", "pp=2", "ep=1" }, "layout: 12 ranks are "
        .. "not a multiple of tp 4 * cp 1 * pp 2 = 8; ranks: 8 or 16" },
      { { "tp=2", "order=tp-dp-pq" }, "layout.order: unknown axis \"pq\"" },
      { { "etpp=2" }, "etpp: unknown key; did you mean 'etp'?" },
      { { "model.layers=2" }, "other keys need a recipe" },
      { { "blocks=1,2" }, "layout.blocks: needs a recipe" },
      { { "tp=two" }, "layout.tp: expected a whole number, got 'two'" },
      { { "recipes/tiny.lua", "tp=3" }, "model.heads: 4 / tp 3 is not whole" },
      { { "recipes/tiny.lua", "layout.tpp=3" }, "layout.tpp: unknown key" },
      { { "recipes/tiny.lua", "ep=4", "--world", "6" }, "layout: 6 ranks are "
        .. "not a multiple of etp 1 * ep 4 * pp 1 = 4" },
      { { "no_such.lua" }, "no_such.lua" },
    } do
      local status, out, err = run(unpack(case[1]))
      assert.same({ 2, "" }, { status, out }, err)
      has(err, case[2])
    end
  end)

  it("refuses wrong usage", function()
    for _, case in ipairs {
      { {}, "which layout?" },
      { { "--world", "0" }, "--world takes a number of ranks, got '0'" },
      { { "--world", "70000" }, "too many to print" },
      { { "--wrld", "4" }, "did you mean '--world'?" },
      { { "tiny" }, "neither key=value nor a recipe" },
      { { "a.lua", "b.lua" }, "'b.lua': expected key=value" },
    } do
      local status, out, err = run(unpack(case[1]))
      assert.same({ 2, "" }, { status, out }, err)
      has(err, case[2])
      has(err, "moelua help mesh")
    end
  end)
end)

describe("moe.mesh", function()
  it("knows degrees, places and groups", function()
    local mesh = assert(moe.mesh({ tp = 2, etp = 1, ep = 2 }, 8))
    assert.same({ world = 8, tp = 2, cp = 1, dp = 4, pp = 1, etp = 1, ep = 2,
      edp = 4, groups = 13, order = "tp-cp-ep-dp-pp" }, mesh:info())
    assert.same({ tp = 1, cp = 0, dp = 2, pp = 0, etp = 0, ep = 1, edp = 2 },
      mesh:place(5))
    local _, message, code = mesh:place(8)
    assert.same({ "rank 8: the layout has ranks 0 .. 7", "invalid" },
      { message, code })
    for _, kind in ipairs(mesh:groups()) do
      assert.equal(8, #kind.groups * kind.members)
      if kind.name == "edp" then
        assert.same({ "moe", { { 0, 2, 4, 6 }, { 1, 3, 5, 7 } } },
          { kind.view, kind.groups })
      end
    end
    has(tostring(mesh), "8 ranks")
    mesh:close()
    mesh:close()
    assert.has_error(function() mesh:info() end, "mesh is closed")
  end)

  it("refuses what is no layout", function()
    local mesh, message, code = moe.mesh({ tp = 3 }, 8)
    assert.is_nil(mesh)
    assert.equal("invalid", code)
    has(message, "8 ranks are not a multiple of tp 3")
    assert.has_error(function() moe.mesh { tq = 2 } end)
    assert.has_error(function() moe.mesh({ tp = 2 }, "8") end)
  end)
end)

describe("moe.placement", function()
  local recipe = require "moelua.recipe"

  it("is what the ranks together have once", function()
    local resolved = assert(recipe.load("recipes/tiny.lua", { "layout.tp=2",
      "layout.ep=2", "layout.etp=1", "layout.pp=2" }))
    local config, anchor = recipe.train_config(resolved)
    local elements, shapes = {}, {}
    for rank = 0, 3 do
      for _, param in ipairs(assert(moe.placement(config, 4, rank))) do
        local n, whole = 1, 1
        for d, count in ipairs(param.count) do
          n, whole = n * count, whole * param.shape[d]
          assert.is_true(param.start[d] + count <= param.shape[d])
        end
        shapes[param.name] = whole
        elements[param.name] = (elements[param.name] or 0) + n
      end
    end
    assert.is_truthy(anchor)
    assert.equal(shapes["blocks.3.attn.q"], elements["blocks.3.attn.q"])
    assert.equal(shapes["blocks.1.moe.experts.in"],
      elements["blocks.1.moe.experts.in"])
    assert.equal(2 * shapes["blocks.0.attn.norm"],
      elements["blocks.0.attn.norm"]) -- both tp ranks have the norms
    assert.equal(shapes.embed, elements.embed)
    local _, message, code = moe.placement(config, 4, 4)
    assert.same({ "rank 4: the layout has ranks 0 .. 3", "invalid" },
      { message, code })
  end)
end)
