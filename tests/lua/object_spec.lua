-- Objects: their life, their options, how they fail.
local ffi = require "ffi"
local moe = require "moelua"
local struct = require "moelua.struct"
local support = require "support"

local function raises(pattern, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(pattern, 1, true),
    ("%q is not in %q"):format(pattern, tostring(message)))
  return message
end

describe("moelua", function()
  it("sets no global", function()
    local code = [[local before = {}
      for k in pairs(_G) do before[k] = true end
      require "moelua"
      for k in pairs(_G) do if not before[k] then print(k) end end]]
    local status, out, err = support.shell(support.luajit .. " -e "
      .. support.quote(code))
    assert.equal(0, status, err)
    assert.equal("", out)
  end)

  it("says what a wrong name may have meant", function()
    local message = raises("did you mean 'context'?", function()
      return moe.contxt
    end)
    assert.is_truthy(message:find("object_spec.lua", 1, true), message)
  end)

  it("has a version", function()
    assert.is_truthy(moe.version:match("^%d+%.%d+%.%d+$"))
    assert.is_truthy(tostring(moe):find(moe.version, 1, true))
  end)
end)

describe("context", function()
  it("checks its options, at the caller's line", function()
    local message = raises("unknown option 'thread'; did you mean 'threads'?",
      moe.context, { thread = 1 })
    assert.is_truthy(message)
    message = raises("option 'threads' is a number", function()
      moe.context { threads = "2" }
    end)
    assert.is_truthy(message:find("object_spec.lua", 1, true), message)
    raises("is not an integer", moe.context, { threads = 1.5 })
  end)

  it("reports an unknown kernel set as the world's fault", function()
    if not support.has("moe_ctx_isa") then return pending("kernel sets") end
    local context, message, code = moe.context { isa = "pdp11" }
    assert.is_nil(context)
    assert.is_truthy(message:find("pdp11", 1, true), message)
    assert.is_truthy(code == "unsupported" or code == "invalid", code)
  end)

  it("closes twice, and then says so", function()
    local context = moe.context { threads = 1 }
    assert.equal(1, context:threads())
    context:close()
    context:close()
    assert.equal("moelua.context (closed)", tostring(context))
    raises("context is closed", context.threads, context)
    raises("call methods with ':'", context.threads)
    raises("did you mean 'threads'?", function() return context.thread end)
  end)

  it("lives until its last child is gone, in any order", function()
    if not support.has("moe_tokenizer_open") then return pending "tokenizer" end
    local context = moe.context { threads = 1 }
    local tokenizer = context:tokenizer("bytes")
    context:close()
    assert.same({ 104, 105 }, tokenizer:encode("hi"))
    tokenizer:close()
    tokenizer:close()
    for _ = 1, 200 do
      local other = moe.context { threads = 1 }
      local _ = other:tokenizer("bytes")
    end
    collectgarbage()
    collectgarbage()
  end)

  it("counts memory", function()
    local context = moe.context { threads = 1 }
    local memory = context:memory()
    assert.is_true(memory.peak >= memory.bytes)
    context:close()
  end)
end)

describe("the log", function()
  it("calls back, also from code that ran often", function()
    local folder, lines = support.folder(), {}
    local prefix = folder .. "/t"
    local context = moe.context { threads = 1, log = function(level, text)
      lines[#lines + 1] = level .. " " .. text
      error("an error in the log function goes no further")
    end }
    local writer = assert(context:token_writer(prefix, 300))
    assert(writer:add { 1, 2, 3 })
    assert(writer:finish())
    local file = io.open(prefix .. ".bin", "ab")
    file:write("tail")
    file:close()
    for i = 1, 300 do
      local tokens = assert(context:tokens(prefix))
      assert.equal(i, #lines)
      assert.same({ 1, 2, 3 }, tokens:read(0))
      tokens:close()
    end
    assert.is_truthy(lines[300]:match("^warn .*t%.bin has 10 bytes"), lines[1])
    context:close()
    support.remove(folder)
  end)
end)

describe("makers", function()
  it("raise at the caller's line", function()
    local context = moe.context { threads = 1 }
    for pattern, call in pairs {
      ["did you mean 'seq'?"] = function()
        context:loader { sources = "x", sek = 4 }
      end,
      ["expected a table of options"] = function() moe.loader("x") end,
      ["expected 'bytes' or the path"] = function() context:tokenizer() end,
      ["expected a path without .bin"] = function() moe.tokens(1) end,
      ["expected the vocabulary size"] = function()
        moe.token_writer("x")
      end,
      ["option 'out' is missing"] = function()
        context:prepare { tokenizer = "bytes", files = {} }
      end,
      ["train config: sek: unknown option"] = function()
        moe.plan_memory { sek = 1 }
      end,
    } do
      local message = raises(pattern, call)
      assert.is_truthy(message:find("object_spec.lua", 1, true), message)
    end
    context:close()
  end)

  it("report absent files as the world's fault", function()
    for _, make in ipairs { moe.tokens, moe.tokenizer } do
      local object, message, code = make("/no/such/file")
      assert.is_nil(object)
      assert.is_truthy(message:find("/no/such/file", 1, true), message)
      assert.equal("notfound", code)
    end
  end)
end)

describe("option tables", function()
  it("fill structs, with names for enums and booleans for flags", function()
    local config = struct.build("moe_train_config", {
      seq = 16, dtype = "bf16",
      optimizer = { lr = { kind = "cosine", peak = 0.5 },
        decay = { "matrix", "norm" }, shard = true },
      model = { vocab = 9, blocks = { { heads = 3 }, { ffn_kind = "moe" } } },
      layout = { order = "tp-cp-ep-dp-pp" },
    })
    assert.equal(16, config.seq)
    assert.equal(1, config.dtype)
    assert.equal(5, config.optimizer.decay)
    assert.equal(1, config.optimizer.shard)
    assert.equal(0.5, config.optimizer.lr.peak)
    assert.equal(2, config.model.n_blocks)
    assert.equal(3, config.model.blocks[0].heads)
    assert.equal(1, config.model.blocks[1].ffn_kind)
    assert.equal(ffi.sizeof("moe_block_config"), config.model.blocks[1].size)
    assert.equal("tp-cp-ep-dp-pp", ffi.string(config.layout.order))
  end)

  it("report all problems at once", function()
    local config, problems = struct.build("moe_train_config", {
      sek = 1, dtype = "bf17",
      model = { blocks = { { head = 1 } }, vocab = "x" },
      seq = 2 ^ 40,
    })
    assert.is_nil(config)
    assert.same({
      "dtype: unknown name 'bf17'; did you mean 'bf16'?",
      "model.blocks[1].head: unknown option; did you mean 'heads'?",
      "model.vocab: expected an integer, got string",
      "sek: unknown option; did you mean 'seq'?",
      "seq: 1099511627776 is not an integer of at most 2147483647",
    }, problems)
  end)
end)
