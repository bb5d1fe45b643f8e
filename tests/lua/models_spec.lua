-- Models: families, blocks, and the numbers of parameters.
local models = require "moelua.models"

local function resolve(model)
  local problems = {}
  local resolved = models.resolve(model, "model", problems)
  assert.same({}, problems)
  return resolved
end

-- The only problem of a model.
local function problem(model)
  local problems = {}
  assert.is_nil(models.resolve(model, "model", problems))
  assert.equal(1, #problems, table.concat(problems, "\n"))
  return problems[1]
end

local function small(keys)
  local options = { vocab = 300, hidden = 32, layers = 4, heads = 4, ffn = 48,
    experts = 8, topk = 2 }
  for key, value in pairs(keys or {}) do options[key] = value end
  return options
end

describe("the counter", function()
  -- Published numbers of the released models.
  local KNOWN = {
    mixtral_8x22b = { 140620634112, 39152031744 },
    mixtral_8x7b = { 46702792704, 12879925248 },
    qwen2_57b = { 57408658944, 14249270784 },
    qwen15_moe_a27b = { 14315784192, 2689173504 },
    qwen3_30b_a3b = { 30532122624, 3353032704 },
    olmoe_1b_7b = { 6919161856, 1282017280 },
  }
  for name, want in pairs(KNOWN) do
    it("counts " .. name .. " exactly", function()
      local model = dofile("recipes/" .. name .. ".lua").model
      assert.same(want, { models.count(model) })
    end)
  end

  it("counts what a family does not have by default", function()
    local base = models.count(models.mixtral(small()))
    local function more(keys) return models.count(models.mixtral(small(keys)))
      - base end
    assert.equal(-300 * 32, more { tie_embeddings = true })
    assert.equal(4 * 8, more { score = "sigmoid", expert_bias = true })
    assert.equal(4 * 3 * 32 * 16, more { shared_ffn = 16 })
    assert.equal(4 * (3 * 32 * 16 + 32), more { shared_ffn = 16,
      shared_gate = true })
    assert.equal(4 * 2 * 8, more { qk_norm = "head" })
    assert.equal(4 * 2 * 32, more { qk_norm = "all" })
    assert.equal(4 * 3 * 32, more { qkv_bias = true })
    -- two dense layers instead of two with 8 experts and a router
    assert.equal(2 * (3 * 32 * 100 - 8 * 3 * 32 * 48 - 8 * 32),
      more { dense_ffn = 100, mlp_only_layers = { 1, 2 } })
  end)

  it("raises on a wrong model", function()
    assert.has_error(function() models.count(models.mixtral {}) end)
  end)
end)

describe("families", function()
  it("have the released models' switches", function()
    local mixtral = resolve(models.mixtral(small())).blocks[1]
    assert.is_true(mixtral.renormalise)
    assert.is_false(mixtral.qkv_bias)
    assert.equal(1e6, mixtral.rope_theta)
    local qwen2 = resolve(models.qwen2_moe(small { shared_ffn = 64 }))
    assert.is_false(qwen2.blocks[1].renormalise)
    assert.is_true(qwen2.blocks[1].qkv_bias)
    assert.is_true(qwen2.blocks[1].shared_gate)
    assert.equal(1e-6, qwen2.norm_eps)
    local qwen3 = resolve(models.qwen3_moe(small())).blocks[1]
    assert.is_true(qwen3.renormalise)
    assert.equal("head", qwen3.qk_norm)
    assert.equal(128, qwen3.head_dim)
    local olmoe = resolve(models.olmoe(small())).blocks[1]
    assert.equal("all", olmoe.qk_norm)
    assert.equal(1e4, olmoe.rope_theta)
    assert.is_false(olmoe.renormalise)
  end)

  it("have no gate without a shared expert", function()
    assert.is_false(resolve(models.qwen2_moe(small())).blocks[1].shared_gate)
  end)

  it("take heads from hidden and kv_heads from heads", function()
    local block = resolve(models.mixtral(small())).blocks[4]
    assert.same({ 4, 8 }, { block.kv_heads, block.head_dim })
  end)

  it("place dense layers as Hugging Face does", function()
    local function kinds(keys)
      keys.dense_ffn = 99
      local text = ""
      local model = resolve(models.qwen2_moe(small(keys)))
      for _, block in ipairs(model.blocks) do
        text = text .. (block.ffn_kind == "dense" and "d" or "m")
        assert.equal(block.ffn_kind == "dense" and 99 or 48, block.ffn)
      end
      return text
    end
    assert.equal("mmmm", kinds {})
    assert.equal("dmdm", kinds { decoder_sparse_step = 2 })
    assert.equal("ddmd", kinds { decoder_sparse_step = 3 })
    assert.equal("dmmd", kinds { mlp_only_layers = { 0, 3 } })
    assert.equal("dddm", kinds { decoder_sparse_step = 2,
      mlp_only_layers = { 1 } })
  end)
end)

describe("the load-balancing coefficient", function()
  local function aux(keys)
    for _, block in ipairs(resolve(models.mixtral(small(keys))).blocks) do
      if block.ffn_kind == "moe" then return block.aux_coef end
    end
  end

  it("is per layer; that of Hugging Face is converted", function()
    assert.equal(0.05, aux { aux_coef = 0.05 })
    assert.equal(0.02 * 2 / 4, aux { hf_aux_coef = 0.02 })
    assert.equal(0.001 * 2 / 4, aux {}) -- the family's default
    -- only the MoE layers are pooled
    assert.equal(0.02 * 2 / 3, aux { hf_aux_coef = 0.02, dense_ffn = 8,
      mlp_only_layers = { 0 } })
  end)

  -- Both losses of random routing: equal for one layer; for more, equal when
  -- the layers are alike.
  it("gives the loss of Hugging Face for one layer", function()
    local E, K, N, coefficient = 5, 2, 7, 0.3
    math.randomseed(3)
    local p_sum, count = {}, {}
    for e = 1, E do p_sum[e], count[e] = 0, 0 end
    for _ = 1, N do
      local scores, total = {}, 0
      for e = 1, E do
        scores[e] = math.random()
        total = total + scores[e]
      end
      local order = { 1, 2, 3, 4, 5 }
      table.sort(order, function(a, b) return scores[a] > scores[b] end)
      for e = 1, E do p_sum[e] = p_sum[e] + scores[e] / total end
      for k = 1, K do count[order[k]] = count[order[k]] + 1 end
    end
    local hf, ours = 0, 0
    local function converted(layers)
      return resolve(models.mixtral(small { layers = layers, experts = E,
        topk = K, hf_aux_coef = coefficient })).blocks[1].aux_coef
    end
    for e = 1, E do
      hf = hf + coefficient * E * (count[e] / N) * (p_sum[e] / N)
      ours = ours + converted(1) * E / (K * N * N) * p_sum[e] * count[e]
    end
    assert.near(hf, ours, 1e-15)
    assert.near(hf, 3 * ours * converted(3) / converted(1), 1e-15)
  end)
end)

describe("free lists of blocks", function()
  it("mix kinds, flatten lists and fill in defaults", function()
    local dense = models.block { heads = 4, ffn = 128 }
    local moe = models.block { heads = 4, kv_heads = 2, window = 16, ffn = 32,
      experts = 8, topk = 2, shared_ffn = 32 }
    local model = resolve(models.blocks { vocab = 300, hidden = 64, blocks = {
      dense, models.repeat_block(2, { moe, dense }), moe } })
    local text = ""
    for _, block in ipairs(model.blocks) do
      text = text .. (block.ffn_kind == "dense" and "d" or "m")
    end
    assert.equal("dmdmdm", text)
    assert.same({ 16, 4 }, { model.blocks[1].head_dim,
      model.blocks[1].kv_heads })
    assert.equal(0.01, model.blocks[2].aux_coef)
    assert.is_false(model.blocks[2].shared_gate)
    assert.is_nil(model.blocks[1].experts)
  end)

  it("report a block that is used often once", function()
    local bad = models.block { heads = 4, ffn = 32, experts = 8 }
    assert.equal("model.blocks[1].topk: is missing (experts per token K)",
      problem(models.blocks { vocab = 300, hidden = 64,
        blocks = models.repeat_block(5, bad) }))
  end)

  it("refuse what is no block", function()
    assert.equal("model.blocks[2]: expected a block, got 7",
      problem(models.blocks { vocab = 300, hidden = 64,
        blocks = { { heads = 4, ffn = 8 }, 7 } }))
    assert.has_error(function() models.repeat_block(-1, {}) end)
    assert.has_error(function() models.repeat_block(2) end)
    assert.has_error(function() models.block(3) end)
  end)
end)

describe("misuse", function()
  it("is reported at the caller's line", function()
    local _, message = pcall(function() models.mixtral "x" end)
    assert.is_truthy(message:find("models_spec.lua:%d+: moe%.models%.mixtral"))
    assert.has_error(function() models.mixtral { family = "olmoe" } end)
    assert.has_error(function() return models.mixtrel end,
      "moe.models has no field 'mixtrel'; did you mean 'mixtral'?")
  end)

  it("says something useful as text", function()
    local model = dofile("recipes/olmoe_1b_7b.lua").model
    assert.equal("olmoe model, 6.919B parameters, 1.282B active",
      tostring(model))
    assert.equal(tostring(model), tostring(resolve(model)))
    assert.equal("mixtral model, 170.8K parameters, 97.09K active",
      tostring(models.mixtral(small { vocab = 300, hidden = 64, layers = 2,
        ffn = 32 })))
    assert.equal("olmoe model (with errors)", tostring(models.olmoe {}))
  end)
end)
