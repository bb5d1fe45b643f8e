-- Owns what Lua lacks of the operating system, over POSIX by FFI.
local ffi = require "ffi"
local C = ffi.C

-- LuaJIT keeps declarations for the whole process: another module may have
-- declared some of these already.
for _, declaration in ipairs {
  "int isatty(int fd);",
  "int mkdir(const char *path, unsigned mode);",
  "int access(const char *path, int mode);",
  "char *strerror(int code);",
  "int ioctl(int fd, unsigned long request, ...);",
  "int fsync(int fd);",
  "int fileno(void *file);",
  "int getpid(void);",
  "int usleep(unsigned useconds);",
  "typedef struct { long sec; long nsec; } moelua_timespec;",
  "int clock_gettime(int clock, moelua_timespec *out);",
  "typedef struct { unsigned short v[4]; } moelua_winsize;",
} do pcall(ffi.cdef, declaration) end

local sys = {}

local CLOCK_MONOTONIC, TIOCGWINSZ, EEXIST = 1, 0x5413, 17

local function errno_text()
  return ffi.string(C.strerror(ffi.errno()))
end

-- Seconds of a clock that never goes back.
function sys.now()
  local time = ffi.new("moelua_timespec")
  if C.clock_gettime(CLOCK_MONOTONIC, ffi.cast("void *", time)) ~= 0 then
    return os.time()
  end
  return tonumber(time.sec) + tonumber(time.nsec) * 1e-9
end

function sys.sleep(seconds) C.usleep(seconds * 1e6) end

local FDS = { stdin = 0, stdout = 1, stderr = 2 }

-- is_terminal("stdout")
function sys.is_terminal(name)
  return C.isatty(FDS[name]) == 1
end

-- Columns of the terminal on stderr, 80 where unknown.
function sys.columns()
  local size = ffi.new("moelua_winsize")
  if jit.os == "Linux" and C.ioctl(2, TIOCGWINSZ, size) == 0
    and size.v[1] > 0 then
    return size.v[1]
  end
  return tonumber(os.getenv("COLUMNS")) or 80
end

function sys.exists(path)
  return C.access(path, 0) == 0
end

-- Makes a folder and those above it: true | nil, message, "io"
function sys.mkdirs(path)
  local at = path:sub(1, 1) == "/" and "/" or ""
  for part in path:gmatch("[^/]+") do
    at = at .. part
    if C.mkdir(at, 511) ~= 0 and ffi.errno() ~= EEXIST then
      return nil, ("cannot make folder %s: %s"):format(at, errno_text()), "io"
    end
    at = at .. "/"
  end
  if not sys.exists(path) then
    return nil, "cannot make folder " .. path, "io"
  end
  return true
end

-- Writes a whole file under a temporary name, then renames it.
function sys.replace_file(path, text)
  local temporary = ("%s.tmp%d"):format(path, C.getpid())
  local file, message = io.open(temporary, "wb")
  if not file then return nil, message, "io" end
  local ok = file:write(text)
  ok = file:flush() and ok
  ok = C.fsync(C.fileno(ffi.cast("void *", file))) == 0 and ok
  ok = file:close() and ok
  if ok then ok, message = os.rename(temporary, path) end
  if not ok then
    os.remove(temporary)
    return nil, message or ("cannot write " .. path), "io"
  end
  return true
end

-- The folder for what a user's programs keep between runs (XDG).
function sys.state_folder()
  local base = os.getenv("XDG_STATE_HOME")
  if not base or base:sub(1, 1) ~= "/" then
    local home = os.getenv("HOME")
    if not home then return nil end
    base = home .. "/.local/state"
  end
  return base .. "/moelua"
end

return sys
