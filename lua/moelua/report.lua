-- Owns how results look as text: units, aligned tables, colour.
local ranks = require "moelua.ranks"
local sys = require "moelua.sys"

local report = {}

local BINARY = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" }
local DECIMAL = { "", "K", "M", "G", "T", "P" }

local function scaled(value, base, units)
  local i = 1
  while math.abs(value) >= base * 0.9995 and i < #units do
    value, i = value / base, i + 1
  end
  local digits = (i == 1 or math.abs(value) >= 99.95) and 0
    or math.abs(value) >= 9.995 and 1 or 2
  return ("%." .. digits .. "f"):format(value), units[i]
end

-- 1536 -> "1.50 KiB"
function report.bytes(n)
  local number, unit = scaled(n, 1024, BINARY)
  return number .. " " .. unit
end

-- 46702792704 -> "46.7 G"; with a suffix "FLOP/s": "46.7 GFLOP/s"
function report.count(n, suffix)
  local number, unit = scaled(n, 1000, DECIMAL)
  if unit == "" and not suffix then return number end
  return number .. " " .. unit .. (suffix or "")
end

-- 4242 -> "4,242"
function report.integer(n)
  local sign, digits = ("%.0f"):format(n):match("^(%-?)(%d+)$")
  local grouped = digits:reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return sign .. grouped:gsub("^,", "")
end

-- Seconds as a person says them: "850 ms", "12.3 s", "4 m 05 s", "3 h 12 m"
function report.duration(s)
  if s ~= s or s == math.huge then return "?" end
  if s < 0.0995 then return ("%.1f ms"):format(s * 1e3) end
  if s < 0.9995 then return ("%.0f ms"):format(s * 1e3) end
  if s < 99.95 then return ("%.1f s"):format(s) end
  if s < 5999.5 then
    s = math.floor(s + 0.5)
    return ("%d m %02d s"):format(math.floor(s / 60), s % 60)
  end
  local m = math.floor(s / 60 + 0.5)
  if m < 60 * 48 then
    return ("%d h %02d m"):format(math.floor(m / 60), m % 60)
  end
  return ("%.1f days"):format(m / 1440)
end

-- Characters of a UTF-8 string.
local function width(text)
  local _, n = text:gsub("[^\128-\191]", "")
  return n
end

-- table{ header = {...}, rows = {{...}, ...}, align = "lrr", total = {...} }
-- -> text with aligned columns; r: right, l (default): left. A rule stands
-- before `total`.
function report.table(spec)
  local lines, widths, columns = {}, {}, 0
  local all = { spec.header }
  for _, row in ipairs(spec.rows) do all[#all + 1] = row end
  all[#all + 1] = spec.total
  for _, row in pairs(all) do
    columns = math.max(columns, #row)
    for i, cell in ipairs(row) do
      widths[i] = math.max(widths[i] or 0, width(tostring(cell)))
    end
  end
  local function put(row)
    local cells = {}
    for i = 1, columns do
      local text = tostring(row[i] or "")
      local pad = (" "):rep(widths[i] - width(text))
      local right = (spec.align or ""):sub(i, i) == "r"
      cells[i] = right and pad .. text or text .. pad
    end
    lines[#lines + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  local function rule()
    local parts = {}
    for i = 1, columns do parts[i] = ("-"):rep(widths[i]) end
    lines[#lines + 1] = table.concat(parts, "  ")
  end
  if spec.header then
    put(spec.header)
    rule()
  end
  for _, row in ipairs(spec.rows) do put(row) end
  if spec.total then
    rule()
    put(spec.total)
  end
  return table.concat(lines, "\n") .. "\n"
end

local CODES = { red = 31, green = 32, yellow = 33, cyan = 36, bold = 1,
  dim = 2 }

-- paint("stderr", "red", text): coloured where the stream is a terminal and
-- NO_COLOR is not set.
function report.paint(stream, colour, text)
  local off = os.getenv("NO_COLOR")
  if (off and off ~= "") or not sys.is_terminal(stream)
    or os.getenv("TERM") == "dumb" then
    return text
  end
  return ("\27[%dm%s\27[0m"):format(CODES[colour], text)
end

-- Text a model made, safe to print: valid UTF-8, no control characters but
-- newlines and tabs.
function report.printable(text)
  return (require("moelua.json").utf8(text)
    :gsub("[%z\1-\8\11-\31\127]", "\239\191\189"))
end

-- What goes before a message: the refreshed progress line is wiped.
local function lead()
  return sys.is_terminal("stderr") and "\r\27[K" or ""
end

-- One line on stderr: "moelua: text". The first rank speaks for all.
function report.say(text)
  if ranks.first() then report.own(text) end
end

-- The same from this rank, whichever it is.
function report.own(text)
  io.stderr:write(lead(), "moelua: ", text, "\n")
end

function report.warn(text)
  report.say(report.paint("stderr", "yellow", "warning") .. ": " .. text)
end

-- The first line of text in red. What a rank that does not speak would say is
-- held for those that do.
function report.fail(text)
  report.held = text
  local line, more = text:match("^([^\n]*)(.*)$")
  report.say(report.paint("stderr", "red", line) .. more)
end

-- For moe.context{log = report.log}: what the library warns of.
function report.log(level, text)
  if level == "error" then report.fail(text)
  elseif level == "warn" then report.warn(text) end
end

return report
