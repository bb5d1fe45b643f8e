-- Checkpoints as objects and through `moelua checkpoint`.
local json = require "moelua.json"
local moe = require "moelua"
local selftest = require "moelua.selftest"
local support = require "support"
local moelua = support.moelua

local function has(text, part)
  assert.is_truthy(text:find(part, 1, true), ("%q is not in %q"):format(part,
    text))
end

-- A value no other tensor holds, and its bytes.
local MARK, MARK_BYTES = 0.15625, "\0\0\32\62"

describe("a checkpoint", function()
  local folder, path, context, marked, elements

  setup(function()
    folder = support.folder()
    context = assert(moe.context { threads = 1 })
    local trainer = assert(context:trainer(selftest.small_config()))
    assert(trainer:set_state { step = 12, cursor = 48, seed = 7 })
    marked = assert(trainer:params())[3]
    local values = {}
    for i = 1, marked.elements do values[i] = MARK end
    assert(trainer:write(marked.name, values))
    elements = 0
    for _, param in ipairs(trainer:params()) do
      elements = elements + param.elements
    end
    assert(trainer:save(folder, { meta = '{"name":"small"}' }))
    trainer:close()
    path = folder .. "/step-00000012"
  end)
  teardown(function()
    context:close()
    support.remove(folder)
  end)

  -- Runs f with one byte of the marked tensor changed.
  local function with_damage(f)
    local file = path .. "/rank-00000.h5"
    local good = assert(support.read(file))
    local at = assert(good:find(MARK_BYTES:rep(8), 1, true))
    support.write(file, good:sub(1, at + 5) .. "\33" .. good:sub(at + 7))
    local ok, problem = pcall(f)
    support.write(file, good)
    if not ok then error(problem, 0) end
  end

  it("is described as an object", function()
    local checkpoint = assert(context:checkpoint(folder))
    local info = assert(checkpoint:info())
    assert.same({ path, 12, 48, elements, 1, "f32" }, { info.path, info.step,
      info.cursor, info.params, info.files, info.dtype })
    assert.is_true(info.seed == 7ULL)
    assert.equal('{"name":"small"}', info.meta_json)
    local tensors = assert(checkpoint:tensors())
    assert.equal(info.tensors, #tensors)
    local found
    for _, tensor in ipairs(tensors) do
      if tensor.group == "weights" and tensor.name == marked.name then
        found = tensor
      end
    end
    assert.same(marked.shape, found.shape)
    local values, n = assert(checkpoint:read(marked.name))
    assert.equal(marked.elements, n)
    for i = 0, n - 1 do assert.equal(MARK, values[i]) end
    assert.equal(0, assert(checkpoint:read(marked.name, "exp_avg"))[0])
    local none, message, code = checkpoint:read(marked.name .. "s")
    assert.same({ nil, "notfound" }, { none, code })
    has(message, ("did you mean '%s'?"):format(marked.name))
    assert.is_true(checkpoint:verify())
    has(tostring(checkpoint), "step 12")
    checkpoint:close()
    has(tostring(checkpoint), "closed")
    assert.is_false(pcall(checkpoint.info, checkpoint))
  end)

  it("is described by the program, from its folder or the run's", function()
    for _, place in ipairs { path, folder } do
      local status, out, err = moelua { "checkpoint", "info", place }
      assert.same({ 0, "" }, { status, err })
      for _, part in ipairs { path, "step", "12", "48 samples", "2 blocks",
        "up to 4 experts", "hidden 32", "vocabulary 64", "f32",
        "tp 1 cp 1 dp 1 pp 1 etp 1 ep 1 edp 1 chunks 1", "1 file,",
        '{"name":"small"}', moe.version } do
        has(out, part)
      end
      assert.is_nil(out:find(marked.name, 1, true))
    end
    local _, out = moelua { "checkpoint", "info", "--tensors", path }
    has(out, marked.name)
    has(out, table.concat(marked.shape, " x "))
  end)

  it("is described as JSON", function()
    local status, out, err = moelua { "checkpoint", "info", "--json",
      "--tensors", folder }
    assert.equal(0, status, err)
    local info = assert(json.decode(out))
    assert.same({ 12, 48, "7", elements, 1, "small", 64 }, { info.step,
      info.cursor, info.seed, info.params, info.layout.ep, info.meta.name,
      info.model.vocab })
    assert.equal(info.tensors, #info.tensor_list)
    assert.is_truthy(info.tensor_list[1].digest:match("^%x+$"))
    assert.equal(16, #info.tensor_list[1].digest)
  end)

  it("is verified", function()
    local status, out, err = moelua { "checkpoint", "verify", folder }
    assert.same({ 0, "" }, { status, err })
    has(out, "every digest is right")
    status, out = moelua { "checkpoint", "verify", "--json", folder }
    assert.equal(0, status)
    assert.same({ path = folder, ok = true, errors = {} }, json.decode(out))
  end)

  it("names its tensor of which one byte changed, status 1", function()
    with_damage(function()
      local status, out, err = moelua { "checkpoint", "verify", folder }
      assert.same({ 1, "" }, { status, out })
      local named = {}
      for tensor in err:gmatch("/([%w_]+/[%w_.]+)@") do
        named[#named + 1] = tensor
      end
      assert.same({ "weights/" .. marked.name }, named)
      status, out = moelua { "checkpoint", "verify", "--json", folder }
      assert.equal(1, status)
      local verdict = assert(json.decode(out))
      assert.is_false(verdict.ok)
      has(table.concat(verdict.errors, "\n"), marked.name)
      assert.equal(0, (moelua { "checkpoint", "info", folder }))
    end)
    assert.equal(0, (moelua { "checkpoint", "verify", folder }))
  end)

  it("cut short is damaged, status 1", function()
    local file = path .. "/rank-00000.h5"
    local good = assert(support.read(file))
    support.write(file, good:sub(1, -9))
    local status, out, err = moelua { "checkpoint", "verify", "--json", path }
    local info = { moelua { "checkpoint", "info", path } }
    support.write(file, good)
    assert.equal(1, status)
    has(err, "rank-00000.h5: has ")
    assert.is_false(json.decode(out).ok)
    assert.same({ 1, "" }, { info[1], info[2] })
  end)

  it("that is not there is status 2", function()
    for _, action in ipairs { "info", "verify" } do
      local status, out, err = moelua { "checkpoint", action, "--json",
        folder .. "/none" }
      assert.same({ 2, "" }, { status, out })
      has(err, folder .. "/none: neither a checkpoint")
    end
  end)
end)
