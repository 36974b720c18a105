#!/usr/bin/env python3
"""Compares a Hugging Face folder written by `unchain export` with the GGUF file it came from, by transformers.

    unchain export MODEL.gguf -o FOLDER --type f32
    python3 check_hf_reads_ours.py FOLDER MODEL.gguf [--tolerance 1e-4] [--positions 0 20 500]

transformers must read the folder without a missing or an unexpected tensor, and both models must give the same logits
on 512 token ids drawn at random, up to the tolerance, by the largest logit. A folder in F16 or BF16 needs a wider
tolerance (5e-3, 5e-2): the weights themselves were rounded. If the folder holds a tokenizer, it must give the ids of
the GGUF file's. Exit status 0 if all agree. Needs torch, transformers, gguf; run by hand, as it needs real weights.
"""

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "The cat's 1234567 lives:\n\n\tdon't stop, caf\u00e9 \u2014 \u4f60\u597d \U0001f469\u200d\U0001f680  "


def read(folder, **more):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more
    )
    return model.eval(), {key: value for key, value in info.items() if value}


def same_tokens(folder, gguf):
    """True, False, or None if the folder has no tokenizer."""
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model")):
        return None
    ours = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
    theirs = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)(TEXT)["input_ids"]
    return ours == theirs


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 20, 500])
    options = parser.parse_args()

    ours, problems = read(options.folder)
    theirs, _ = read(options.gguf.parent, gguf_file=options.gguf.name)
    if (
        theirs.config.model_type == "gemma3_text"
    ):  # its GGUF reader leaves the class's 256 here; the file means the head width
        theirs.config.query_pre_attn_scalar = theirs.config.head_dim
        for layer in theirs.model.layers:
            layer.self_attn.scaling = theirs.config.head_dim**-0.5
    ids = torch.randint(0, ours.config.vocab_size, (1, 512), generator=torch.Generator().manual_seed(1))
    a, b = ours(ids, use_cache=False).logits[0], theirs(ids, use_cache=False).logits[0]
    largest = b.abs().max().item()
    good = not problems
    print(f"loading problems: {problems or 'none'}")
    for position in options.positions:
        error = (a[position] - b[position]).abs().max().item() / largest
        good &= error <= options.tolerance
        same = "same" if a[position].argmax() == b[position].argmax() else "differs"
        print(f"position {position}: differs by {error:.2e} of the largest logit {largest:.3f}, best token {same}")
    tokens = same_tokens(options.folder, options.gguf)
    good &= tokens is not False
    print(f"token ids: {'no tokenizer in the folder' if tokens is None else 'same' if tokens else 'differ'}")
    print("agree" if good else "DISAGREE")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
