-- Owns the training of a resolved recipe on this rank: set up, resume, loop,
-- evaluate, sample, save, account.
--
-- Invariant: after any way out, the newest checkpoint and the metrics file
-- describe whole steps, and the same command continues from there.
local cli = require "moelua.cli"
local json = require "moelua.json"
local metrics = require "moelua.metrics"
local progress = require "moelua.progress"
local ranks = require "moelua.ranks"
local report = require "moelua.report"
local sample = require "moelua.sample"
local summary = require "moelua.summary"
local sys = require "moelua.sys"
local tensorboard = require "moelua.tensorboard"

local train = {}

local OK, FAILED, USAGE = 0, 1, 2

-- A signal that waits, or nil; a host other than `moelua` has none.
local has_host, host = pcall(require, "moelua.host")
local function pending() return has_host and host.pending() or nil end
local function guard(on) if has_host then host.guard(on) end end

-- What stops a run: raised inside of it, caught in train.run.
local Stop = { __tostring = function(stop) return stop.message end }
local function stop(message, status)
  error(setmetatable({ message = message, status = status or FAILED }, Stop), 0)
end

-- value of a call that returns nil, message on failure
local function need(value, message)
  if value == nil then stop(message) end
  return value
end

-- The same for a file that `key` of the recipe names.
local function need_file(key, value, message, code)
  if value == nil then stop(key .. ": " .. message, cli.open_status(code)) end
  return value
end

-- ---- set up ----

-- Token files of at most so many ids are read whole before the run begins;
-- in larger ones a bad id is found when its sample comes.
local CHECKED_IDS = 2 ^ 27

local function prefixes_of(sources)
  if type(sources) == "string" then return { sources } end
  local list = {}
  for i, source in ipairs(sources) do
    list[i] = type(source) == "table" and source.prefix or source
  end
  return list
end

local function check_ids(run, key, sources)
  for _, prefix in ipairs(prefixes_of(sources)) do
    local tokens = need_file(key, run.context:tokens(prefix))
    local info = need_file(key, tokens:info())
    if info.tokens <= CHECKED_IDS then
      need_file(key, tokens:verify(run.vocab))
    end
    tokens:close()
  end
end

local function open_loader(run, split)
  local data, recipe = run.recipe.data, run.recipe
  if data.synthetic then
    return require("moelua.synthetic").open { seq = data.seq,
      vocab = run.vocab,
      seed = recipe.seed + (split == "valid" and 1 or 0) }
  end
  local own_valid = split == "valid" and data.valid
  local key = own_valid and "data.valid" or "data.train"
  local sources = own_valid or data.train
  if split == "train" or own_valid then check_ids(run, key, sources) end
  return need_file(key, run.context:loader {
    sources = sources,
    seq = data.seq, vocab = run.vocab, seed = recipe.seed,
    shuffle = split == "train",
    split = own_valid and "train" or split,
    valid_fraction = not data.valid and data.valid_fraction or 0,
    mask_id = data.mask_id,
  })
end

local function open_tokenizer(run)
  local path = run.recipe.data.tokenizer
  if not path then return end
  run.tokenizer = need_file("data.tokenizer", run.context:tokenizer(path))
  if run.tokenizer:vocab() > run.vocab then
    stop(("data.tokenizer: %s has ids up to %d, the model's vocabulary has %d; "
      .. "set model.vocab to at least %d"):format(path,
        run.tokenizer:vocab() - 1, run.vocab, run.tokenizer:vocab()), USAGE)
  end
end

local function open_data(run)
  local data = run.recipe.data
  run.loader = open_loader(run, "train")
  local eval = run.recipe.eval
  if eval and (data.valid or data.synthetic
    or (data.valid_fraction or 0) > 0) then
    run.valid = open_loader(run, "valid")
    run.eval_sequences = math.min(run.valid:epoch_samples(),
      (eval.batches or 8) * run.config.global_batch)
  end
end

-- The error of a protected call: what stopped the run, or where Lua failed.
local function caught(err)
  if getmetatable(err) == Stop then return err end
  return debug.traceback(tostring(err), 2)
end

-- Runs f(run) on every rank; where it stops one, it stops all alike.
local function together(run, f)
  if ranks.size() == 1 then return f(run) end
  local ok, err = xpcall(f, caught, run)
  local text, status = ranks.agree(run.context,
    not ok and (getmetatable(err) == Stop and err.status or FAILED) or nil,
    not ok and tostring(err) or nil)
  if text then stop(text, status) end
end

-- A context with this rank's share of the machine.
local function open_context(run)
  local moelua = require "moelua"
  local compute = run.recipe.compute or {}
  local options = { threads = compute.threads, isa = compute.isa,
    log = report.log }
  run.context = need(moelua.context(options))
  if ranks.size() == 1 then return end
  if (compute.threads or 0) == 0 then
    options.threads = math.max(1,
      math.floor(run.context:threads() / ranks.here()))
    run.context:close()
    run.context = need(moelua.context(options))
  end
  run.context:comm_timeout((run.recipe.comm or {}).timeout or 600)
end

-- The same on all ranks of the job. A rank that fails joins to say so.
local function join(run)
  if ranks.size() == 1 then return open_context(run) end
  local ok, err = xpcall(open_context, caught, run)
  run.context = run.context or need(require("moelua").context { threads = 1 })
  need(run.context:join_mpi())
  together(run, function() if not ok then error(err, 0) end end)
end

-- run.json beside the checkpoints says which samples the cursor counts.
local function remember_data(run, resumed)
  local path = run.dir .. "/run.json"
  local binding = require "moelua.ffi"
  if not binding.has("moe_loader_fingerprint") then return end
  local mark = run.loader:fingerprint()
  local file = io.open(path, "rb")
  local before = file and json.decode(file:read("*a"))
  if file then file:close() end
  if resumed and type(before) == "table" and before.data ~= mark then
    report.warn("the data, seed or sequence length differ from those of the "
      .. "checkpoint: the order of samples starts anew at its cursor")
  end
  need(sys.replace_file(path, json.encode(json.object {
    { "recipe", run.recipe.path }, { "name", run.recipe.name },
    { "data", mark } }) .. "\n"))
end

-- The checkpoint to begin with, or nil: the newest of this run, else the one
-- that checkpoint.resume names.
local function resume_path(run)
  local wanted = run.recipe.checkpoint and run.recipe.checkpoint.resume
  if not run.dir or wanted == false then return nil end
  local path, message, code = run.context:latest_checkpoint(run.dir)
  if path then return path, run.dir end
  if code ~= "notfound" then stop(message) end
  if type(wanted) == "string" then return wanted, wanted end
end

-- Loads the checkpoint to begin with, if there is one; true when it did.
local function resume(run)
  local name, path = run.begin_with, run.begin_in
  if not name then return false end
  if path == run.dir then
    need(run.trainer:load(path))
  else
    need_file("checkpoint.resume", run.trainer:load(path))
  end
  local state = need(run.trainer:state())
  report.say(("continues from %s (step %d)"):format(name, state.step))
  if path == run.dir then run.saved_step = state.step end
  return true
end

local function open_metrics(run)
  local log = run.recipe.log or {}
  if not run.dir then
    if log.jsonl or log.tensorboard then
      report.warn("the recipe has no checkpoint.dir, where metrics are kept")
    end
    return
  end
  if log.jsonl then
    run.metrics = need(metrics.open(run.dir .. "/metrics.jsonl", run.step))
  end
  if log.tensorboard then run.events = need(tensorboard.open(run.dir)) end
end

local function describe(run)
  local config, recipe = run.config, run.recipe
  report.say(("%s: %d steps of %d x %d tokens, %s, %s, %s%d threads"):format(
    recipe.name or recipe.path, run.steps, config.global_batch, config.seq,
    recipe.dtype or "f32", run.context:isa(),
    run.ranks > 1 and run.ranks .. " ranks of " or "", run.context:threads()))
end

-- What each rank does by itself: nothing of it waits for another rank.
local function open_all(run)
  local recipe = run.recipe
  local ok, message = run.context:check_config(run.config, run.ranks)
  if not ok then stop(message, USAGE) end
  if run.ranks > 1 then need(run.context:name_ranks(run.config)) end
  run.steps = recipe.schedule.steps
  run.vocab = run.config.model.vocab
  run.dir = recipe.checkpoint and recipe.checkpoint.dir
  open_tokenizer(run)
  open_data(run)
  run.begin_with, run.begin_in = resume_path(run)
end

local function open_output(run)
  if run.dir then need(sys.mkdirs(run.dir)) end
  local state = need(run.trainer:state())
  run.step, run.cursor = state.step, state.cursor
  if run.rank > 0 then return end
  if run.dir then remember_data(run, run.resumed) end
  open_metrics(run)
end

-- Nothing is written before all that the recipe names was opened.
local function set_up(run)
  run.config, run.anchor = require("moelua.recipe").train_config(run.recipe)
  join(run)
  run.rank, run.ranks = run.context:rank()
  together(run, open_all)
  run.trainer = need(run.context:trainer(run.config))
  run.resumed = resume(run)
  together(run, open_output)
  run.peak = run.context:bench_peak(run.recipe.dtype or "f32", 0.2)
  describe(run)
end

-- ---- what happens between steps ----

local function due(every, step)
  return every and every > 0 and step % every == 0
end

local function save(run)
  if not run.dir or run.saved_step == run.step then return end
  local recipe = run.recipe
  need(run.trainer:save(run.dir, { keep = recipe.checkpoint.keep or 0,
    meta = json.encode(json.object { { "recipe", recipe.path },
      { "name", recipe.name }, { "tokenizer", recipe.data.tokenizer } }) }))
  run.saved_step = run.step
end

-- Mean loss over the held-out samples; nil when a signal came meanwhile.
local function evaluate(run)
  local sum, count, at = 0, 0, 0
  local batch = run.trainer.global_batch
  while at < run.eval_sequences do
    if pending() then return nil end
    local n = math.min(batch, run.eval_sequences - at)
    need(run.valid:read(at, n, run.tokens, run.labels))
    local result = need(run.trainer:eval(run.tokens, run.labels, n))
    sum, count, at = sum + result.loss_sum, count + result.tokens, at + n
  end
  return count > 0 and sum / count or nil
end

local function write_sample(run)
  local options = run.recipe.log.sample
  local text = need(sample.run(run.trainer, run.tokenizer, {
    prompt = options.prompt or "", tokens = options.tokens or 64,
    temperature = options.temperature or 0.8,
    seed = (run.recipe.seed or 0) * 1000003 + run.step,
  }))
  local shown = report.printable((options.prompt or "") .. text)
  run.progress:note(("sample at step %d: %s"):format(run.step,
    report.paint("stderr", "cyan", shown)))
  return text
end

-- Evaluation and sample where due; pairs for the metrics line.
local function extras(run, last)
  run.valid_loss_now = nil
  local recipe, pairs_list = run.recipe, {}
  if run.valid and (due(recipe.eval.every, run.step) or last) then
    local loss = run.account:time("evaluation", evaluate, run)
    if loss then
      run.valid_loss, run.valid_loss_now = loss, loss
      run.progress:note(("step %d  held-out loss %.4f  perplexity %.2f")
        :format(run.step, loss, math.exp(loss)))
      pairs_list[#pairs_list + 1] = { "valid_loss", loss }
      pairs_list[#pairs_list + 1] = { "valid_loss_hex", ("%a"):format(loss) }
    end
  end
  local options = recipe.log and recipe.log.sample
  if options and run.tokenizer and due(options.every, run.step) then
    local text = run.account:time("samples", write_sample, run)
    pairs_list[#pairs_list + 1] = { "sample", text }
  end
  return pairs_list
end

-- ---- the loop ----

-- Whether a failure is not all ranks': they would not come to save.
local function alone(run, code)
  return ranks.size() > 1
    and (code == "comm" or run.context:tells() == "own")
end

local function one_step(run)
  run.account:time("data", function()
    local trainer = run.trainer
    need(run.loader:read(run.cursor + trainer.share_first, trainer.share,
      run.tokens, run.labels))
  end)
  local step, message, code = run.trainer:step(run.tokens, run.labels)
  if not step then
    if code == "numeric" then
      message = ("step %d: %s; weights stay as after step %d. Try a lower "
        .. "optimizer.lr.peak or optimizer.clip"):format(run.step + 1, message,
        run.step)
    end
    if not alone(run, code) then run.account:time("checkpoints", save, run) end
    stop(message)
  end
  run.step, run.cursor = step.step, run.cursor + run.trainer.global_batch
  return step
end

local function interrupted(run, signal)
  run.account:time("checkpoints", save, run)
  stop(("%s after step %d; %s"):format(
    signal == "interrupt" and "interrupted" or "told to end", run.step,
    run.dir and "checkpoint saved, the same command continues"
      or "nothing is saved, the recipe has no checkpoint.dir"))
end

local function loop(run)
  local ffi = require "ffi"
  local n = run.trainer.global_batch * run.trainer.seq
  run.tokens = ffi.new("int32_t[?]", n)
  run.labels = ffi.new("int32_t[?]", n)
  local before = sys.now()
  while run.step < run.steps do
    local step = one_step(run)
    local now = sys.now()
    run.account:step(step)
    run.last = step
    run.first_loss = run.first_loss or step.loss
    run.progress:step(step, now - before)
    local extra = extras(run, run.step == run.steps)
    if run.metrics then need(run.metrics:write(step, extra)) end
    if run.events then need(run.events:write(step, run.valid_loss_now)) end
    if due(run.recipe.checkpoint and run.recipe.checkpoint.every, run.step) then
      run.account:time("checkpoints", save, run)
    end
    local signal = pending()
    if signal then interrupted(run, signal) end
    before = sys.now()
  end
  run.account:time("checkpoints", save, run)
end

-- ---- the end ----

-- The command as it was typed, with other steps.
local function next_command(run)
  local words = { "moelua" }
  for _, word in ipairs(run.arguments) do
    if not word:match("^schedule%.steps=") then
      words[#words + 1] = word:find("[^%w_./=,+-]") and "'" ..
        word:gsub("'", "'\\''") .. "'" or word
    end
  end
  words[#words + 1] = run.dir and "schedule.steps=" .. 2 * run.steps
    or "checkpoint.dir=runs/NAME  (to keep what it learns)"
  return table.concat(words, " ")
end

local function closing(run)
  local facts = {
    { "steps", report.integer(run.step) },
    { "loss", ("%.4f -> %.4f"):format(run.first_loss, run.last.loss) },
  }
  local function put(...) facts[#facts + 1] = { ... } end
  if run.valid_loss then
    put("held-out loss", ("%.4f"):format(run.valid_loss))
  end
  put("tokens", report.count(run.account.tokens))
  put("peak memory", report.bytes(run.context:memory().peak))
  if run.dir then put("checkpoint", run.context:latest_checkpoint(run.dir)) end
  if run.metrics then put("metrics", run.metrics.path) end
  put("next", next_command(run))
  io.stdout:write(run.account:table(run.peak), "\n", summary.facts(facts))
end

local function body(run)
  run.account:time("start", set_up, run)
  if run.step >= run.steps then
    report.say(("nothing to do: step %d of %d is done; raise schedule.steps")
      :format(run.step, run.steps))
    return
  end
  run.progress = progress.new { steps = run.steps, peak = run.peak,
    silent = run.rank > 0, every = run.recipe.log and run.recipe.log.every }
  loop(run)
  run.progress:finish()
  if run.rank == 0 then closing(run) end
end

local function close(run)
  for _, name in ipairs { "metrics", "events", "loader", "valid", "tokenizer",
    "trainer", "context" } do
    if run[name] then run[name]:close() end
  end
end

-- run(resolved recipe[, arguments as typed]) -> exit status; says on stderr why
-- it failed.
function train.run(recipe, arguments)
  local run = { recipe = recipe, account = summary.new(),
    arguments = arguments or { recipe.path } }
  guard(ranks.size() == 1) -- ranks would see a signal after different steps
  local ok, err = xpcall(body, caught, run)
  guard(false)
  if not ok and ranks.size() > 1 then
    local stopped = getmetatable(err) == Stop
    ranks.leave(run.context, tostring(err), stopped and err.status or FAILED,
      not stopped)
  end
  close(run)
  if ok then return OK end
  if getmetatable(err) ~= Stop then error(err, 0) end
  report.fail(err.message)
  return err.status
end

return train
