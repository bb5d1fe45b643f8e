-- Recipes: reading, changes from the command line, all errors at once, the
-- way to C, rehearsals and the documentation.
local bad_recipes = require "bad_recipes"
local ffi = require "ffi"
local moe = require "moelua"
local recipe = require "moelua.recipe"

local RECIPES = { "tiny", "mixtral_8x7b", "mixtral_8x22b", "qwen2_57b",
  "qwen15_moe_a27b", "qwen3_30b_a3b", "olmoe_1b_7b" }

-- Loads a recipe from its text; errors name the file FILE.
local function load_text(text, overrides)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  local resolved, errors = recipe.load(path, overrides)
  os.remove(path)
  for i, line in ipairs(errors or {}) do
    local from, to = line:find(path, 1, true)
    if from then
      errors[i] = line:sub(1, from - 1) .. "FILE" .. line:sub(to + 1)
    end
  end
  return resolved, errors
end

local function load(name, overrides)
  local resolved, errors = recipe.load(("recipes/%s.lua"):format(name),
    overrides)
  assert.same(nil, errors)
  return resolved
end

-- The errors that changes of tiny.lua give.
local function errors_of(...)
  local resolved, errors = recipe.load("recipes/tiny.lua", { ... })
  assert.is_nil(resolved)
  return errors
end

describe("wrong recipes", function()
  for _, entry in ipairs(bad_recipes.list) do
    it(entry[1], function()
      local resolved, errors = load_text(bad_recipes.text(entry))
      assert.is_nil(resolved)
      local want = {}
      for i = 2, #entry do want[i - 1] = entry[i] end
      assert.same(want, errors)
    end)
  end

  it("are at least forty", function()
    assert.is_true(#bad_recipes.list >= 40)
  end)

  it("include files that do not exist", function()
    local resolved, errors = recipe.load("no/such.lua")
    assert.is_nil(resolved)
    assert.equal(1, #errors)
    assert.is_truthy(errors[1]:find("cannot open no/such.lua", 1, true))
  end)
end)

describe("a good recipe", function()
  it("is accepted without changes", function()
    assert.is_table(load_text(bad_recipes.text {}))
  end)

  it("is resolved with every default", function()
    local r = load "tiny"
    assert.equal("recipes/tiny.lua", r.path)
    assert.equal("tiny", r.name)
    assert.same({ order = "tp-cp-ep-dp-pp", cp_kind = "ring" }, r.layout)
    assert.same({ kind = "auto", drop = "probs", pad = false,
      capacity_scope = "local" }, r.dispatch)
    assert.equal(1, r.schedule.chunks)
    assert.same({ "matrix", "embedding" }, r.optimizer.decay)
    assert.equal("bytes", r.data.tokenizer)
    assert.is_true(r.checkpoint.resume)
    assert.equal(4, #r.model.blocks)
    assert.same({ threads = 0 }, r.compute)
    assert.same({ 1, "f32" }, { r.seed, r.dtype })
  end)

  it("keeps its globals to itself", function()
    load_text("leaked = 1\n" .. bad_recipes.text {})
    assert.is_nil(rawget(_G, "leaked"))
  end)

  it("may use loops, functions and the standard library", function()
    local r = assert(load_text((bad_recipes.text { schedule =
      "(function() local n = 0 for i = 1, 4 do n = n + i end "
      .. "return { global_batch = n, steps = math.floor(10.5) } end)()" })))
    assert.same({ 10, 10 }, { r.schedule.global_batch, r.schedule.steps })
  end)

  it("leaves tables it shares alone", function()
    local given = dofile "recipes/tiny.lua"
    local before = given.schedule.steps
    assert.is_table((recipe.resolve(given, { "schedule.steps=7" })))
    assert.equal(before, given.schedule.steps)
  end)

  it("takes a number as learning rate, and wsd without decay", function()
    local r = assert(load_text(bad_recipes.text {
      optimizer = "moe.adamw { lr = 1e-3 }" }))
    assert.same({ kind = "constant", peak = 1e-3, min = 0, warmup = 0 },
      r.optimizer.lr)
    r = assert(load_text(bad_recipes.text {
      optimizer = "moe.adamw { lr = moe.wsd { peak = 1e-3 } }" }))
    assert.equal(10, r.optimizer.lr.decay)
    local shares = bad_recipes.text { optimizer = [[moe.adamw { lr = moe.wsd {
      peak = 1e-3, warmup = 0.25, decay = 0.333 } }]] }
    r = assert(load_text(shares))
    assert.same({ 25, 33 }, { r.optimizer.lr.warmup, r.optimizer.lr.decay })
    r = assert(load_text(shares, { "schedule.steps=1" }))
    assert.same({ 0, 1 }, { r.optimizer.lr.warmup, r.optimizer.lr.decay })
  end)

  it("takes one source or several", function()
    local r = assert(load_text(bad_recipes.text {
      data = [[{ train = { "a", { prefix = "b", weight = 3 } }, seq = 8 }]] }))
    assert.same({ { prefix = "a", weight = 1 }, { prefix = "b", weight = 3 } },
      r.data.train)
  end)
end)

describe("the recipes of this folder", function()
  for _, name in ipairs(RECIPES) do
    it(name .. " is valid", function() load(name) end)
  end

  it("work on the ranks they name, not on others", function()
    for name, ranks in pairs { mixtral_8x22b = 128, qwen2_57b = 64,
      mixtral_8x7b = 64, qwen15_moe_a27b = 8, qwen3_30b_a3b = 16,
      olmoe_1b_7b = 8 } do
      assert.same({}, recipe.check(load(name), ranks))
      assert.is_true(#recipe.check(load(name), ranks + 1) > 0)
    end
    assert.same({}, recipe.check(load "tiny", 1))
  end)

  it("are all of them", function()
    local found = {}
    for path in io.popen("ls recipes/*.lua"):lines() do
      found[#found + 1] = path:match("([^/]+)%.lua$")
    end
    local want = { unpack(RECIPES) }
    table.sort(want)
    assert.same(want, found)
  end)
end)

describe("check", function()
  it("speaks the recipe's words", function()
    local r = load("mixtral_8x7b")
    assert.same({ "layout: 63 ranks are not a multiple of tp 2 * cp 1 * pp 4 = "
      .. "8; ranks: 56 or 64", "layout: 63 ranks are not a multiple of etp 1 * "
      .. "ep 8 * pp 4 = 32; ranks: 32 or 64" }, recipe.check(r, 63))
    r = load("olmoe_1b_7b", { "schedule.global_batch=1032" })
    assert.same({ "schedule.global_batch: 1032 is not a multiple of "
      .. "micro_batch 1 * dp 16 = 16; 1024 or 1040" }, recipe.check(r, 16))
    assert.same({}, recipe.check(r, 8))
  end)
end)

describe("changes from the command line", function()
  it("take the type that the key wants", function()
    local r = load("tiny", { "schedule.steps=50", "optimizer.lr.peak=5e-4",
      "log.jsonl=false", "log.sample.prompt=42", "name=true", "dtype=bf16",
      "optimizer.decay=matrix,bias", "model.mlp_only_layers=0,1",
      "data.train=other/prefix", "model.layers=6" })
    assert.same({ 50, 5e-4, false }, { r.schedule.steps, r.optimizer.lr.peak,
      r.log.jsonl })
    assert.same({ "42", "true", "bf16" }, { r.log.sample.prompt, r.name,
      r.dtype })
    assert.same({ "matrix", "bias" }, r.optimizer.decay)
    assert.equal("other/prefix", r.data.train)
    assert.equal(6, #r.model.blocks)
    assert.equal("dense", r.model.blocks[2].ffn_kind)
  end)

  it("keep commas and equal signs of texts", function()
    local r = load("tiny", { "log.sample.prompt=a = b, c" })
    assert.equal("a = b, c", r.log.sample.prompt)
  end)

  it("take keys out with none, but not where none is a name", function()
    local r = load("tiny", { "log.sample=none", "checkpoint.every=none",
      "model.recompute=none" })
    assert.is_nil(r.log.sample)
    assert.equal(0, r.checkpoint.every)
    assert.equal("none", r.model.blocks[1].recompute)
  end)

  it("make sections that were not there", function()
    assert.equal(2, load("tiny", { "compute.threads=2" }).compute.threads)
    assert.equal(0.5, load("tiny",
      { "dispatch.capacity_factor=0.5" }).dispatch.capacity_factor)
  end)

  it("reach into lists and curves", function()
    local r = assert(load_text(bad_recipes.text { model =
      [[moe.models.blocks { vocab = 257, hidden = 64, blocks =
        moe.repeat_block(3, moe.block { heads = 4, ffn = 8 }) }]],
      optimizer = "moe.adamw { lr = 1e-3 }" },
      { "model.blocks.2.ffn=16", "model.blocks[3].ffn=24",
        "optimizer.lr.warmup=4" }))
    assert.same({ 8, 16, 24 }, { r.model.blocks[1].ffn, r.model.blocks[2].ffn,
      r.model.blocks[3].ffn })
    assert.same({ 1e-3, 4 }, { r.optimizer.lr.peak, r.optimizer.lr.warmup })
  end)

  it("are checked like the recipe", function()
    assert.same({ "schedule.stepz: unknown key; did you mean 'steps'?" },
      errors_of "schedule.stepz=3")
    assert.same({ "schedule.steps: expected a whole number, got 'many'" },
      errors_of "schedule.steps=many")
    assert.same({ "model.layers.x: 'layers' is 4, not a table" },
      errors_of "model.layers.x=3")
    assert.same({ "'steps': expected key=value, e.g. schedule.steps=100",
      "seed: -1 must be at least 0" }, errors_of("steps", "seed=-1"))
    assert.same({ "schedule.steps: is missing (optimizer steps)" },
      errors_of "schedule.steps=none")
  end)
end)

describe("train_config", function()
  it("says in C what the recipe says", function()
    local r = load("qwen2_57b", { "dispatch.drop=position", "seed=9" })
    local config, anchor = recipe.train_config(r)
    assert.is_table(anchor)
    assert.same({ 28, 151936, 3584 }, { config.model.n_blocks,
      config.model.vocab, config.model.hidden })
    local block = config.model.blocks[27]
    assert.same({ 28, 4, 128, 1, 64, 8, 20480, 1, 0 }, { block.heads,
      block.kv_heads, block.head_dim, block.qkv_bias, block.experts,
      block.topk, block.shared_ffn, block.shared_gate, block.renormalise })
    assert.near(0.001 * 8 / 28, block.aux_coef, 1e-18)
    assert.same({ 2, 0, 0, 4, 1, 4, 0, 1 }, { config.layout.tp,
      config.layout.cp, config.layout.dp, config.layout.pp, config.layout.etp,
      config.layout.ep, config.layout.edp, config.layout.chunks })
    assert.equal("tp-cp-ep-dp-pp", ffi.string(config.layout.order))
    local lib = require("moelua.ffi").lib
    assert.same({ tonumber(lib.MOE_DISPATCH_ALLTOALL), 1,
      tonumber(lib.MOE_DROP_POSITION) }, { config.dispatch.kind,
      config.dispatch.capacity_factor, config.dispatch.drop })
    assert.same({ tonumber(lib.MOE_LR_COSINE), 500, 10000 }, {
      config.optimizer.lr.kind, tonumber(config.optimizer.lr.warmup),
      tonumber(config.optimizer.lr.total) })
    assert.same({ 3, 1, 4096, 256, 1, 9 }, { config.optimizer.decay,
      config.optimizer.shard, config.seq, config.global_batch,
      config.micro_batch, tonumber(config.seed) })
    assert.equal(tonumber(lib.MOE_BF16), config.dtype)
  end)

  it("hands over a list of blocks", function()
    local r = load("qwen2_57b", { "layout.blocks=7,8,13,0" })
    local config, anchor = recipe.train_config(r)
    assert.is_table(anchor)
    local got = {}
    for i = 1, config.layout.n_blocks do
      got[i] = config.layout.blocks[i - 1]
    end
    assert.same({ 7, 8, 13, 0 }, got)
  end)

  it("outlives a collection", function()
    local config, anchor = recipe.train_config(load "tiny")
    for _ = 1, 3 do collectgarbage() end
    assert.equal("tp-cp-ep-dp-pp", ffi.string(config.layout.order))
    assert.equal(8, config.model.blocks[3].experts)
    assert.is_table(anchor)
  end)
end)

describe("a rehearsal", function()
  for _, name in ipairs(RECIPES) do
    it("of " .. name .. " is small, valid and of the same kinds", function()
      local full = load(name)
      local small = recipe.rehearse(full)
      assert.same({}, recipe.check(small, 1))
      assert.is_true(moe.models.count(small.model) < 1e6)
      assert.is_true(#small.model.blocks <= 16)
      assert.is_true(small.schedule.steps <= 40)
      assert.is_true(small.data.synthetic)
      local kinds, left = {}, 0
      for _, block in ipairs(full.model.blocks) do
        kinds[block.ffn_kind] = block
      end
      for _, block in ipairs(small.model.blocks) do
        local like = kinds[block.ffn_kind]
        for _, key in ipairs { "score", "renormalise", "qkv_bias", "qk_norm",
          "shared_gate", "rope_theta", "aux_coef", "recompute" } do
          assert.equal(like[key], block[key])
        end
        assert.equal((like.shared_ffn or 0) > 0, (block.shared_ffn or 0) > 0)
      end
      for _, block in ipairs(small.model.blocks) do
        kinds[block.ffn_kind] = nil
      end
      for _ in pairs(kinds) do left = left + 1 end
      assert.equal(0, left)
    end)
  end

  it("keeps the layout on the ranks of the recipe", function()
    for name, ranks in pairs { mixtral_8x22b = 128, qwen2_57b = 64,
      qwen15_moe_a27b = 8, olmoe_1b_7b = 8 } do
      local full = load(name)
      local small = recipe.rehearse(full, ranks)
      assert.same(full.layout, small.layout)
      assert.same({}, recipe.check(small, ranks))
    end
  end)

  it("holds for layouts of many kinds", function()
    local text = bad_recipes.text { model = [[moe.models.blocks {
      vocab = 5000, hidden = 512, max_positions = 4096, blocks = {
      moe.repeat_block(3, moe.block { heads = 24, kv_heads = 12, head_dim = 64,
        ffn = 480, window = 100 }),
      moe.repeat_block(9, moe.block { heads = 24, kv_heads = 12,
        head_dim = 64, ffn = 96, experts = 48, topk = 6, groups = 8,
        topk_groups = 4, shared_ffn = 96, score = "sigmoid" }) } }]],
      data = [[{ train = "x", seq = 2880 }]],
      schedule = "{ global_batch = 288, micro_batch = 2, steps = 100 }" }
    for _, o in ipairs { { tp = 12, etp = 6, ep = 4 }, { tp = 3, cp = 3 },
      { tp = 4, cp = 2, pp = 6, ep = 3 }, { pp = 3, ep = 16 },
      { ep = 48 } } do
      local overrides = {}
      for key, value in pairs(o) do
        overrides[#overrides + 1] = ("layout.%s=%d"):format(key, value)
      end
      local full, errors = load_text(text, overrides)
      assert.same(nil, errors)
      assert.same({}, recipe.check(recipe.rehearse(full), 1))
      assert.same({}, recipe.check(recipe.rehearse(full, 144), 144))
    end
  end)

  it("does not touch the recipe or its checkpoints", function()
    local full = load "tiny"
    local small = recipe.rehearse(full)
    assert.equal(256, full.model.hidden)
    assert.equal("runs/tiny/rehearsal", small.checkpoint.dir)
    assert.is_false(small.checkpoint.resume)
  end)
end)

describe("made-up tokens", function()
  local synthetic = require "moelua.synthetic"

  it("are a function of seed and sample, inside of the vocabulary", function()
    local source = synthetic.open { seq = 8, vocab = 17, seed = 3 }
    local a, b = ffi.new("int32_t[32]"), ffi.new("int32_t[32]")
    local c, d = ffi.new("int32_t[8]"), ffi.new("int32_t[8]")
    source:read(5, 4, a, b)
    source:read(7, 1, c, d)
    for t = 0, 7 do assert.same({ a[16 + t], b[16 + t] }, { c[t], d[t] }) end
    local starts = {}
    for i = 0, 31 do
      assert.is_true(a[i] >= 0 and a[i] < 17)
      if i % 8 < 7 then assert.equal(a[i + 1], b[i]) end
      if i % 8 == 0 then starts[a[i] * 100 + b[i]] = true end
    end
    local different = 0
    for _ in pairs(starts) do different = different + 1 end
    assert.is_true(different > 1)
  end)
end)

describe("recipes/README.md", function()
  it("documents the keys that are checked", function()
    local doc = require "moelua.recipe_doc"
    local file = assert(io.open "recipes/README.md")
    local text = file:read("*a")
    file:close()
    local _, last = text:find(doc.marker, 1, true)
    assert.is_number(last)
    assert.equal("\n" .. doc.markdown(), text:sub(last + 1))
  end)
end)
