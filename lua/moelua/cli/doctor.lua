-- Owns `moelua doctor`: what is on this machine, and self-tests that fail when
-- this build computes nonsense here.
local cli = require "moelua.cli"
local json = require "moelua.json"
local report = require "moelua.report"
local selftest = require "moelua.selftest"

local doctor = {}

local function processor()
  local file = io.open("/proc/cpuinfo", "r")
  if not file then return jit.arch end
  local text = file:read("*a")
  file:close()
  return text:match("model name%s*:%s*([^\n]+)") or jit.arch
end

-- Kernel sets this processor can run, best last.
local function kernel_sets(moe)
  local list = {}
  for _, isa in ipairs { "generic", "avx2", "avx512", "avx512bf16" } do
    local context = moe.context { threads = 1, isa = isa }
    if context then
      list[#list + 1] = isa
      context:close()
    end
  end
  return table.concat(list, " ")
end

local WANTED = { "moelua", "luajit", "hdf5", "pcre2", "utf8proc", "jansson",
  "xxhash", "edit" }

-- Files of the shared libraries this process uses.
local function libraries()
  local file = io.open("/proc/self/maps", "r")
  if not file then return {} end
  local found, list = {}, {}
  for line in file:lines() do
    local path = line:match("%s(/%S+%.so[%d.]*)$")
    for _, name in ipairs(WANTED) do
      if path and path:match("/lib" .. name .. "[%w_.-]*$")
        and not found[name] then
        found[name] = path
        list[#list + 1] = path:match("[^/]+$")
      end
    end
  end
  file:close()
  table.sort(list)
  return list
end

-- Ordered facts { name, text }; `isa` and `threads` from the best context.
local function facts(moe)
  local list = { { "version", moe.version }, { "lua", jit.version },
    { "system", jit.os .. " " .. jit.arch }, { "processor", processor() } }
  local function put(...) list[#list + 1] = { ... } end
  local context, message = moe.context {}
  put("kernels", context and context:isa() or "none: " .. message)
  put("kernels here", kernel_sets(moe))
  put("threads", context and tostring(context:threads()) or "-")
  local ok, memory = pcall(moe.machine_memory)
  put("memory", ok and report.bytes(memory) or "unknown")
  put("mpi", "off: this version is built without the MPI module")
  put("cuda", "off: this version is built without the CUDA module")
  put("libraries", table.concat(libraries(), " "))
  if context then context:close() end
  return list
end

local function run_tests(as_json)
  local failed, results = 0, {}
  for _, test in ipairs(selftest.list) do
    local ok, result, message = pcall(test[2])
    local problem = not ok and tostring(result) or not result and message
    if problem then failed = failed + 1 end
    results[#results + 1] = { test[1], problem or "ok" }
    if not as_json then
      io.stdout:write(("%-28s %s\n"):format(test[1], problem
        and report.paint("stdout", "red", "FAILED: " .. problem)
        or report.paint("stdout", "green", "ok")))
    end
  end
  return failed, results
end

function doctor.main(arguments)
  local options, message = cli.options(arguments, { json = "flag" })
  if not options then return cli.usage_error(message, "doctor") end
  if #options > 0 then
    return cli.usage_error("doctor takes no arguments", "doctor")
  end
  local list = facts(require "moelua")
  if not options.json then
    io.stdout:write(report.table { rows = list }, "\nself-tests\n")
  end
  local failed, results = run_tests(options.json)
  if options.json then
    list[#list + 1] = { "self_tests", json.object(results) }
    io.stdout:write(json.encode(json.object(list)), "\n")
  end
  if failed == 0 then return cli.OK end
  report.fail(("%d self-test%s failed"):format(failed,
    failed == 1 and "" or "s"))
  return cli.FAILED
end

return doctor
