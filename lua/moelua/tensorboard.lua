-- Owns event files for TensorBoard: framed protobuf records with masked
-- CRC-32C, scalars only.  A new file for every start; TensorBoard joins them.
local ffi = require "ffi"
local bit = require "bit"

local tensorboard = {}
tensorboard.__index = tensorboard

local band, bor, bxor = bit.band, bit.bor, bit.bxor
local rshift, lshift, ror = bit.rshift, bit.lshift, bit.ror

local crc_table = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    c = band(c, 1) == 1 and bxor(rshift(c, 1), 0x82F63B78) or rshift(c, 1)
  end
  crc_table[i] = c
end

-- CRC-32C of a string, as a signed 32-bit number.
function tensorboard.crc(text)
  local c = -1
  for i = 1, #text do
    c = bxor(crc_table[band(bxor(c, text:byte(i)), 255)], rshift(c, 8))
  end
  return bxor(c, -1)
end

-- Little-endian bytes of a C number.
local function bytes(kind, value)
  return ffi.string(ffi.new(kind .. "[1]", value), ffi.sizeof(kind))
end

local function masked(text)
  local crc = tensorboard.crc(text)
  return bytes("int32_t", bit.tobit(ror(crc, 15) + 0xa282ead8))
end

-- One record of the file.
function tensorboard.frame(payload)
  local length = bytes("uint64_t", #payload)
  return length .. masked(length) .. payload .. masked(payload)
end

local function varint(n)
  local parts = {}
  repeat
    local low = n % 128
    n = (n - low) / 128
    parts[#parts + 1] = string.char(n > 0 and bor(low, 128) or low)
  until n == 0
  return table.concat(parts)
end

local VARINT, FIXED64, TEXT, FIXED32 = 0, 1, 2, 5

local function tag(number, kind)
  return varint(bor(lshift(number, 3), kind))
end

local function text_field(number, text)
  return tag(number, TEXT) .. varint(#text) .. text
end

-- Event { 1 wall_time, 2 step, 3 file_version | 5 summary }
local function event(fields, step)
  return tag(1, FIXED64) .. bytes("double", os.time())
    .. (step and tag(2, VARINT) .. varint(step) or "") .. fields
end

-- Summary { 1 Value { 1 tag, 2 simple_value } }
local function summary(scalars)
  local values = {}
  for _, scalar in ipairs(scalars) do
    values[#values + 1] = text_field(1, text_field(1, scalar[1])
      .. tag(2, FIXED32) .. bytes("float", scalar[2]))
  end
  return text_field(5, table.concat(values))
end

local function hostname()
  local file = io.open("/proc/sys/kernel/hostname", "r")
  local name = file and file:read("*l")
  if file then file:close() end
  return name or "localhost"
end

-- open(folder) -> writer | nil, message, code
function tensorboard.open(folder)
  local path, n
  repeat
    n = n and n + 1 or 0
    path = ("%s/events.out.tfevents.%d.%s%s"):format(folder, os.time(),
      hostname(), n > 0 and "." .. n or "")
    local taken = io.open(path, "rb")
    if taken then taken:close() end
  until not taken
  local file, message = io.open(path, "wb")
  if not file then return nil, message, "io" end
  local self = setmetatable({ file = file, path = path }, tensorboard)
  local ok, code
  ok, message, code = self:put(event(text_field(3, "brain.Event:2")))
  if not ok then return nil, message, code end
  return self
end

function tensorboard:put(payload)
  local ok, message = self.file:write(tensorboard.frame(payload))
  if ok then ok, message = self.file:flush() end
  if not ok then
    return nil, ("cannot write %s: %s"):format(self.path, message), "io"
  end
  return true
end

-- The scalars of one step; valid_loss may be nil.
function tensorboard:write(step, valid_loss)
  local scalars = {
    { "loss/train", step.loss }, { "loss/aux", step.aux_loss },
    { "loss/z", step.z_loss }, { "grad_norm", step.grad_norm },
    { "lr", step.lr }, { "router/load_max", step.load_max },
    { "router/dropped", step.dropped / math.max(1, step.routed) },
    { "speed/tokens_per_second", step.tokens / step.seconds },
    { "speed/flops", step.flops / step.seconds },
  }
  if valid_loss then
    scalars[#scalars + 1] = { "loss/valid", valid_loss }
  end
  return self:put(event(summary(scalars), step.step))
end

function tensorboard:close()
  if self.file then self.file:close() end
  self.file = nil
end

return tensorboard
