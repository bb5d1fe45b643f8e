-- What the Lua tests share: the built program, temporary folders.
local support = {}

support.build = assert(os.getenv("MOELUA_BUILD"),
  "set MOELUA_BUILD to the build folder (ctest does)")
support.program = support.build .. "/moelua"

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end
support.quote = quote

function support.read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

function support.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

-- A new folder; the test removes it with support.remove.
function support.folder()
  local pipe = io.popen("mktemp -d")
  local path = pipe:read("*l")
  pipe:close()
  return path
end

function support.remove(path)
  assert(path:match("^/[^/]+/."), path)
  os.execute("rm -rf " .. quote(path))
end

-- A shell's words for a luajit that can load the library, whatever is in it.
local preload = os.getenv("LD_PRELOAD")
support.luajit = preload and "LD_PRELOAD=" .. quote(preload) .. " luajit"
  or "luajit"

-- Runs a shell command: status, stdout, stderr. LD_PRELOAD (CMakeLists.txt) is
-- for luajit alone: other people's programs are not ours to check.
function support.shell(command, input)
  local folder = support.folder()
  support.write(folder .. "/in", input or "")
  local line = "unset LD_PRELOAD; ( %s ) <%s/in >%s/out 2>%s/err"
  local status = os.execute(line:format(command, folder, folder, folder))
  if type(status) == "number" and status >= 256 then
    status = math.floor(status / 256)
  end
  local out = support.read(folder .. "/out")
  local err = support.read(folder .. "/err")
  support.remove(folder)
  return status, out, err
end

-- Runs the program with arguments (an array): status, stdout, stderr. env is
-- text like "A=b C=d".
function support.moelua(arguments, input, env)
  local words = { env and "env " .. env or "", quote(support.program) }
  for _, word in ipairs(arguments) do words[#words + 1] = quote(word) end
  return support.shell(table.concat(words, " "), input)
end

-- Whether the library has a function already.
function support.has(name)
  return require("moelua.ffi").has(name)
end

return support
