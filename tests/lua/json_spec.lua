local json = require "moelua.json"

describe("json", function()
  it("writes numbers that read back, and no NaN", function()
    for _, x in ipairs { 0.1, 1 / 3, 1e300, 5e-324, -2.5, 123456789012 } do
      assert.equal(x, tonumber(json.encode(x)))
    end
    assert.equal("0.1", json.encode(0.1))
    assert.equal("[null,null]", json.encode { 0 / 0, math.huge })
    assert.equal("18446744073709551615", json.encode(2ULL ^ 64 - 1ULL))
  end)

  it("keeps the order of an object's pairs and sorts other keys", function()
    assert.equal('{"b":1,"a":2}',
      json.encode(json.object { { "b", 1 }, { "a", 2 } }))
    assert.equal('{"a":[],"b":{}}',
      json.encode { b = {}, a = json.array {} })
  end)

  it("writes valid UTF-8 whatever comes in", function()
    assert.equal('"a\\n\\u0001\\"\\\\"', json.encode('a\n\1"\\'))
    assert.equal('"\239\191\189x\195\169"', json.encode("\255x\195\169"))
    assert.equal('"\239\191\189\239\191\189"', json.encode("\192\128"))
    assert.equal('"\239\191\189\239\191\189\239\191\189"',
      json.encode("\237\160\128"))
  end)

  it("reads what JSON allows", function()
    local value = json.decode(
      ' {"a": [1, -2.5e3, true, null], "\\u00e9\\ud83d\\ude00": "\\n\\/"} ')
    assert.equal(-2500, value.a[2])
    assert.equal(json.null, value.a[4])
    assert.equal("\n/", value["\195\169\240\159\152\128"])
  end)

  it("says where it stopped", function()
    for text, pattern in pairs {
      ['{"a": 1,\n "b" 2}'] = "line 2: expected ':'",
      ['["x'] = "string without end", ["[1 2]"] = "expected ','",
      ["[1]x"] = "text after the value", [""] = "text ends early",
      ['"\\u12g4"'] = "bad \\u escape", ["nul"] = "unexpected",
    } do
      local value, message, code = json.decode(text)
      assert.is_nil(value)
      assert.is_truthy(message:find(pattern, 1, true), message)
      assert.equal("format", code)
    end
  end)
end)
