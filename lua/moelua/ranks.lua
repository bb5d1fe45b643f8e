-- Owns which rank of a job this process is, as its launcher says: known before
-- MPI is started, so that a job of one never starts it.
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

return ranks
