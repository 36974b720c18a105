#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/: small vocabularies and the ids that Hugging Face tokenizers and SentencePiece give to
texts that have tripped tokenizers. Needs the packages tokenizers, sentencepiece and protobuf; versions are in
golden.json. The vocabularies are trained on docs/sample.txt and on the texts themselves."""
import io
import json
import pathlib
import random

import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as proto
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizer"
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BLANK = "\u2581"

TEXTS = {
    "empty": "",
    "plain": "The capital of France is Paris, and the 2 rivers meet.",
    "digits": "1234567",
    "apostrophes": "don't DON'T I'LL we've they'd it\u2019s 'S 'T",
    "newlines": "a\n\n\nword\n\tx\r\n\r\n  y",
    "tabs": "\t\t\tword \t word\n\n\t\tword",
    "trailing": "trailing spaces   ",
    "leading": "   leading spaces",
    "blanks_only": "     ",
    "precomposed": "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m",
    "combining": "cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \u2764\ufe0f \U0001f3f3\ufe0f\u200d\U0001f308\U0001f44d\U0001f3fd!",
    "separators": "a\u2028b\u2029c\u0085d \u0085 e\u00a0f\u3000g\u180eh \u180e i\u200bj",
    "scripts": "\u041f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d\u4e16\u754c \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \u03b1\u03b2\u03b3 \ud55c\uad6d\uc5b4 mixed\u4f60abc",
    "fractions": "4 \u00bd \u00b2\u00b3 \u0661\u0662 \u2167 \u4e00",
    "control_names": "the <|im_start|> token, <|endoftext|> and </s> in prose <s> <unk> <|im_start",
    "bos_first": "<|im_start|>Hello",
    "nul": "a\u0000b\u0000\u0000c",
    "punctuation": "x=[1,2]; f(x)->y!!! ... \u2014 \u201cq\u201d\r\n//",
    "code": "def f(a):\n    return a  # x\n\n\n\n\tif b:\n",
    "long_s": "wa\u017f'\u017f 'ſ 'LL 'Re",
}
PATTERNS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def byte_level(pattern=None, digits=False):
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_])
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_]) if digits else bytes_


def without_added(tokenizer):
    """The same tokenizer, for which names of control tokens are text."""
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["special"]]
    return Tokenizer.from_str(json.dumps(spec))


def ids(tokenizer):
    """Ids of every text; those of literal texts, and where they differ, those with control tokens read."""
    literal = without_added(tokenizer)
    out = {}
    for name, text in TEXTS.items():
        out[name] = {"ids": literal.encode(text, add_special_tokens=False).ids}
        parsed = tokenizer.encode(text, add_special_tokens=False).ids
        if parsed != out[name]["ids"]:
            out[name]["special"] = parsed
    return out


def save(tokenizer, name, pairs):
    spec = json.loads(tokenizer.to_str())
    if not pairs:
        spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
    (OUT / name).write_text(json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf8")


def make_byte_level(corpus, golden):
    tokenizer = Tokenizer(models.BPE())
    # Trained without cutting digits, so that there are merges of digits for the patterns to forbid.
    tokenizer.pre_tokenizer = byte_level()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=CONTROLS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    numbers = ["1234567 12 123 234 345 456 567 4567 is 1234 and 12345 of 123456"] * 9
    tokenizer.train_from_iterator(corpus + numbers, trainer)
    tokenizer.pre_tokenizer = byte_level(digits=True)
    save(tokenizer, "byte_level.json", pairs=False)
    golden["byte_level.json"] = {"smollm": ids(tokenizer)}
    for name, pre in [("gpt2", byte_level())] + [(n, byte_level(p)) for n, p in PATTERNS.items()]:
        tokenizer.pre_tokenizer = pre
        golden["byte_level.json"][name] = ids(tokenizer)


def train_sentencepiece(corpus, name, prefix, user_defined):
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=stream, vocab_size=700, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", add_dummy_prefix=prefix, remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, user_defined_symbols=user_defined, num_threads=1, minloglevel=2)
    model = proto.ModelProto.FromString(stream.getvalue())
    model.trainer_spec.ClearField("input")
    (OUT / name).write_bytes(model.SerializeToString())
    return model


def to_hugging_face(model, prefix):
    """The tokenizer.json of a SentencePiece model: merges are all the ways to make a piece, the best piece first."""
    pieces = [p.piece for p in model.pieces]
    vocab = {p: i for i, p in enumerate(pieces)}
    normal = {p.piece for p in model.pieces if p.type == p.NORMAL}
    merges = []
    for p in model.pieces:
        if p.type == p.NORMAL:
            splits = [(p.piece[:k], p.piece[k:]) for k in range(1, len(p.piece))]
            splits = [s for s in splits if s[0] in normal and s[1] in normal]
            merges += [(-p.score, vocab[s[0]], vocab[s[1]], s) for s in splits]
    merges = [m[3] for m in sorted(merges)]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    parts = [normalizers.Prepend(BLANK)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence(parts + [normalizers.Replace(" ", BLANK)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken(p.piece, normalized=False) for p in model.pieces if p.type == p.USER_DEFINED])
    return tokenizer


def make_sentencepiece(corpus, golden):
    for stem, prefix, user_defined in [("llama_like", True, []), ("gemma_like", False, ["\n\n", "\n\n\n", "<tool>"])]:
        model = train_sentencepiece(corpus, stem + ".model", prefix, user_defined)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        golden[stem + ".model"] = {"": {n: {"ids": processor.encode(t)} for n, t in TEXTS.items()}}
        tokenizer = to_hugging_face(model, prefix)
        save(tokenizer, stem + ".json", pairs=True)
        golden[stem + ".json"] = {"": ids(tokenizer)}


def main():
    random.seed(1)
    OUT.mkdir(exist_ok=True)
    sample = (HERE.parent.parent / "docs" / "sample.txt").read_text(encoding="utf8")
    corpus = [line for line in sample.splitlines() if line] + [TEXTS[n] for n in ("plain", "apostrophes", "code")] * 3
    golden = {}
    make_byte_level(corpus, golden)
    make_sentencepiece([line for c in corpus for line in c.split("\n") if line], golden)
    about = {"made_by": "tests/golden/make_tokenizer_golden.py", "tokenizers": tokenizers.__version__,
             "sentencepiece": sentencepiece.__version__, "texts": TEXTS, "vocabularies": golden}
    (OUT / "golden.json").write_text(json.dumps(about, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
