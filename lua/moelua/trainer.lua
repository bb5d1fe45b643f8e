-- Owns the trainer object: model, gradients and optimizer state, one step.
local ffi = require "ffi"
local binding = require "moelua.ffi"
local handle = require "moelua.handle"
local near = require "moelua.near"
local struct = require "moelua.struct"
local lib = binding.lib

jit.off(true, true)

local Trainer = handle.class("trainer")

local METRICS = {}
for _, field in ipairs(binding.structs.moe_step_metrics) do
  if field.name ~= "size" and not field.count then
    METRICS[#METRICS + 1] = field.name
  end
end

-- create(context, config): config is a table or a moe_train_config
function Trainer.create(context, config)
  local Context = require "moelua.context"
  local c_config, anchor = Context.train_config(config, 2)
  local out = ffi.new("moe_trainer *[1]")
  local status = lib.moe_trainer_create(context._pointer, c_config, out)
  if status ~= 0 or not anchor then
    return handle.failure(context._core, status)
  end
  local metrics = ffi.new("moe_step_metrics")
  local share = ffi.new("int64_t[2]")
  lib.moe_trainer_share(out[0], share, share + 1)
  return handle.own(Trainer, context._core, out[0], lib.moe_trainer_destroy, {
    seq = c_config.seq,
    vocab = c_config.model.vocab,
    global_batch = c_config.global_batch,
    share_first = tonumber(share[0]), -- of the global batch, on this rank
    share = tonumber(share[1]),
    micro_batch = c_config.micro_batch,
    _metrics = metrics,
  })
end

-- Token and label arrays of exactly `sequences` rows of S.
local function batch(self, tokens, labels, sequences, level)
  local n = sequences * self.seq
  local c_tokens, n_tokens = handle.ids(tokens, level + 1)
  local c_labels, n_labels = handle.ids(labels, level + 1)
  if n_tokens < n or n_labels < n then
    error(("expected %d tokens and labels (%d sequences of %d), got %d and %d")
      :format(n, sequences, self.seq, n_tokens, n_labels), level + 1)
  end
  return c_tokens, c_labels
end

local function metrics_table(metrics)
  local result, parts = {}, {}
  for _, name in ipairs(METRICS) do result[name] = tonumber(metrics[name]) end
  for i = 0, tonumber(lib.MOE_PART_COUNT) - 1 do
    parts[i + 1] = {
      name = ffi.string(lib.moe_part_name(i)),
      seconds = metrics.part_seconds[i],
      flops = metrics.part_flops[i],
    }
  end
  result.parts = parts
  return result
end

-- Only tail-called by the methods below: level 2 is the user's line.
local function run(self, call, tokens, labels)
  local pointer = handle.pointer(self, Trainer, 2)
  tokens, labels = batch(self, tokens, labels, self.share, 2)
  local metrics = self._metrics
  metrics.size = ffi.sizeof("moe_step_metrics")
  local status = call(pointer, tokens, labels, metrics)
  if status ~= 0 then return handle.failure(self._core, status) end
  return metrics_table(metrics)
end

-- One optimizer step -> metrics | nil, message, code ("numeric": weights and
-- step stay as they were). Fields: moe_step_metrics; parts is an array of
-- { name, seconds, flops }.
function Trainer:step(tokens, labels)
  return run(self, lib.moe_trainer_step, tokens, labels)
end

-- Forward and backward only; gradients can be read afterwards.
function Trainer:gradients(tokens, labels)
  return run(self, lib.moe_trainer_gradients, tokens, labels)
end

-- eval(tokens, labels[, sequences = global_batch])
-- -> { loss = mean, loss_sum =, tokens = unmasked }
function Trainer:eval(tokens, labels, sequences)
  local pointer = handle.pointer(self, Trainer, 2)
  sequences = sequences or self.global_batch
  tokens, labels = batch(self, tokens, labels, sequences, 2)
  local sum, count = ffi.new("double[1]"), ffi.new("int64_t[1]")
  local status = lib.moe_trainer_eval(pointer, tokens, labels, sequences, sum,
    count)
  if status ~= 0 then return handle.failure(self._core, status) end
  local n = tonumber(count[0])
  return { loss_sum = sum[0], tokens = n, loss = sum[0] / n }
end

-- logits(ids[, {all = true}]) -> float[rows * V], rows, V: of the last token,
-- or of each. At most S ids.
function Trainer:logits(ids, options)
  local pointer = handle.pointer(self, Trainer, 2)
  struct.check(2, "logits", options or {}, { all = "boolean?" })
  local c_ids, n = handle.ids(ids, 2)
  local all = options and options.all or false
  local rows = all and n or 1
  local logits = ffi.new("float[?]", rows * self.vocab)
  local status = lib.moe_trainer_logits(pointer, c_ids, n, all and 1 or 0,
    logits)
  if status ~= 0 then return handle.failure(self._core, status) end
  return logits, rows, self.vocab
end

-- step, cursor (samples consumed), seed (uint64_t)
function Trainer:state()
  local pointer = handle.pointer(self, Trainer, 2)
  local state = ffi.new("moe_trainer_state")
  state.size = ffi.sizeof("moe_trainer_state")
  local status = lib.moe_trainer_get_state(pointer, state)
  if status ~= 0 then return handle.failure(self._core, status) end
  return { step = tonumber(state.step), cursor = tonumber(state.cursor),
    seed = state.seed }
end

function Trainer:set_state(state)
  local pointer = handle.pointer(self, Trainer, 2)
  local c_state, problems = struct.build("moe_trainer_state", state)
  if not c_state then
    error("set_state: " .. table.concat(problems, "; "), 2)
  end
  local status = lib.moe_trainer_set_state(pointer, c_state)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- ---- parameters ----

local function dims_table(values, count)
  local list = {}
  for i = 1, count do list[i] = tonumber(values[i - 1]) end
  return list
end

local function param_at(self, pointer, index)
  local info = ffi.new("moe_param_info")
  info.size = ffi.sizeof("moe_param_info")
  local status = lib.moe_trainer_param_info(pointer, index, info)
  if status ~= 0 then return handle.failure(self._core, status) end
  local param = {
    index = index,
    name = ffi.string(info.name),
    shape = dims_table(info.dim, info.dims),
    start = dims_table(info.start, info.dims),
    count = dims_table(info.count, info.dims),
    expert = info.expert ~= 0,
    elements = 1,
  }
  for _, n in ipairs(param.count) do param.elements = param.elements * n end
  return param
end

-- Array of { name, shape, start, count, elements, expert, index }
function Trainer:params()
  local pointer = handle.pointer(self, Trainer, 2)
  local list = {}
  for i = 0, tonumber(lib.moe_trainer_param_count(pointer)) - 1 do
    local param, message, code = param_at(self, pointer, i)
    if not param then return nil, message, code end
    list[i + 1] = param
  end
  return list
end

-- One of them by its name | nil, message, "notfound"
function Trainer:param(name)
  local pointer = handle.pointer(self, Trainer, 2)
  if type(name) ~= "string" then
    error("param: expected a name, got " .. type(name), 2)
  end
  local index = ffi.new("int64_t[1]")
  local status = lib.moe_trainer_param_find(pointer, name, index)
  if status ~= 0 then return handle.failure(self._core, status) end
  return param_at(self, pointer, index[0])
end

local function tensor_kind(kind, level)
  local kinds = struct.enum("moe_tensor_kind")
  local number = kinds[kind or "weight"]
  if type(number) ~= "number" then
    error(("unknown tensor kind '%s'%s"):format(tostring(kind),
      near.hint(kind, { "weight", "grad", "exp_avg", "exp_avg_sq" })),
      level + 1)
  end
  return number
end

-- read(name[, kind = "weight"]) -> float[n], n; kind is one of weight, grad,
-- exp_avg, exp_avg_sq
function Trainer:read(name, kind)
  local pointer = handle.pointer(self, Trainer, 2)
  local number = tensor_kind(kind, 2)
  local param, message, code = self:param(name)
  if not param then return nil, message, code end
  local values = ffi.new("float[?]", param.elements)
  local status = lib.moe_trainer_param_read(pointer, param.index, number,
    values, param.elements)
  if status ~= 0 then return handle.failure(self._core, status) end
  return values, param.elements
end

local function floats(values, param, level)
  local n = param.elements
  if type(values) == "table" then
    if #values ~= n then
      error(("write: %s has %d elements, got %d"):format(param.name, n,
        #values), level + 1)
    end
    return ffi.new("float[?]", n, values)
  end
  if type(values) ~= "cdata"
    or not tostring(ffi.typeof(values)):match("^ctype<float %[")
    or ffi.sizeof(values) ~= 4 * n then
    error(("write: expected a table or float[%d] for %s, got %s"):format(n,
      param.name, type(values) == "cdata" and tostring(ffi.typeof(values))
      or type(values)), level + 1)
  end
  return values
end

-- write(name, values[, kind = "weight"]): values is a table or float[n]
function Trainer:write(name, values, kind)
  local pointer = handle.pointer(self, Trainer, 2)
  local number = tensor_kind(kind, 2)
  local param, message, code = self:param(name)
  if not param then return nil, message, code end
  local status = lib.moe_trainer_param_write(pointer, param.index, number,
    floats(values, param, 2), param.elements)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- ---- checkpoints ----

-- save(dir[, {keep = newest to keep (0: all), meta = json text}])
function Trainer:save(dir, options)
  local pointer = handle.pointer(self, Trainer, 2)
  options = struct.check(2, "save", options or {},
    { keep = "number?", meta = "string?" })
  local status = lib.moe_trainer_save(pointer, dir, options.keep or 0,
    options.meta)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

-- load(path): a checkpoint folder, or a folder that has `latest`
function Trainer:load(path)
  local status = lib.moe_trainer_load(handle.pointer(self, Trainer, 2), path)
  if status ~= 0 then return handle.failure(self._core, status) end
  return true
end

function Trainer.describe(self)
  local state = self:state()
  return ("step %d, %d tensors, batch %d x %d"):format(state.step,
    tonumber(lib.moe_trainer_param_count(self._pointer)), self.global_batch,
    self.seq)
end

return Trainer
