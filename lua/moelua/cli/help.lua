-- Owns the texts of `moelua help`.
local cli = require "moelua.cli"
local near = require "moelua.near"
local report = require "moelua.report"

local help = {}

help.topics = {}

help.topics.usage = [[
usage:
  moelua RECIPE.lua [key=value ...]   train what a recipe describes
  moelua COMMAND [arguments]
  moelua                              interactive Lua
  moelua -e CODE | -i FILE | -l MODULE | -v    as in lua(1)

commands:
%s
Results go to standard output, progress and messages to standard error.
Exit status: 0 done, 1 a failed run, 2 wrong usage or an invalid recipe,
3 does not fit this machine.
]]

help.topics.run = [[
moelua RECIPE.lua [key=value ...] [--rehearse]

Trains. `key=value` changes one field of the recipe, with dots for tables:
  moelua recipes/tiny.lua schedule.steps=100 optimizer.lr.peak=1e-3

A run continues from the newest checkpoint in checkpoint.dir, unless the recipe
says resume = false. Ctrl-C finishes the step, saves a checkpoint and leaves
with status 1; the same command continues. Data or a tokenizer that is missing
or malformed is status 2, and nothing is written. Beside the checkpoints lies
metrics.jsonl, one object a step.

--rehearse   when the model does not fit: train a small model of the same kind
]]

help.topics.data = [[
moelua data prepare --tokenizer T --out PREFIX FILES...
  T: 'bytes', or a tokenizer.json. Writes PREFIX.bin and PREFIX.idx.
  --documents auto|file|line|jsonl   what a document is (auto: .jsonl files by
                                     line, others whole)
  --field NAME                       the text in a JSON line ("text")
  --no-eod                           no end-of-document id after each
  --special                          with the ids the tokenizer's file adds
moelua data prepare kjv [--tokenizer T] [--out PREFIX]
  The King James Bible of Debian's package bible-kjv as bytes: data/kjv.
moelua data info PREFIX...           counts, from the index
moelua data verify PREFIX... [--vocab N]   reads every id
--json: one JSON object a line on standard output.

Status 2: a file is not there or is no token file or tokenizer. Status 1: ids
out of range, a text that cannot be read.
]]

help.topics.plan = [[
moelua plan RECIPE.lua [key=value ...] [--json]

Predicts parameters and memory by device, for any layout, without running it.
Status 3 when one device of this layout does not fit this machine.
]]

help.topics.mesh = [[
moelua mesh [RECIPE.lua] [key=value ...] [--world N] [--json]

Prints every group of a layout on N ranks (default: the fewest it allows) in
both views, and which ranks hold which heads, blocks and experts: of the
recipe's model, or without a recipe as parts of the whole. Keys of the layout
need no "layout." before them:
  moelua mesh --world 16 tp=2 cp=2 pp=2 ep=4 etp=1 order=tp-cp-ep-dp-pp
  moelua mesh recipes/tiny.lua tp=2 ep=4 etp=1 --world 8

A group lists its ranks in the order of its members. Status 2 when the layout
or the recipe is wrong, with the arithmetic.
]]

help.topics.check = [[
moelua check RECIPE.lua [key=value ...] [--ranks N]

Validates everything and reports all errors at once.
]]

help.topics.bench = [[
moelua bench [NAME] [--json]

Without NAME runs all. `moelua bench --list` names them. Under mpirun
`moelua bench dispatch` also measures what goes between ranks.
]]

help.topics.doctor = [[
moelua doctor [--json]

Describes this machine and build and runs self-tests. Status 1 when one fails.
]]

help.topics.checkpoint = [[
moelua checkpoint info PATH... [--tensors] [--json]   what it holds
moelua checkpoint verify PATH... [--json]   reads everything, checks digests

PATH is the folder of a checkpoint, or of a run: then its newest. Status 1 when
a checkpoint is damaged, 2 when there is none. `reshard`, `import`, `export` and
`diff` are not part of this version.
]]

help.topics.lua = [[
local moe = require "moelua"          in the program, or from luajit

moe.context{threads=, isa=, log=}     everything below is also a method of it
moe.tokenizer(path)                   :encode :decode :vocab :eod
moe.tokens(prefix)                    :info :verify :read :length
moe.token_writer(prefix, vocab)       :add :finish
moe.loader{sources=, seq=, ...}       :read :epoch_samples
moe.trainer(config)                   :step :gradients :eval :logits :params
                                      :read :write :state :save :load
moe.checkpoint(path)                  :info :tensors :read :verify
moe.mesh(layout, ranks)               :info :place :groups
moe.placement(config, ranks, rank)    the parameters that a rank keeps
moe.prepare{tokenizer=, out=, files=}
moe.plan_memory(config), moe.bench_peak(dtype, seconds), moe.machine_memory()

Objects have :close() and a tostring. Misuse raises an error; what the world
does wrong returns nil, message, code.

From a plain luajit: LUA_PATH must reach the folder share/lua/5.1, and the
library is found there, by MOELUA_LIB, or by the system's loader. MOELUA_PATH
names a folder whose moelua/*.lua replace those inside the program.
]]

-- All keys of a recipe, from the lists that check it.
function help.topics.recipe()
  return require("moelua.recipe_doc").text()
end

local function usage()
  local rows = {}
  for i, command in ipairs(cli.commands) do
    rows[i] = { "  " .. command[1], command[3] }
  end
  return help.topics.usage:format(report.table { rows = rows })
end

function help.main(arguments)
  local topic = arguments[1]
  if not topic or topic == "help" then
    local names = {}
    for name in pairs(help.topics) do
      if name ~= "usage" then names[#names + 1] = name end
    end
    table.sort(names)
    io.stdout:write(usage(), "\nmoelua help TOPIC: ",
      table.concat(names, ", "), "\n")
    return cli.OK
  end
  local text = topic ~= "usage" and help.topics[topic]
  if not text then
    return cli.usage_error(("no help on '%s'%s"):format(topic,
      near.hint(topic, help.topics)))
  end
  io.stdout:write(type(text) == "function" and text() or text)
  return cli.OK
end

return help
