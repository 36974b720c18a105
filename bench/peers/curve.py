#!/usr/bin/env python3
"""Trains with transformers and PyTorch what `unchain train` trained, and sets the two curves side by side.

    unchain train bench/peers/curve.json -o ours
    build/release/bench/curve_data bench/peers/curve.json data
    curve.py data ours/metrics.jsonl -o docs/results/curve_softmax.json

The same first weights, the same tokens in every step, the same rates and AdamW, in f32; the validation loss after the
same steps. Prints a line for each of these, and keeps what there is up to it; exit status 1 if the last two differ by
more than 0.02 nats. Needs torch and transformers.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy
import torch
import transformers


def losses(model, rows):
    """Mean negative log-likelihood of every token of [n, context + 1] but the first of each row, in nats."""
    logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def valid_loss(model, rows, at_once=8):
    with torch.inference_mode():
        parts = [losses(model, part).item() * len(part) for part in rows.split(at_once)]
    return sum(parts) / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("metrics", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = json.loads((options.data / "config.json").read_text())
    train = config["train"]
    width = train["context"] + 1

    def read(name):
        return torch.from_numpy(numpy.fromfile(options.data / name, dtype=numpy.int32).astype(numpy.int64)).view(-1, width)

    steps = read("rows.i32").split(train["batch_tokens"] // train["context"])
    held_out = read("valid.i32")
    model = transformers.AutoModelForCausalLM.from_pretrained(options.data / "model", dtype=torch.float32)
    model.train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": train["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        betas=tuple(train["betas"]),
        eps=1e-8,
    )
    ours = [json.loads(line) for line in options.metrics.read_text().splitlines()]
    curve = []
    result = {
        "model": config["model"],
        "train": train,
        "parameters": sum(p.numel() for p in model.parameters()),
        "peer": f"{type(model).__name__}, transformers {transformers.__version__}, torch {torch.__version__}",
        "curve": curve,
    }
    for step, (rows, rate, own) in enumerate(zip(steps, config["learning_rates"], ours, strict=True), 1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        total = 0.0
        for part in rows.split(train["micro_batch"]):
            loss = losses(model, part) * (len(part) / len(rows))
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train["clip"])
        optimizer.step()
        point = {"step": step, "tokens": own["tokens"], "loss_nats": own["loss_nats"], "peer_loss_nats": total}
        curve.append(point)
        if "valid_loss_nats" in own:
            model.eval()
            point |= {"valid_loss_nats": own["valid_loss_nats"], "peer_valid_loss_nats": valid_loss(model, held_out)}
            model.train()
            print(
                f"step {step}: validation {point['valid_loss_nats']:.4f} nats, peer {point['peer_valid_loss_nats']:.4f}; "
                f"training {own['loss_nats']:.4f}, peer {total:.4f}",
                flush=True,
            )
            result["difference_nats"] = abs(point["valid_loss_nats"] - point["peer_valid_loss_nats"])
            unfinished = options.out.with_suffix(".tmp")
            unfinished.write_text(json.dumps(result, indent=1) + "\n")
            unfinished.replace(options.out)
    print(f"difference at the end: {result['difference_nats']:.5f} nats")
    return result["difference_nats"] > 0.02


if __name__ == "__main__":
    sys.exit(main())
