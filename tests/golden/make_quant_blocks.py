"""Writes quant_blocks.json: blocks of every quantised type that unchain decodes, with their values as the `gguf` package
computes them, and q8_0 blocks as it encodes them.

    python make_quant_blocks.py        (needs numpy and gguf; versions go into the file)
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

SEED = 7
BLOCKS = 3
# type: (bytes of a block, positions of the f16 scales in it)
TYPES = {"q4_1": (20, (0, 2)), "q5_0": (22, (0,)), "q8_0": (34, (0,)), "q4_k": (144, (0, 2)), "q6_k": (210, (208,))}


def main():
    rng = np.random.default_rng(SEED)
    decoded = {}
    for name, (size, scales) in TYPES.items():
        raw = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for block in range(BLOCKS):
            for at in scales:
                # Ordinary, negative, and (last block) so small that the f16 is subnormal.
                value = np.float16(rng.normal() * (0.02 if block < BLOCKS - 1 else 2e-6))
                raw[block, at : at + 2] = np.frombuffer(value.tobytes(), dtype=np.uint8)
        values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name.upper()]).astype(np.float32)
        decoded[name] = {"bytes": raw.tobytes().hex(), "values": [float(x) for x in values.reshape(-1)]}
    x = (rng.normal(size=(BLOCKS + 1, 32)) * np.array([[1.0], [300.0], [1e-4], [0.0]])).astype(np.float32)
    x[0, :4] = [127.0, 0.5, -0.5, 2.5]  # scale 1: halves round away from zero
    raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0)
    out = {
        "made_by": "make_quant_blocks.py",
        "seed": SEED,
        "versions": {p: importlib.metadata.version(p) for p in ("gguf", "numpy")},
        "decoded": decoded,
        "encoded_q8_0": {"values": [float(v) for v in x.reshape(-1)], "bytes": raw.tobytes().hex()},
    }
    path = pathlib.Path(__file__).with_name("quant_blocks.json")
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
