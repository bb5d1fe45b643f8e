local ffi = require "ffi"
local support = require "support"
local tensorboard = require "moelua.tensorboard"

local function number(kind, text, at)
  return ffi.cast(kind .. " *", ffi.cast("const char *", text) + at - 1)[0]
end

-- Undoes the mask and compares.
local function check_crc(text, stored)
  local rotated = bit.tobit(stored - 0xa282ead8)
  assert.equal(tensorboard.crc(text), bit.rol(rotated, 15))
end

describe("tensorboard", function()
  it("computes CRC-32C", function() -- RFC 3720, B.4
    assert.equal(bit.tobit(0xE3069283), tensorboard.crc("123456789"))
    assert.equal(bit.tobit(0x8A9136AA), tensorboard.crc(("\0"):rep(32)))
    assert.equal(bit.tobit(0x62A8AB43), tensorboard.crc(("\255"):rep(32)))
  end)

  it("writes framed events", function()
    local folder = support.folder()
    local writer = assert(tensorboard.open(folder))
    assert.is_truthy(writer.path:match("/events%.out%.tfevents%.%d+%."))
    assert(writer:write({ step = 300, loss = 2.5, aux_loss = 0, z_loss = 0,
      grad_norm = 1, lr = 0.1, load_max = 1, dropped = 0, routed = 8,
      tokens = 8, seconds = 1, flops = 1 }, 0.25))
    writer:close()
    local text = support.read(writer.path)
    support.remove(folder)
    local at, events = 1, {}
    while at <= #text do
      local n = tonumber(number("uint64_t", text, at))
      check_crc(text:sub(at, at + 7), number("int32_t", text, at + 8))
      local payload = text:sub(at + 12, at + 11 + n)
      check_crc(payload, number("int32_t", text, at + 12 + n))
      events[#events + 1] = payload
      at = at + 16 + n
    end
    assert.equal(2, #events)
    assert.equal("\26\13brain.Event:2", events[1]:sub(10))
    assert.equal("\16\172\2", events[2]:sub(10, 12)) -- step 300
    local value = "\10\10loss/train\21"
    local found = events[2]:find(value, 1, true)
    assert.equal(2.5, number("float", events[2], found + #value))
    value = "\10\10loss/valid\21"
    found = events[2]:find(value, 1, true)
    assert.equal(0.25, number("float", events[2], found + #value))
  end)
end)
