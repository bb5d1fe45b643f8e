-- Token files and tokenizers that are wrong, each with the message it must
-- give. FOLDER stands for the folder the files are in.
local ffi = require "ffi"

local bad_files = {}

-- ---- token files ----

local function bytes_of(kind, values)
  local array = ffi.new(kind .. "[?]", math.max(1, #values), values)
  return ffi.string(array, #values * ffi.sizeof(kind))
end

local GOOD = {
  magic = "MMIDIDX\0\0", version = 1, type = 8,
  lengths = { 20, 30 }, offsets = { 0, 40 }, documents = { 0, 1, 2 },
}

-- An index: the good one with fields replaced. sequences and tables: the counts
-- in the header.
local function index(changes)
  local f = setmetatable(changes or {}, { __index = GOOD })
  return f.magic .. bytes_of("int64_t", { f.version })
    .. bytes_of("uint8_t", { f.type })
    .. bytes_of("int64_t", { f.sequences or #f.lengths,
      f.tables or #f.documents })
    .. bytes_of("int32_t", f.lengths) .. bytes_of("int64_t", f.offsets)
    .. bytes_of("int64_t", f.documents)
end

-- 50 ids with one replaced
local function ids(kind, at, value)
  local list = {}
  for i = 1, 50 do list[i] = i * 7 % 257 end
  if at then list[at] = value end
  return bytes_of(kind, list)
end

bad_files.index = index()
bad_files.ids = ids "uint16_t"

-- { name, message, idx = text, bin = text (false: no such file),
--   data = that section of the recipe,
--   info, verify = exit statuses of `moelua data` where they are not 2 }
bad_files.tokens = {
  { "no index", "data.train: cannot open FOLDER/data.idx: ", idx = false },
  { "no ids", "data.train: cannot open FOLDER/data.bin: ", bin = false },
  { "empty index", "data.train: FOLDER/data.idx is empty", idx = "" },
  { "empty ids", "data.train: FOLDER/data.bin is empty", bin = "" },
  { "text for an index",
    "FOLDER/data.idx does not begin with MMIDIDX: not a token index",
    idx = "The cat sat on the mat, and then it sat there.\n" },
  { "a wrong byte in the magic",
    "FOLDER/data.idx does not begin with MMIDIDX: not a token index",
    idx = index { magic = "MMIDIDX\0\1" } },
  { "the older index", "FOLDER/data.idx is an index of the older TNTIDX kind",
    idx = "TNTIDX\0\0" .. index():sub(9) },
  { "half a header",
    "FOLDER/data.idx is truncated: 20 bytes, the header alone has 34",
    idx = index():sub(1, 20) },
  { "another version", "FOLDER/data.idx has version 2, only version 1 is known",
    idx = index { version = 2 } },
  { "id type 0", "FOLDER/data.idx has the unknown id type 0",
    idx = index { type = 0 } },
  { "id type 9", "FOLDER/data.idx has the unknown id type 9",
    idx = index { type = 9 } },
  { "float ids", "FOLDER/data.idx holds f32 values (type 7), not token ids",
    idx = index { type = 7 }, bin = ids "float" },
  { "double ids", "FOLDER/data.idx holds f64 values (type 6), not token ids",
    idx = index { type = 6 }, bin = ids "double" },
  { "cut short",
    "data.idx is truncated: 81 bytes, 2 sequences and 3 documents need 82",
    idx = index():sub(1, -2) },
  { "something behind it", "data.idx has 87 bytes, expected 82",
    idx = index() .. "extra" },
  { "counts that overflow", "the sizes in the header overflow",
    idx = index { sequences = -1 } },
  { "more sequences than it holds",
    "FOLDER/data.idx is truncated: 82 bytes, 3 sequences and 3 documents",
    idx = index { sequences = 3 } },
  { "no document table", "FOLDER/data.idx has no document table",
    idx = index { documents = {} } },
  { "a negative length", "data.idx: sequence 1 has the negative length -30",
    idx = index { lengths = { 20, -30 } } },
  { "a negative offset", "data.idx: sequence 0 has the negative offset -2",
    idx = index { offsets = { -2, 40 } } },
  { "an offset inside an id",
    "sequence 1 has offset 41, not a multiple of the id size 2",
    idx = index { offsets = { 0, 41 } } },
  { "an offset outside",
    "sequence 1 (30 ids of 2 bytes at offset 42) lies past the end of "
      .. "FOLDER/data.bin (100 bytes)",
    idx = index { offsets = { 0, 42 } } },
  { "ids cut short", "lies past the end of FOLDER/data.bin (99 bytes)",
    bin = ids "uint16_t":sub(1, -2) },
  { "wider ids than there are", "lies past the end of FOLDER/data.bin",
    idx = index { type = 4, offsets = { 0, 80 } } },
  { "no tokens", "data.idx: no tokens in 2 sequences",
    idx = index { lengths = { 0, 0 }, offsets = { 0, 0 } } },
  { "documents that begin late", "the document table begins with 1, not 0",
    idx = index { documents = { 1, 1, 2 } } },
  { "documents that go back",
    "document 2 begins at sequence 1, before the one in front of it (2)",
    idx = index { documents = { 0, 2, 1 } } },
  { "documents that end early",
    "the document table ends in 1, must end in the number of sequences, 2",
    idx = index { documents = { 0, 1, 1 } } },
  { "an id above the vocabulary",
    "data.train: FOLDER/data.bin: token 12 of sequence 1 is 257, ids must be "
      .. "below 257 (the vocabulary)",
    bin = ids("uint16_t", 33, 257), info = 0, verify = 1 },
  { "a negative id",
    "FOLDER/data.bin: token 19 of sequence 0 is negative: -1",
    idx = index { type = 4, offsets = { 0, 80 } }, bin = ids("int32_t", 20, -1),
    info = 0, verify = 1 },
  { "a wide id", "FOLDER/data.bin: token 0 of sequence 0 is 4294967296",
    idx = index { type = 5, offsets = { 0, 160 } },
    bin = ids("int64_t", 1, 2 ^ 32), info = 0, verify = 1 },
  { "fewer tokens than one sample",
    "data.train: FOLDER/data: the training split has 8 of 8 tokens, one sample "
      .. "needs 9 (seq + 1)",
    idx = index { lengths = { 3, 5 }, offsets = { 0, 6 } },
    info = 0, verify = 0 },
  { "a held-out share of less than one sample",
    "data.train: FOLDER/data: the validation split has 5 of 50 tokens",
    data = [[{ train = "FOLDER/data", seq = 8, valid_fraction = 0.1 },
      eval = { every = 1 }]], info = 0, verify = 0 },
  { "a suffix in the recipe", "(give the prefix, without .bin or .idx)",
    data = [[{ train = "FOLDER/data.bin", seq = 8 }]], info = 0, verify = 0 },
  { "one of two sources", "data.train: cannot open FOLDER/other.idx: ",
    data = [[{ train = { "FOLDER/data", "FOLDER/other" }, seq = 8 }]],
    info = 0, verify = 0 },
  { "the files to evaluate on", "data.valid: cannot open FOLDER/held.idx: ",
    data = [[{ train = "FOLDER/data", valid = "FOLDER/held", seq = 8 },
      eval = { every = 1 }]],
    info = 0, verify = 0 },
}

-- ---- tokenizers ----

-- A tokenizer.json: the good one with its parts replaced or added to.
local function tokenizer(changes)
  return ([[{ "version": %s, "added_tokens": %s,
    "normalizer": %s, "pre_tokenizer": %s, "post_processor": %s,
    "decoder": %s, "model": { %s, "vocab": %s%s } }]]):format(
    changes.version or '"1.0"', changes.added or "[]",
    changes.normalizer or "null", changes.pre_tokenizer or "null",
    changes.post_processor or "null", changes.decoder or "null",
    changes.kind or '"type": "BPE"', changes.vocab
      or '{ "a": 0, "b": 1, "ab": 2 }', changes.merges
      or ', "merges": [["a", "b"]]')
end

local function merges(text)
  return tokenizer { merges = ', "merges": ' .. text }
end

bad_files.tokenizer = tokenizer {}

-- { name, message behind "data.tokenizer: ", text (false: no such file);
--   prepare = exit status of `data prepare` where it is not 2 }
bad_files.tokenizers = {
  { "no file", "cannot open the tokenizer FOLDER/tokenizer.json", false },
  { "an empty file", "FOLDER/tokenizer.json: line 1, column 0: ", "" },
  { "cut short", "FOLDER/tokenizer.json: line 3, column ",
    tokenizer({}):sub(1, -6) },
  { "no JSON", "FOLDER/tokenizer.json: line 1, column 1: ", "\127ELF\2\1\1" },
  { "text that is not UTF-8", "FOLDER/tokenizer.json: line 3, column ",
    tokenizer { vocab = '{ "\255\254": 0 }' } },
  { "an array", "FOLDER/tokenizer.json: not a tokenizer.json: must be an "
    .. "object", "[1, 2]" },
  { "another version",
    [[FOLDER/tokenizer.json: version: "2.0" is not supported, only "1.0" is]],
    tokenizer { version = '"2.0"' } },
  { "no model", "FOLDER/tokenizer.json: model: must be an object",
    '{ "version": "1.0" }' },
  { "another model",
    [[model: type "Unigram" is not supported, only "BPE" is]],
    tokenizer { kind = '"type": "Unigram"' } },
  { "dropout", "model: dropout must be null or 0",
    tokenizer { kind = '"type": "BPE", "dropout": 0.1' } },
  { "word pieces",
    [[model: continuing_subword_prefix "##" is not supported]],
    tokenizer { kind = '"type": "BPE", "continuing_subword_prefix": "##"' } },
  { "a flag that is text", [[model: "byte_fallback" must be true or false]],
    tokenizer { kind = '"type": "BPE", "byte_fallback": "yes"' } },
  { "an unknown token that is a number",
    [[model: "unk_token" must be a string]],
    tokenizer { kind = '"type": "BPE", "unk_token": 3' } },
  { "bytes that are missing",
    [[model: byte_fallback is true, but vocab has no "<0x00>"]],
    tokenizer { kind = '"type": "BPE", "byte_fallback": true' } },
  { "a vocabulary that is an array", "model.vocab: must be an object",
    tokenizer { vocab = '["a", "b"]' } },
  { "an empty vocabulary", "model.vocab: has no entries",
    tokenizer { vocab = "{}" } },
  { "an id that is text",
    [[model.vocab: the id of "a" must be a whole number]],
    tokenizer { vocab = '{ "a": "0" }' } },
  { "a negative id", [[model.vocab: the id of "a" is -1, must be from 0 to ]],
    tokenizer { vocab = '{ "a": -1 }' } },
  { "a huge id", [[model.vocab: the id of "b" is 2147483648, must be from 0]],
    tokenizer { vocab = '{ "a": 0, "b": 2147483648 }' } },
  { "one id twice", [[model.vocab: id 0 belongs to both "]],
    tokenizer { vocab = '{ "a": 0, "b": 0, "ab": 2 }' } },
  { "one token twice", "line 3, column ",
    tokenizer { vocab = '{ "a": 0, "a": 1 }' } },
  { "no merges", "model.merges: must be an array", tokenizer { merges = "" } },
  { "a merge of an unknown token",
    [[model.merges: [0] needs "c", which is not in model.vocab]],
    merges '[["a", "c"]]' },
  { "a merge into an unknown token",
    [[model.merges: [1] needs "ba", which is not in model.vocab]],
    merges '["a b", "b a"]' },
  { "a merge of one", [=[model.merges: [0] must be ["a", "b"] or "a b"]=],
    merges '[["a"]]' },
  { "a merge of three", [=[model.merges: [0] must be ["a", "b"] or "a b"]=],
    merges '["a b ab"]' },
  { "an added token without text",
    [=[added_tokens[0]: "content" must be a string]=],
    tokenizer { added = '[{ "id": 3 }]' } },
  { "an added token of an id that is taken",
    [=[added_tokens[0]: id 0 of "<s>" is taken by "a"]=],
    tokenizer { added = '[{ "id": 0, "content": "<s>" }]' } },
  { "an added token far away",
    [=[added_tokens[0]: the id of "<s>" is 1000000000, must be from 0]=],
    tokenizer { added = '[{ "id": 1000000000, "content": "<s>" }]' } },
  { "an unknown normalizer",
    [[normalizer: type "Lowercase" is not supported, only ]],
    tokenizer { normalizer = '{ "type": "Lowercase" }' } },
  { "a normalizer with a regex",
    "normalizer: Replace with a Regex is not supported",
    tokenizer { normalizer = [[{ "type": "Replace",
      "pattern": { "Regex": "x+" }, "content": "y" }]] } },
  { "an unknown pre-tokenizer",
    [[pre_tokenizer: type "Whitespace" is not supported, only ]],
    tokenizer { pre_tokenizer = '{ "type": "Whitespace" }' } },
  { "a bad regex", "pre_tokenizer: bad regex: ",
    tokenizer { pre_tokenizer = [[{ "type": "Split",
      "pattern": { "Regex": "(x" }, "behavior": "Isolated" }]] } },
  { "an unknown behaviour",
    [[pre_tokenizer: behavior "Sideways" is not supported]],
    tokenizer { pre_tokenizer = [[{ "type": "Split",
      "pattern": { "String": "x" }, "behavior": "Sideways" }]] } },
  { "an empty pattern", "pre_tokenizer.pattern: is empty",
    tokenizer { pre_tokenizer = [[{ "type": "Split",
      "pattern": { "String": "" }, "behavior": "Isolated" }]] } },
  { "a mark of two characters",
    [[pre_tokenizer: "replacement" must be one character]],
    tokenizer { pre_tokenizer = [[{ "type": "Metaspace",
      "replacement": "__" }]] } },
  { "bytes before the last step",
    [=[pre_tokenizer.pretokenizers[1]: "Digits" after ByteLevel: ByteLevel ]=]
      .. "must be last",
    tokenizer { pre_tokenizer = [[{ "type": "Sequence", "pretokenizers": [
      { "type": "ByteLevel" }, { "type": "Digits" }] }]] } },
  { "a template of unknown tokens",
    [[post_processor: special_tokens has no ids for "<s>"]],
    tokenizer { post_processor = [[{ "type": "TemplateProcessing", "single": [
      { "SpecialToken": { "id": "<s>", "type_id": 0 } },
      { "Sequence": { "id": "A", "type_id": 0 } }], "special_tokens": {} }]] }
  },
  { "an unknown decoder",
    [[decoder: type "WordPiece" is not supported, only ]],
    tokenizer { decoder = '{ "type": "WordPiece" }' } },
  { "more ids than the model",
    "FOLDER/tokenizer.json has ids up to 257, the model's vocabulary has 257; "
      .. "set model.vocab to at least 258",
    tokenizer { added = '[{ "id": 257, "content": "<s>" }]' }, prepare = 0 },
}

return bad_files
