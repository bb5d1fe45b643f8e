-- Owns `moelua bench dispatch`: rows to their experts and back, against plain
-- copies of the same bytes and, between ranks, against the bare transfers.

-- A: 8 experts, top-2. B: fine-grained, 64 experts, top-8.
local MODELS = {
  { "A", { tokens = 2048, hidden = 1024, experts = 8, topk = 2 } },
  { "B", { tokens = 2048, hidden = 1024, experts = 64, topk = 8 } },
}

return function(context, say)
  local rows = {}
  for _, model in ipairs(MODELS) do
    for _, dtype in ipairs { "f32", "bf16" } do
      say(("dispatch, %s, %s"):format(model[1], dtype))
      model[2].dtype = dtype
      local r, message = context:bench_dispatch(model[2])
      if not r then return nil, message end
      local prefix = ("dispatch.%s.%s."):format(model[1], dtype)
      local function add(key, value, unit)
        rows[#rows + 1] = { prefix .. key, value, unit }
      end
      add("permute", r.permute_seconds, "s")
      add("permute_by_copy", r.permute_seconds / r.copy_seconds, "")
      if r.dispatch_seconds > 0 then
        add("exchange", r.dispatch_seconds, "s")
        add("exchange_by_raw", r.dispatch_seconds / r.exchange_seconds, "")
      end
    end
  end
  return rows
end
