-- Owns which rank of a job this process is, as its launcher says: known before
-- MPI is started, so that a job of one never starts it; and how ranks leave a
-- job that failed: what went wrong is told once, and all have one exit status.
local ranks = {}

-- mpirun of Open MPI
local function number(name, default)
  return tonumber(os.getenv("OMPI_COMM_WORLD_" .. name)) or default
end

function ranks.size() return number("SIZE", 1) end
function ranks.rank() return number("RANK", 0) end
-- Ranks on this machine.
function ranks.here() return number("LOCAL_SIZE", 1) end
-- Whether this one speaks for all.
function ranks.first() return ranks.rank() == 0 end

-- Exit statuses among ranks: the later ones win.
local CODES = { [2] = "invalid", [3] = "nofit", [1] = "internal" }
local STATUS = { invalid = 2, nofit = 3 }

-- agree(context[, status, text]) -> nil | text, status: whether any rank
-- failed, and what all have for it. Collective.
function ranks.agree(context, status, text)
  local ok, message, code = context:agree(status and CODES[status], text)
  if not ok then return message, STATUS[code] or 1 end
end

-- Ends this process for an error of the context's (or, alone = true, of this
-- rank's own): the rank that tells does, then it ends; what only this rank has
-- is told with its name. Ending without ending MPI makes the launcher end the
-- others.
function ranks.leave(context, text, status, alone)
  local report = require "moelua.report"
  local who = not alone and context and context:tells() or "own"
  if who == "own" then
    local name = context and context:rank_name() or "rank " .. ranks.rank()
    report.own(name .. ": " .. text)
  elseif who == "all" then
    report.own(text)
  end
  io.stderr:flush()
  if who ~= "own" and not context:agree() and who == "not" then
    require("moelua.sys").sleep(2) -- nobody can wait for the one that tells
  end
  os.exit(status, false)
end

-- Ends a job that this rank cannot begin, with an exit status it has given its
-- reason for, if it is the first rank; another rank's reason (text) is told
-- where the first had none. Returns where there is no MPI.
function ranks.refuse(status, text)
  local context = require("moelua").context { threads = 1 }
  if not context or not context:join_mpi() then return end
  local _, agreed = ranks.agree(context, status, text or "cannot begin")
  context:agree()
  io.stderr:flush()
  os.exit(agreed or status, false)
end

return ranks
