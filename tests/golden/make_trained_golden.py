#!/usr/bin/env python3
"""Trains a tiny differential model with unchain and stores what the transformers library makes of the folder.

    python3 make_trained_golden.py UNCHAIN

UNCHAIN is the program. tiny/diffllama_trained holds what `unchain train` wrote, which transformers' DiffLlamaForCausalLM
must read without a missing, unused or misshapen tensor, and golden.json as make_diffllama.py writes it.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from make_diffllama import OUT, golden_of

VOCABULARY = OUT.parent / "vocabulary"
CONFIG = {
    "model": {"hidden_size": 20, "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 6, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
              "rope_theta": 1000.0, "initializer_range": 0.3, "attention": {"preset": "diff_v1"}},
    "data": {"train": str(VOCABULARY / "text.txt"), "vocabulary": str(VOCABULARY)},
    "train": {"tokens": 60 * 256, "context": 128, "batch_tokens": 256, "micro_batch": 4, "dtype": "f32",
              "learning_rate": 0.01, "seed": 0},
}  # fmt: skip


def main():
    folder = OUT / "diffllama_trained"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tempfile.TemporaryDirectory() as work:
        config = Path(work) / "config.json"
        config.write_text(json.dumps(CONFIG))
        subprocess.run([sys.argv[1], "train", config, "-o", Path(work) / "run", "--threads", "1"], check=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(Path(work) / "run" / "model" / name, folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    problems = {key: value for key, value in info.items() if value}
    assert type(model).__name__ == "DiffLlamaForCausalLM" and not problems, problems
    (folder / "golden.json").write_text(json.dumps(golden_of(model, 310), indent=1) + "\n")


if __name__ == "__main__":
    main()
