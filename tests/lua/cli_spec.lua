-- The program from outside: exit statuses, streams, the prompt.
local json = require "moelua.json"
local support = require "support"
local moelua = support.moelua

local function has(text, part)
  assert.is_truthy(text:find(part, 1, true), ("%q is not in %q"):format(part,
    text))
end

describe("moelua as lua(1)", function()
  it("runs code, in order, and leaves with its status", function()
    local status, out, err = moelua { "-e", "x = 40", "-e", "print(x + 2)" }
    assert.same({ 0, "42\n", "" }, { status, out, err })
    assert.equal(7, (moelua { "-e", "os.exit(7)" }))
    assert.same({ 0, "", "" }, { moelua { "-e", "os.exit()" } })
  end)

  it("reports a failure on stderr with status 1", function()
    local status, out, err = moelua { "-e", "print(1) error('no luck')" }
    assert.same({ 1, "1\n" }, { status, out })
    has(err, "no luck")
    assert.equal(1, (moelua { "-e", "this is not Lua" }))
    assert.equal(1, (moelua { "-l", "no.such.module" }))
    assert.equal(1, (moelua { "-i", "/no/such/file.lua" }))
  end)

  it("has the modules inside, whatever LUA_PATH says", function()
    local status, out, err = moelua({ "-l", "moelua", "-e",
      "print(require('moelua').version)" }, "", "LUA_PATH=/nowhere")
    assert.equal(0, status, err)
    assert.is_truthy(out:match("^%d+%.%d+%.%d+\n$"))
    local _, version = moelua { "-v" }
    has(version, out:match("%S+"))
  end)

  it("takes modules from MOELUA_PATH when told", function()
    local folder = support.folder()
    os.execute("mkdir " .. folder .. "/moelua")
    support.write(folder .. "/moelua/near.lua", "return { mine = 12 }")
    local _, out = moelua({ "-e", "print(require('moelua.near').mine)" }, "",
      "MOELUA_PATH=" .. folder)
    support.remove(folder)
    assert.equal("12\n", out)
  end)

  it("keeps the numbers of the C locale", function()
    local _, out = moelua({ "-e", "print(0.5)" }, "", "LC_ALL=de_DE.UTF-8")
    assert.equal("0.5\n", out)
  end)

  it("ends promptly when the reader of its output goes", function()
    local code = "for i = 1, 1e6 do print(i) end"
    local status, out = support.shell(support.program .. " -e "
      .. support.quote(code) .. " | head -n 1")
    assert.same({ 0, "1\n" }, { status, out })
  end)
end)

describe("wrong usage", function()
  it("is status 2 with a near name and nothing on stdout", function()
    for _, case in ipairs {
      { { "plann" }, "did you mean 'plan'?" },
      { { "xyzzy" }, "a recipe's name ends in .lua" },
      { { "--versio" }, "did you mean '--version'?" },
      { { "-e" }, "option '-e' needs a value" },
      { { "help", "dta" }, "did you mean 'data'?" },
      { { "data" }, "prepare, info or verify" },
      { { "data", "prepair" }, "did you mean 'prepare'?" },
      { { "data", "prepare", "--out", "x", "f" }, "needs --tokenizer" },
      { { "data", "prepare", "--tokeniser", "x" },
        "did you mean '--tokenizer'?" },
      { { "data", "info" }, "needs the prefix" },
      { { "checkpoint" }, "info or verify?" },
      { { "checkpoint", "verfy", "x" }, "did you mean 'verify'?" },
      { { "checkpoint", "info" }, "needs the folder of a checkpoint" },
      { { "checkpoint", "reshard" }, "is not part of this version" },
      { { "checkpoint", "import", "x" }, "is not part of this version" },
      { { "checkpoint", "export", "x" }, "is not part of this version" },
      { { "checkpoint", "diff", "x", "y" }, "is not part of this version" },
      { { "bench", "paek" }, "did you mean 'peak'?" },
      { { "doctor", "--jsno" }, "did you mean '--json'?" },
      { { "plan" }, "which recipe?" },
      { { "plan", "a.lua", "b.lua" }, "'b.lua': expected key=value" },
    } do
      local status, out, err = moelua(case[1])
      assert.equal(2, status, err)
      assert.equal("", out)
      has(err, case[2])
    end
  end)

  it("has help on every topic it names", function()
    local status, out = moelua { "help" }
    assert.equal(0, status)
    local topics = out:match("moelua help TOPIC: ([^\n]+)")
    for topic in topics:gmatch("[%w]+") do
      local code, text, err = moelua { "help", topic }
      assert.equal(0, code, err)
      assert.is_true(#text > 40)
    end
  end)

  it("uses no colour where there is no terminal", function()
    local _, _, err = moelua { "plann" }
    assert.is_nil(err:find("\27", 1, true))
  end)
end)

-- Functions of the library that are not there yet.
local function lacks(...)
  for _, name in ipairs { ... } do
    if not support.has(name) then
      pending("the library has no " .. name)
      return true
    end
  end
end

describe("data", function()
  local folder
  before_each(function() folder = support.folder() end)
  after_each(function() support.remove(folder) end)

  it("prepares, describes and verifies a token file", function()
    if lacks("moe_tokenizer_open") then return end
    support.write(folder .. "/a.txt", "hello")
    support.write(folder .. "/b.jsonl",
      '{"text": "abc"}\n\n{"text": "d\\u00e9"}\n')
    local prefix = folder .. "/out"
    local status, out, err = moelua { "data", "prepare", "--json",
      "--tokenizer", "bytes", "--out", prefix, folder .. "/a.txt",
      folder .. "/b.jsonl" }
    assert.equal(0, status, err)
    local result = assert(json.decode(out))
    assert.equal(3, result.documents)
    assert.equal(5 + 3 + 3 + 3, result.tokens)
    status, out = moelua { "data", "info", "--json", prefix }
    assert.equal(0, status)
    assert.equal(14, json.decode(out).tokens)
    status, out = moelua { "data", "verify", "--json", "--vocab=257", prefix }
    assert.equal(0, status)
    assert.equal(256, json.decode(out).max_id)
    status, out, err = moelua { "data", "verify", "--vocab", "200", prefix }
    assert.same({ 1, "" }, { status, out })
    assert.is_true(#err > 0)
  end)

  it("takes lines as documents, with no end of document when told", function()
    if lacks("moe_tokenizer_open") then return end
    support.write(folder .. "/a.txt", "ab\r\n\ncde\n")
    local status, out, err = moelua { "data", "prepare", "--json",
      "--tokenizer=bytes", "--out=" .. folder .. "/o", "--documents=line",
      "--no-eod", folder .. "/a.txt" }
    assert.equal(0, status, err)
    local result = json.decode(out)
    assert.same({ 2, 5 }, { result.documents, result.tokens })
  end)

  it("fails with a place and leaves nothing behind", function()
    if lacks("moe_tokenizer_open") then return end
    support.write(folder .. "/b.jsonl", '{"text": "abc"}\n{"body": 1}\n')
    local status, _, err = moelua { "data", "prepare", "--tokenizer", "bytes",
      "--out", folder .. "/o", folder .. "/b.jsonl" }
    assert.equal(1, status)
    has(err, "b.jsonl:2: no text in field 'text'")
    local _, files = support.shell("ls " .. folder)
    assert.equal("b.jsonl\n", files)
    status, _, err = moelua { "data", "info", folder .. "/none" }
    assert.equal(2, status)
    has(err, folder .. "/none")
  end)
end)

describe("the prompt", function()
  it("reads a pipe without a prompt and prints values", function()
    local status, out, err = moelua({}, "1 + 1\nx = {1, 'b'}\nx\n"
      .. "for i = 1, 2 do\nprint(i)\nend\n=x[2]\nnil\n")
    assert.equal(0, status, err)
    assert.equal('2\n{ 1, "b" }\n1\n2\n"b"\nnil\n', out)
    assert.equal("", err)
  end)

  it("stops a pipe at the first error with status 1", function()
    local status, out, err = moelua({}, "1\nerror('boom')\n2\n")
    assert.same({ 1, "1\n" }, { status, out })
    has(err, "boom")
    local unfinished = { moelua({}, "for i = 1, 2 do\n") }
    assert.equal(1, unfinished[1])
    has(unfinished[3], "<eof>")
  end)

  -- Types the pieces into a pseudo-terminal, a pause between them. A shell
  -- that stays in front of the program would take Ctrl-C too: hence exec.
  local function session(folder, pieces)
    local typing = { "sleep 1" }
    for _, piece in ipairs(pieces) do
      typing[#typing + 1] = ("printf %s; sleep 0.3"):format(
        support.quote(piece))
    end
    return support.shell(("(%s) | TERM=vt100 XDG_STATE_HOME=%s HOME=%s "
      .. "timeout 20 script -qec %s /dev/null"):format(
        table.concat(typing, "; "), folder, folder,
        support.quote("exec " .. support.quote(support.program))))
  end

  it("edits, completes, survives Ctrl-C, leaves at Ctrl-D", function()
    if support.shell("script -qec true /dev/null") ~= 0 then
      return pending("no pseudo-terminal here")
    end
    local folder = support.folder()
    local status, out = session(folder, { "6 * 7\\n", "moe.vers\\t\\n",
      "garbage(\\003", "'af' .. 'ter'\\n", "for i = 1, 1 do\\n",
      "print('in loop') end\\n", "moe.nothing\\n", "\\004" })
    local history = support.read(folder .. "/moelua/history")
    support.remove(folder)
    assert.equal(0, status, out)
    has(out, "42\r\n")
    has(out, require("moelua").version .. '"\r\n')
    has(out, '"after"\r\n')
    has(out, ">> ")
    has(out, "in loop\r\n")
    has(out, "no field 'nothing'")
    has(history, "6")
    has(history, "loop")
  end)

  it("completes keywords, globals and methods", function()
    local repl = require "moelua.repl"
    assert.same({ "string.format" }, repl.complete("string.form"))
    assert.same({ "while" }, repl.complete("whil"))
    assert.same({ "string.gmatch", "string.gsub" }, repl.complete("string.g"))
    _G.test_context = require("moelua").context { threads = 1 }
    assert.same({ "test_context:threads" },
      repl.complete("test_context:thr"))
    _G.test_context:close()
    _G.test_context = nil
    assert.same({}, repl.complete("nothing.here.a"))
  end)
end)
