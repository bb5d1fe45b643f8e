-- Owns the keys of a recipe outside of its model: names, types, ranges,
-- defaults, meaning.  recipes/README.md is made from these lists.
local optimizers = require "moelua.optimizers"
local schema = require "moelua.schema"

local recipe_keys = {}

local MAX_STEPS = 2 ^ 53

recipe_keys.layout = schema.keys {
  { "tp", "integer", min = 1,
    doc = "tensor parallelism of attention and dense parts; default: 1" },
  { "cp", "integer", min = 1, doc = "context parallelism; default: 1" },
  { "dp", "integer", min = 1,
    doc = "data parallelism; default: ranks / (tp * cp * pp)" },
  { "pp", "integer", min = 1, doc = "pipeline stages; default: 1" },
  { "etp", "integer", min = 1,
    doc = "tensor parallelism inside an expert; default: tp" },
  { "ep", "integer", min = 1,
    doc = "expert parallelism, a divisor of experts; default: 1" },
  { "edp", "integer", min = 1,
    doc = "copies of each expert; default: ranks / (etp * ep * pp)" },
  { "order", "string", default = "tp-cp-ep-dp-pp",
    doc = "which axes are neighbours: the leftmost has stride 1; etp and edp "
      .. "take the places of tp and dp" },
  { "blocks", "list", item = { kind = "integer", min = 0 },
    type = "list of integers",
    doc = "transformer blocks of each stage, in the model's order (pp * "
      .. "chunks numbers, 0 is allowed); default: the same for all" },
  { "cp_kind", "enum", default = "ring",
    values = { "ring", "allgather", "alltoall" },
    doc = "how attention sees keys of other cp ranks; alltoall splits heads "
      .. "and needs kv_heads / tp to be a multiple of cp" },
}

recipe_keys.dispatch = schema.keys {
  { "kind", "enum", default = "auto",
    values = { "auto", "alltoall", "allgather" },
    doc = "how tokens reach their experts" },
  { "capacity_factor", "number", above = 0, min = 0.01,
    hint = "leave it out to keep every token",
    doc = "rows an expert takes, 1 is an even load; default: no limit" },
  { "drop", "enum", default = "probs", values = { "probs", "position" },
    doc = "which rows are kept: the most probable, or the first" },
  { "pad", "boolean", default = false,
    doc = "fill every expert to its capacity (fixed sizes)" },
  { "capacity_scope", "enum", default = "local",
    values = { "local", "sequence" },
    doc = "tokens that share a capacity: a rank's own, or of all ranks that "
      .. "have parts of the sequence" },
}

recipe_keys.schedule = schema.keys {
  { "kind", "enum", default = "1f1b", values = { "1f1b" },
    doc = "pipeline schedule" },
  { "chunks", "integer", default = 1, min = 1,
    doc = "virtual pipeline stages per rank; more than 1 needs pp" },
  { "group", "integer", min = 1,
    doc = "with chunks: micro-batches that a chunk runs before the next one; "
      .. "default: pp" },
  { "global_batch", "integer", required = true, min = 1,
    doc = "sequences of one optimizer step, over all ranks" },
  { "micro_batch", "integer", default = 1, min = 1,
    doc = "sequences of one forward pass on one rank" },
  { "steps", "integer", required = true, min = 1, max = MAX_STEPS,
    doc = "optimizer steps" },
}

local SOURCE_KEYS = schema.keys {
  { "prefix", "string", required = true,
    doc = "token files prefix.bin and prefix.idx" },
  { "weight", "number", default = 1, above = 0,
    doc = "share in the blend, on any scale" },
}
recipe_keys.source = SOURCE_KEYS

-- A prefix, or a list of prefixes and { prefix=, weight= }.
local function read_sources(value, path, problems)
  if type(value) == "string" and value ~= "" then return value end
  if type(value) ~= "table" or #value == 0 then
    problems[#problems + 1] = ("%s: expected a prefix or a list of { prefix = "
      .. "..., weight = ... }, got %s"):format(path,
      type(value) == "table" and "an empty list" or schema.show(value))
    return nil
  end
  local list = {}
  for i, item in ipairs(value) do
    local here = ("%s[%d]"):format(path, i)
    if type(item) == "string" then item = { prefix = item } end
    list[i] = schema.value({ kind = "table", keys = SOURCE_KEYS }, item, here,
      problems)
  end
  return list
end

recipe_keys.data = schema.keys {
  { "train", "any", required = true, read = read_sources,
    type = "string or list",
    doc = "prefix of the token files, or a list of prefixes or of { prefix = "
      .. "..., weight = ... }" },
  { "valid", "any", read = read_sources, type = "string or list",
    doc = "token files to evaluate on, as train" },
  { "valid_fraction", "number", default = 0, min = 0, max = 0.5,
    doc = "last share of train held out to evaluate on, when there is no "
      .. "valid" },
  { "seq", "integer", required = true, min = 1,
    doc = "tokens of a sequence S" },
  { "tokenizer", "string", default = "bytes",
    doc = "a tokenizer.json, or \"bytes\" (257 ids)" },
  { "mask_id", "integer", min = 0,
    doc = "labels with this id are left out of the loss" },
}

-- Saves are synchronous in this version; saying otherwise would be a lie.
local function read_async(value, path, problems)
  if value == false then return value end
  problems[#problems + 1] = ("%s: expected false (saves are synchronous in "
    .. "this version), got %s"):format(path, schema.show(value))
end

local function read_resume(value, path, problems)
  if type(value) == "boolean" then return value end
  if type(value) == "string" and value ~= "" then return value end
  problems[#problems + 1] = ("%s: expected true, false or the path of a "
    .. "checkpoint, got %s"):format(path, schema.show(value))
end

recipe_keys.checkpoint = schema.keys {
  { "dir", "string", required = true, doc = "folder of the checkpoints" },
  { "every", "integer", default = 0, min = 0, max = MAX_STEPS,
    doc = "steps between two checkpoints; 0: only at the end" },
  { "keep", "integer", default = 3, min = 0,
    doc = "newest checkpoints that are kept; 0: all" },
  { "async", "any", default = false, read = read_async, type = "boolean",
    doc = "write while training goes on; not part of this version" },
  { "resume", "any", default = true, read = read_resume,
    type = "boolean or string",
    doc = "true: continue from the newest checkpoint in dir, if any; false: "
      .. "start anew; a path: start from that checkpoint" },
}

recipe_keys.sample = schema.keys {
  { "every", "integer", required = true, min = 1, max = MAX_STEPS,
    doc = "steps between two samples" },
  { "prompt", "string", required = true, empty = true,
    doc = "text the model goes on from" },
  { "tokens", "integer", default = 64, min = 1, doc = "tokens to write" },
  { "temperature", "number", default = 0.8, min = 0, max = 100,
    doc = "0 takes the most probable token" },
}

recipe_keys.log = schema.keys {
  { "every", "integer", default = 10, min = 1, max = MAX_STEPS,
    doc = "steps between two lines of progress" },
  { "jsonl", "boolean", default = false,
    doc = "write the metrics of every step to metrics.jsonl in "
      .. "checkpoint.dir" },
  { "tensorboard", "boolean", default = false,
    doc = "write event files for TensorBoard in checkpoint.dir" },
  { "sample", "table", keys = recipe_keys.sample,
    doc = "write text now and then; default: never" },
}

recipe_keys.eval = schema.keys {
  { "every", "integer", required = true, min = 1, max = MAX_STEPS,
    doc = "steps between two evaluations" },
  { "batches", "integer", default = 8, min = 1,
    doc = "global batches of an evaluation" },
}

recipe_keys.compute = schema.keys {
  { "threads", "integer", default = 0, min = 0, max = 4096,
    doc = "compute threads; 0: as many as this process may use" },
  { "isa", "enum", values = { "generic", "avx2", "avx512", "avx512bf16" },
    doc = "kernel set; default: the best of this machine" },
}

recipe_keys.comm = schema.keys {
  { "timeout", "number", default = 600, min = 0,
    doc = "longest wait for other ranks in one transfer, in seconds: then the "
      .. "job ends and says which rank is behind; 0: none" },
}

-- Sections in the order of the documentation.  `model` is read by
-- moelua.models; a section without `default` may be absent.
recipe_keys.sections = schema.keys {
  { "name", "string", doc = "name of the run; default: the file's name" },
  { "layout", "table", default = {}, keys = recipe_keys.layout,
    doc = "degrees of both views over the ranks" },
  { "dispatch", "table", default = {}, keys = recipe_keys.dispatch,
    doc = "how tokens reach their experts" },
  { "schedule", "table", required = true, keys = recipe_keys.schedule,
    doc = "batches and steps" },
  { "optimizer", "table", required = true, keys = optimizers.keys,
    doc = "moe.adamw{...}" },
  { "data", "table", required = true, keys = recipe_keys.data,
    doc = "token files and tokenizer" },
  { "checkpoint", "table", keys = recipe_keys.checkpoint,
    doc = "where and when to save; default: never" },
  { "log", "table", default = {}, keys = recipe_keys.log,
    doc = "what is shown and kept" },
  { "eval", "table", keys = recipe_keys.eval,
    doc = "when to evaluate; default: never" },
  { "seed", "integer", default = 1, min = 0, max = MAX_STEPS,
    doc = "of the initial weights and the order of the data" },
  { "dtype", "enum", default = "f32", values = { "f32", "bf16" },
    doc = "of computation; master weights and optimizer state are f32" },
  { "compute", "table", default = {}, keys = recipe_keys.compute,
    doc = "what of the machine to use" },
  { "comm", "table", default = {}, keys = recipe_keys.comm,
    doc = "how ranks wait for each other" },
}

return recipe_keys
