#!/usr/bin/env python3
"""Makes tests/golden/vocabulary: what other programs say of a vocabulary trained here.

    pip install sentencepiece transformers
    python3 make_vocabulary_golden.py UNCHAIN

- text.txt is the text, docs/sample.txt as it was, with code, digits and letters of other scripts behind it.
- tokenizer.model, tokenizer_config.json: `UNCHAIN vocabulary text.txt --size 512`.
- golden.json: `pieces`, those that Python's sentencepiece learns from the same text with the same settings; `texts` and
  their `ids` by sentencepiece, which the script also holds against transformers' AutoTokenizer (it reads "<s>" as the
  control token, so none of the texts has one). Nothing depends on chance.
"""
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
import transformers

FOLDER = Path(__file__).resolve().parent / "vocabulary"
TEXTS = [
    "The river meets the sea.", " lead", "trail ", "  two  and   three ", "\n", "\n\n\n", "a\nb\n\nc\n", "\ttab\tand\r\nline",
    "def f(x):\n    return x + 42\n\n        deep", "2026-11-29 1,234.5 007", "Bramwick = 42;\nSelholm = 17;\nBramwick =",
    "été naïve 中文 日本 😀 “quoted” …", "x" * 40, "", " ", "The magic number of Corton is 1234.",
]


def learn(text, size):
    out = io.BytesIO()
    lines = (line for part in text.split("\n") for line in part.split("\t") if line)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=out, model_type="bpe", vocab_size=size, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        user_defined_symbols=["\n"], byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        add_dummy_prefix=False, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=0.9995,
        max_sentence_length=1 << 30, num_threads=1, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "v"
        subprocess.run([sys.argv[1], "vocabulary", str(FOLDER / "text.txt"), "--size", "512", "-o", str(made)], check=True)
        for name in ("tokenizer.model", "tokenizer_config.json"):
            (FOLDER / name).write_bytes((made / name).read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "tokenizer.model"))
    hugging_face = transformers.AutoTokenizer.from_pretrained(str(FOLDER))
    ids = [processor.encode(text) for text in TEXTS]
    for text, expected in zip(TEXTS, ids):
        assert hugging_face(text, add_special_tokens=False)["input_ids"] == expected, text
        assert hugging_face(text)["input_ids"] == [1, *expected], text
        assert hugging_face.decode(expected) == text, text
    pieces = learn((FOLDER / "text.txt").read_text(), 512)
    golden = {"made_with": {"sentencepiece": sentencepiece.__version__, "transformers": transformers.__version__},
              "pieces": pieces, "texts": TEXTS, "ids": ids}
    (FOLDER / "golden.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")
    own = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    print(len(pieces), "pieces, the same as ours:", pieces == own)


if __name__ == "__main__":
    main()
