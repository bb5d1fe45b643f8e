-- Texts for people: units, tables, near names, values at the prompt.
local near = require "moelua.near"
local report = require "moelua.report"
local show = require "moelua.show"

describe("report", function()
  it("scales bytes, counts and durations", function()
    assert.equal("0 B", report.bytes(0))
    assert.equal("1.50 KiB", report.bytes(1536))
    assert.equal("1.00 MiB", report.bytes(2 ^ 20 - 1))
    assert.equal("46.7 G", report.count(46702792704))
    assert.equal("1.50 TFLOP/s", report.count(1.5e12, "FLOP/s"))
    assert.equal("999", report.count(999))
    assert.equal("1,234,567", report.integer(1234567))
    assert.equal("-123", report.integer(-123))
    assert.equal("12.3 ms", report.duration(0.0123))
    assert.equal("59.9 s", report.duration(59.94))
    assert.equal("2 m 00 s", report.duration(119.6))
    assert.equal("1 h 40 m", report.duration(6000))
    assert.equal("?", report.duration(0 / 0))
  end)

  it("aligns columns by characters, not bytes", function()
    assert.equal("a      n\n--  ----\n\195\169      1\nbb  1000\n",
      report.table { header = { "a", "n" }, align = "lr",
        rows = { { "\195\169", 1 }, { "bb", 1000 } } })
  end)

  it("makes a model's text safe to print", function()
    assert.equal("a\n\239\191\189[1m\239\191\189",
      report.printable("a\n\27[1m\255"))
  end)
end)

describe("near", function()
  it("finds typing errors and nothing else", function()
    local names = { "threads", "isa", "log" }
    assert.equal("threads", near.nearest("thraeds", names))
    assert.equal("threads", near.nearest("Threads", names))
    assert.is_nil(near.nearest("colour", names))
    assert.equal("; one of isa, log, threads", near.hint("colour", names))
    assert.equal("plan", near.nearest("pln", { plan = 1, bench = 2 }))
  end)
end)

describe("show", function()
  it("prints values as Lua would read them", function()
    assert.equal("3", show(3))
    assert.equal("0.1", show(0.1))
    assert.equal('"a\\n\\1"', show("a\n\1"))
    assert.equal("nil", show(nil))
    assert.equal('{ 1, "x", a = { 2 fields } }',
      show { 1, "x", a = { b = 1, c = 2 } })
    assert.equal("{}", show {})
    assert.equal("5LL", show(5LL))
  end)

  it("cuts what is long", function()
    local list = {}
    for i = 1, 100 do list[i] = i end
    assert.is_truthy(show(list):find("-- 60 more", 1, true))
    assert.is_true(#show(("x"):rep(5000)) < 500)
  end)
end)
