-- Owns the shrinking of a recipe to one that a laptop runs in seconds: the
-- same kinds of layers in the same order, the same router, layout, dispatch,
-- schedule and optimizer, on made-up data.
--
-- Invariant: what passed the checks passes them small, since every size stays
-- a multiple of the degrees that divide it.
local models = require "moelua.models"

local rehearse = {}

local STEPS, SEQ, HIDDEN, HEAD_DIM, FFN, VOCAB = 40, 64, 64, 16, 64, 257
local PEAK = 1e-2

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

local function lcm(a, b) return a / gcd(a, b) * b end

-- The multiple of step nearest above wanted, but no more than size, which is
-- a multiple itself.
local function shrink(size, wanted, step)
  return math.min(size, math.ceil(wanted / step) * step)
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, item in pairs(value) do out[key] = copy(item) end
  return out
end

local function degrees(layout)
  local tp = layout.tp or 1
  return { tp = tp, cp = layout.cp or 1, pp = layout.pp or 1,
    etp = layout.etp or tp, ep = layout.ep or 1 }
end

-- ---- blocks ----

local function small_router(block, d)
  local groups = math.max(1, block.groups)
  local experts = block.experts
  block.topk = math.min(block.topk, 2)
  block.experts = shrink(experts, math.max(4, 2 * block.topk),
    lcm(d.ep, groups))
  block.ffn = shrink(block.ffn, FFN / 2, d.etp)
  if block.shared_ffn > 0 then
    block.shared_ffn = shrink(block.shared_ffn, FFN, d.tp)
  end
end

local function small_block(block, d, seq)
  block = copy(block)
  local ratio = math.min(block.heads / block.kv_heads, 4)
  block.kv_heads = shrink(block.kv_heads, 2, d.tp)
  block.heads = block.kv_heads * ratio
  block.head_dim = math.min(block.head_dim, HEAD_DIM)
  if block.window > 0 and block.window < seq.full then
    block.window = math.max(1, math.floor(block.window * seq.small / seq.full))
  end
  if block.ffn_kind == "moe" then
    small_router(block, d)
  else
    block.ffn = shrink(block.ffn, FFN, d.tp)
  end
  return block
end

local function signature(block)
  local parts = {}
  for key, value in pairs(block) do
    parts[#parts + 1] = key .. "=" .. tostring(value)
  end
  table.sort(parts)
  return table.concat(parts, " ")
end

-- Numbers of the blocks to keep: the first of each kind, then others evenly,
-- up to a multiple of the pipeline's chunks.
local function chosen(blocks, step)
  local keep, seen, count = {}, {}, 0
  local function add(i)
    if not keep[i] then keep[i], count = true, count + 1 end
  end
  for i, block in ipairs(blocks) do
    local kind = signature(block)
    if not seen[kind] then add(i) end
    seen[kind] = true
  end
  local want = shrink(#blocks, math.max(2, count), step)
  local missing = want - count
  for n = 1, missing do add(math.ceil(n * #blocks / missing)) end
  for i = 1, #blocks do
    if count < want then add(i) end
  end
  return keep
end

local function small_model(model, d, chunks, seq)
  local small = copy(model)
  small.blocks = {}
  local keep = chosen(model.blocks, d.pp * chunks)
  for i, block in ipairs(model.blocks) do
    if keep[i] then
      small.blocks[#small.blocks + 1] = small_block(block, d, seq)
    end
  end
  small.hidden = math.min(model.hidden, HIDDEN)
  small.vocab = math.min(model.vocab, VOCAB)
  small.max_positions = seq.small
  return models.mark(small)
end

-- ---- the rest ----

-- Steps of the small run for steps of the full one.
local function scaled(value, from, to)
  if not value then return nil end
  return math.floor(value * to / from)
end

-- In so few steps the rate of a large model teaches a small one nothing: the
-- peak is raised, the curve keeps its shape.
local function small_curve(lr, from, to)
  local factor = math.max(1, PEAK / lr.peak)
  lr.peak, lr.min = lr.peak * factor, lr.min * factor
  lr.warmup = scaled(lr.warmup, from, to)
  if lr.decay then lr.decay = math.max(1, scaled(lr.decay, from, to)) end
end

local function small_schedule(recipe, d, world)
  local schedule = recipe.schedule
  local steps = schedule.steps
  local small = math.min(steps, STEPS)
  local ranks = world == 1 and 1 or d.tp * d.cp * d.pp
  local micro = math.min(schedule.micro_batch, 2)
  local dp = recipe.layout.dp or math.max(1, math.floor(world / ranks))
  local full = math.max(1, math.floor(schedule.global_batch
    / (schedule.micro_batch * dp)))
  local passes = world == 1 and 4 or math.max(2, d.pp)
  schedule.steps, schedule.micro_batch = small, micro
  schedule.global_batch = micro * dp * math.min(full, passes)
  small_curve(recipe.optimizer.lr, steps, small)
end

local function every(section, steps)
  if section and section.every > 0 then
    section.every = math.max(1, math.floor(steps / 2))
  end
end

local function small_output(recipe)
  local steps = recipe.schedule.steps
  every(recipe.checkpoint, steps)
  every(recipe.eval, steps)
  every(recipe.log.sample, steps)
  recipe.log.every = 1
  if recipe.eval then recipe.eval.batches = 1 end
  if recipe.log.sample then
    recipe.log.sample.tokens = math.min(recipe.log.sample.tokens, 32)
  end
  if recipe.checkpoint then
    recipe.checkpoint.dir = recipe.checkpoint.dir .. "/rehearsal"
    recipe.checkpoint.resume = false
  end
end

local function small_data(recipe, seq)
  local data = recipe.data
  data.seq, data.synthetic = seq.small, true
  data.tokenizer = recipe.model.vocab >= VOCAB and "bytes" or nil
  if data.mask_id and data.mask_id >= recipe.model.vocab then
    data.mask_id = nil
  end
end

-- shrink(resolved, world) -> a small resolved recipe. On one rank every degree
-- is 1; on more the layout stays. data.synthetic says that the tokens are made
-- up (moelua.synthetic): the real files need not be here.
function rehearse.shrink(resolved, world)
  local d = degrees(resolved.layout)
  local step = d.cp > 1 and d.cp * lcm(2, d.tp) or d.tp
  local seq = { full = resolved.data.seq,
    small = shrink(resolved.data.seq, SEQ, step) }
  local recipe = copy(resolved)
  recipe.name = resolved.name .. " (rehearsal)"
  recipe.model = small_model(resolved.model, d, resolved.schedule.chunks, seq)
  if world == 1 then
    recipe.layout = { order = resolved.layout.order, tp = 1, cp = 1, pp = 1,
      etp = 1, ep = 1, dp = 1, edp = 1 }
    recipe.schedule.chunks, recipe.schedule.group = 1, nil
  end
  recipe.layout.blocks = nil -- there are fewer now
  small_schedule(recipe, d, world)
  small_output(recipe)
  small_data(recipe, seq)
  return recipe
end

return rehearse
