"""Writes the tokenizers and the expected ids of this folder with Hugging Face `tokenizers`.

    python make_tokenizers.py        (pip install tokenizers; written with 0.23.3)

Each NAME.json is a tokenizer.json; NAME.cases.json is a list of
    {"text": str, "ids": [...], "special": [...], "decoded": str, "skipped": str}
ids: encode(add_special_tokens=False); special: with them, where it differs; decoded, skipped:
decode(special) with special tokens kept and left out, where they differ from text and decoded. The training text is corpus.txt. The trainer breaks ties
as its hash tables fall, so another run may give other tokenizers, of the same kind.
"""

import json
import os

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

HERE = os.path.dirname(os.path.abspath(__file__))
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus():
    with open(os.path.join(HERE, "corpus.txt"), encoding="utf-8", newline="") as f:
        return f.read().split("\n")


def texts():
    spaces = "\u00a0 \u1680 \u180e \u2000 \u2009 \u2028 \u2029 \u202f \u205f \u3000 \u0085 \u200b \ufeff"
    odd = [
        "",
        " ",
        "  ",
        "a",
        " a",
        "  a  b   c    ",
        "\n\n\n",
        "a\r\nb\r\n\r\nc\td\t\te",
        "x\u180e\u180ey z\u180e1",
        "".join("w%sw%s%s" % (c, c, c) for c in spaces.split(" ")),
        spaces,
        "e\u0301 = \u00e9, A\u030a = \u00c5, \u212b, \u1100\u1161\u11a8 = \uac01, \u0958 q\u0323\u0307 q\u0307\u0323",
        "o\u0302\u0301 \ufb01 \u2460 \u00bd \u2167 \u24b6",
        "I'M don't DON'T we'Ll they'\u017f it'S 'tis ''s",
        "hello_world __init__ snake_case CamelCaseWord HTTPServer",
        "1234567 12 3.14 1e-5 \u0663\u0664\u0665 \u0967\u0968\u0969 \uff11\uff12\uff13 \u4e00\u4e8c",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd\u2764\ufe0f",
        "unseen: \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u10d2\u10d0\u10db\u10d0\u10e0 \u05e9\u05dc\u05d5\u05dd \u03b3\u03b5\u03b9\u03ac \U00012000 \U0010ffff",
        "a\x00b\x01\x7f\x1b[0m",
        "\u2581 \u2581\u2581x \u2581",
        "<|endoftext|>",
        "one<|endoftext|>two<|im_start|>user\nhi<|im_end|>\n<|endoftext|",
        "  <|im_start|>  x  <|im_end|>  <|im_start|><|im_end|>",
        "<s>a</s> <unk> <s> b",
        "aMASK MASK MASKb \u00e9MASK MASK\u0301 MASK. (MASK)",
        "caf\u00e9tok cafe\u0301tok",
        "<0x41> <0xE2>",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "thethethethethethethethethethethethethethethethethetokentokentokentokentokentokentokentokenstokens",
        "-" * 130 + "=" * 70 + " " * 90 + "!",
        "Hello world!",
        "if (x) {\n\treturn a[i] * 2;   // twice\n}\n\n\n",
    ]
    return odd


def prose():
    lines = corpus()
    return lines + ["\n".join(lines[16:30]) + "\n", " ".join(lines[:6])]


def write(name, tok, extra=()):
    tok.save(os.path.join(HERE, name + ".json"), pretty=False)
    tok = Tokenizer.from_file(os.path.join(HERE, name + ".json"))
    cases = []
    for text in list(extra) + texts():
        ids = tok.encode(text, add_special_tokens=False).ids
        special = tok.encode(text).ids
        decoded = tok.decode(special, skip_special_tokens=False)
        skipped = tok.decode(special, skip_special_tokens=True)
        case = {"text": text, "ids": ids}
        if special != ids:
            case["special"] = special
        if decoded != text:
            case["decoded"] = decoded
        if skipped != decoded:
            case["skipped"] = skipped
        cases.append(case)
    with open(os.path.join(HERE, name + ".cases.json"), "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


def edit(name, change):
    """Changes a saved tokenizer.json as text that the library itself would not write."""
    path = os.path.join(HERE, name + ".json")
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    change(data)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))


def train(tok, size, **kw):
    tok.train_from_iterator(corpus() * 2, trainers.BpeTrainer(vocab_size=size, show_progress=False, **kw))


def byte_bpe(pre, size, normalizer=None):
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    train(tok, size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return tok


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def qwen():
    tok = byte_bpe(pre_tokenizers.Sequence([split(QWEN), bytes_only()]), 1500, normalizers.NFC())
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken("cafétok", normalized=True), AddedToken("<|im_end|>x", normalized=False)])
    write("qwen", tok, ["<|im_end|>xy"] + prose())


def gpt2():
    tok = byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), 700)
    tok.post_processor = processors.ByteLevel()
    tok.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    tok.add_tokens(
        [
            AddedToken("MASK", single_word=True, normalized=False),
            AddedToken("<|im_start|>", lstrip=True, normalized=False),
            AddedToken("<|im_end|>", rstrip=True, normalized=True),
            AddedToken("    ", normalized=True),
        ]
    )
    write("gpt2", tok, ["a <|im_end|>           b", "<|im_end|>     <|im_end|>    ", "x    <|im_start|>    ", "MASK\u200d \u24b6MASK MASK\u2460"])
    # The older spelling of merges.
    edit("gpt2", lambda d: d["model"].update(merges=[" ".join(m) for m in d["model"]["merges"]]))


def gptoss():
    tok = byte_bpe(pre_tokenizers.Sequence([split(O200K), bytes_only()]), 700)
    tok.add_special_tokens(["<|endoftext|>"])
    tok.save(os.path.join(HERE, "gptoss.json"))
    # Whole pieces that no merge reaches: seen only with ignore_merges.
    edit("gptoss", lambda d: d["model"]["vocab"].update({"ĠzebraX": 1000, "Hello": 1001}))
    edit("gptoss", lambda d: d["model"].update(ignore_merges=True))
    tok = Tokenizer.from_file(os.path.join(HERE, "gptoss.json"))
    write("gptoss", tok, ["a zebraX Hello zebraXs"] + prose()[20:])


def deepseek():
    pre = pre_tokenizers.Sequence(
        [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK_WORDS), bytes_only()]
    )
    tok = byte_bpe(pre, 700)
    tok.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    tok.post_processor = processors.TemplateProcessing(
        single="<｜begin▁of▁sentence｜> $A",
        pair="<｜begin▁of▁sentence｜> $A $B:1",
        special_tokens=[("<｜begin▁of▁sentence｜>", tok.token_to_id("<｜begin▁of▁sentence｜>"))],
    )
    write("deepseek", tok)


def behaviors():
    """Every behaviour of Split, Digits, and the two ways to invert."""
    for i, behavior in enumerate(
        ["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]
    ):
        pre = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=i % 2 == 0),
                split(r"\s|[,.]", behavior, False),
                split(r"\w", "contiguous" if i % 2 else "isolated", True),
                pre_tokenizers.Split("the", behavior, i == 3),
                pre_tokenizers.ByteLevel(add_prefix_space=i == 1, use_regex=False),
            ]
        )
        tok = byte_bpe(pre, 300, normalizers.NFKC() if i % 2 else normalizers.NFD())
        write("split_" + behavior, tok)


def mixtral(name, metaspace):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace is None:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        pre = pre_tokenizers.Metaspace(prepend_scheme="always")
    else:
        pre = pre_tokenizers.Metaspace(**metaspace)
    tok.pre_tokenizer = pre
    fallback = ["<0x%02X>" % b for b in range(256)]
    train(tok, 1000, special_tokens=["<unk>", "<s>", "</s>"] + fallback, limit_alphabet=300)
    if metaspace is None:
        tok.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        tok.decoder = decoders.Sequence([decoders.Metaspace(**metaspace), decoders.ByteFallback(), decoders.Fuse()])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    tok.save(os.path.join(HERE, name + ".json"))

    def only_real(d):  # the trainer wants the bytes as special tokens; published files do not
        d["added_tokens"] = [t for t in d["added_tokens"] if not t["content"].startswith("<0x")]
        if metaspace is None:
            d["pre_tokenizer"] = None

    edit(name, only_real)
    write(name, Tokenizer.from_file(os.path.join(HERE, name + ".json")), prose() if metaspace is None else [])


def mixtral_hello():
    """Mixtral's published ids of "Hello world!" (1 22557 1526 28808) in a vocabulary with holes:
    the ids of the pieces between are made up, in the order in which ranks must come."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab.update(("<0x%02X>" % b, 3 + b) for b in range(256))
    pieces = {"er": 263, "el": 309, "wo": 500, "or": 272, "ll": 400, "▁w": 401, "ld": 402, "▁wor": 403,
              "ello": 404, "▁H": 405, "lo": 406, "▁world": 1526, "▁Hello": 22557,
              "▁": 28705, "e": 28706, "l": 28707, "o": 28708, "r": 28709, "d": 28710, "w": 28711,
              "H": 28712, "!": 28808}  # fmt: skip
    vocab.update(pieces)
    # Rank is the id of the result; of the ways to cut it, first the longer left piece.
    merges = [
        [p[:k], p[k:]]
        for p in sorted(pieces, key=pieces.get)
        for k in range(len(p) - 1, 0, -1)
        if p[:k] in pieces and p[k:] in pieces
    ]
    with open(os.path.join(HERE, "mixtral.json"), encoding="utf-8") as f:
        data = json.load(f)
    data["model"].update(vocab=vocab, merges=merges)
    path = os.path.join(HERE, "mixtral_hello.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
    assert Tokenizer.from_file(path).encode("Hello world!").ids == [1, 22557, 1526, 28808]


def main():
    qwen()
    gpt2()
    gptoss()
    deepseek()
    behaviors()
    mixtral("mixtral", None)
    mixtral("metaspace_always", {"prepend_scheme": "always", "split": True})
    mixtral("metaspace_first", {"prepend_scheme": "first", "split": False})
    mixtral("metaspace_never", {"prepend_scheme": "never", "split": False})
    mixtral_hello()


main()
