-- Wrong token files and tokenizers through the program: a message that names
-- the file and what is wrong in it, status 2, nothing written.
local bad_files = require "bad_files"
local support = require "support"

local RECIPE = [[
local moe = require "moelua"
return {
  model = moe.models.blocks {
    vocab = 257, hidden = 8, max_positions = 8,
    blocks = { moe.block { heads = 2, ffn = 8 } },
  },
  schedule = { global_batch = 1, micro_batch = 1, steps = 1 },
  optimizer = moe.adamw { lr = moe.constant { peak = 1e-3 } },
  compute = { threads = 1 },
  checkpoint = { dir = "FOLDER/run" },
  log = { jsonl = true },
  data = DATA,
}
]]
local DATA = [[{ train = "FOLDER/data", seq = 8 }]]

describe("wrong files", function()
  local folder
  before_each(function() folder = support.folder() end)
  after_each(function() support.remove(folder) end)

  local function here(text) return (text:gsub("FOLDER", folder)) end

  -- false: no such file; nil: the good one
  local function put(name, text, good)
    if text == false then return end
    support.write(folder .. "/" .. name, text or good)
  end

  local function lay_out(entry, data)
    put("data.idx", entry.idx, bad_files.index)
    put("data.bin", entry.bin, bad_files.ids)
    put("text", "abba")
    put("r.lua", here((RECIPE:gsub("DATA", data or entry.data or DATA))))
  end

  local function files()
    local _, list = support.shell("cd " .. folder .. " && find . | sort")
    return list
  end

  -- Runs the program in the folder.
  local function moelua(...)
    local words = { "cd", folder, "&&", support.quote(support.program) }
    for _, word in ipairs { ... } do words[#words + 1] = support.quote(word) end
    return support.shell(table.concat(words, " "))
  end

  -- The program must leave with `status`, say all the messages, and write
  -- nothing.
  local function refuses(status, messages, ...)
    local before = files()
    local got, out, err = moelua(...)
    assert.equal(status, got, err)
    if status ~= 0 then
      assert.equal("", out)
      for _, message in ipairs(messages) do
        assert.is_truthy(err:find(here(message), 1, true),
          ("%q is not in %q"):format(here(message), err))
      end
    end
    assert.equal(before, files())
  end

  it("differ from good ones, which train", function()
    put("tokenizer.json", bad_files.tokenizer)
    lay_out({}, [[{ train = "FOLDER/data", seq = 8, valid_fraction = 0.4,
      tokenizer = "FOLDER/tokenizer.json" }]])
    local status, _, err = moelua "r.lua"
    assert.equal(0, status, err)
    assert.is_truthy(files():find("./run/latest", 1, true))
    refuses(0, {}, "data", "verify", "--vocab", "257", "data")
  end)

  for _, entry in ipairs(bad_files.tokens) do
    it("of tokens: " .. entry[1], function()
      lay_out(entry)
      refuses(2, { entry[2] }, "r.lua")
      local message = { not entry.data and entry[2]:gsub("^data%.train: ", "")
        or nil }
      refuses(entry.info or 2, message, "data", "info", folder .. "/data")
      refuses(entry.verify or 2, message, "data", "verify", "--vocab", "257",
        folder .. "/data")
    end)
  end

  for _, entry in ipairs(bad_files.tokenizers) do
    it("of a tokenizer: " .. entry[1], function()
      put("tokenizer.json", entry[3])
      lay_out({}, [[{ train = "FOLDER/data", seq = 8,
        tokenizer = "FOLDER/tokenizer.json" }]])
      refuses(2, { "data.tokenizer: ", entry[2] }, "r.lua")
      if entry.prepare then return end
      refuses(2, { entry[2] }, "data", "prepare", "--tokenizer",
        folder .. "/tokenizer.json", "--out", folder .. "/made/out", "text")
    end)
  end

  it("are at least fifty", function()
    assert.is_true(#bad_files.tokens + #bad_files.tokenizers >= 50)
  end)

  it("include a checkpoint to begin with that is not there", function()
    lay_out {}
    refuses(2, { "checkpoint.resume: FOLDER/none: neither a checkpoint" },
      "r.lua", "checkpoint.resume=" .. folder .. "/none")
  end)
end)
