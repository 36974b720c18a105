#!/usr/bin/env python3
"""Times the attention family against PyTorch, by turns: kernels, and training with all that a step takes.

    unchain vocabulary DATA/text/bible.txt --size 4096 -o DATA/vocabulary          (texts: tools/get_text DATA/text)
    python3 bench/peers/family.py --name family --unchain build/release/unchain --data DATA \\
        --peers FOLDER_OF_ATTENTION_PY_AND_TRAINING_PY --hf-python VENV/bin/python

Rows, each in f32 and bf16 (bf16 autocast on the side of PyTorch in training):

  forward N, both N       differential attention of 8 heads, width 64, values 128, on N tokens, without and with backward;
                          PyTorch in the fastest of its forms (two or four calls of scaled_dot_product_attention, or maps
                          in memory), chosen before the rounds
  train softmax, diff_v1  tokens a second of training a 7.4 M parameter model (bench/peers/training.json: steps of 8 x 512
                          and of 2 x 2048 tokens, optimizer included); Llama and DiffLlama with sdpa
  members                 the same model with other members of the family, against unchain's own softmax: the ratio tells
                          how many times slower they are

Training rows keep the peak of resident memory too, in the results file: peak_memory_mb, the whole process.
Speeds of attention are tokens a second too: N / time. Of each run the best of its repeats counts, as the peers' scripts
tell it. How rounds are made and what becomes of failures: run.py beside this file, whose parts are used here.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import run

NUMBER = r"([0-9.]+)"
MEMBERS = ["softmax", "diff_v1", "diff_v2", "shared_diff", "lowrank_diff", "fixed_diff"]


WITH_PEAK = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(f"peak {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss} KiB")
sys.exit(status)
"""


def with_peak(command):
    """The command, which then says on its last line how much memory it held at most."""
    return [sys.executable, "-c", WITH_PEAK, *command]


class Contestant:
    """A command with settings to choose from; `read` turns what it prints into tokens a second."""

    peak_mb = None  # the least that a run needed, where the command tells

    def __init__(self, name, command, read, choices=({},), timeout_s=600):
        self.name, self.make, self.read, self.choices, self.timeout_s = name, command, read, list(choices), timeout_s
        self.settings, self.tried = self.choices[0], []
        self.command = command(**self.settings)

    def tune(self):
        if len(self.choices) < 2:
            return
        for settings in self.choices:
            self.command = self.make(**settings)
            self.tried.append({"settings": settings, "tokens_per_s": self.run()})
        self.settings = run.best(self.tried)
        self.command = self.make(**self.settings)

    def run(self):
        text = run.output_of(self.command, self.timeout_s)
        for peak in re.findall("peak ([0-9]+) KiB", text):
            self.peak_mb = min(self.peak_mb or float("inf"), int(peak) * 1024 / 1e6)
        return run.sound(self.read(text))


def our_kernel(options, dtype, length, backward):
    command = [Path(options.unchain).parent / "bench" / "family_bench", "--members", "diff_v1", "--lengths", length,
               "--dtype", dtype, "--repeats", options.repeats, "--threads", options.threads, "--json", "-"]  # fmt: skip
    wanted = "diff_v1 both" if backward else "diff_v1 forward"
    return Contestant(
        "unchain",
        lambda: command,
        lambda text: [length / (r["best_ms"] / 1e3) for r in json.loads(text)["rows"] if r["name"] == wanted],
    )


def torch_kernel(options, dtype, length, backward):
    pattern = ("with backward " if backward else "forward ") + NUMBER + " ms"
    return Contestant(
        "PyTorch",
        lambda form: [options.hf_python, Path(options.peers) / "attention.py", dtype, f"N={length}", form],
        lambda text: [length / (float(ms) / 1e3) for ms in re.findall(pattern, text)],
        [{"form": form} for form in ("two", "four", *(["maps"] if length <= 2048 else []))],
    )


def our_training(options, name, member, dtype, context):
    folder = tempfile.mkdtemp(prefix="family-", dir=options.scratch)
    config, program = run.HERE / "training.json", Path(options.unchain).resolve()
    settings = f"--set model.attention.preset={member} --set train.context={context} --dtype {dtype}"
    settings += f" --set train.micro_batch={4096 // context} --threads {options.threads}"
    line = f"cd '{options.data}' && rm -rf '{folder}/run' && '{program}' train '{config}' -o '{folder}/run' {settings}"

    def read(_):
        steps = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
        return [max(step["tokens_per_s"] for step in steps[1:])]

    return Contestant(name, lambda: with_peak(["sh", "-c", line]), read)


def torch_training(options, name, dtype, context):
    script = Path(options.peers) / "training.py"
    return Contestant(
        "transformers",
        lambda attention: with_peak([options.hf_python, script, name, attention, dtype, str(context)]),
        lambda text: [float(speed) for speed in re.findall(NUMBER + " tokens/s", text)],
        [{"attention": "sdpa"}],
    )


def rows_of(options):
    """Name and contestants of each row, the judged one first."""
    for dtype in options.dtypes:
        for length in options.lengths:
            for what, backward in (("forward", False), ("both", True)):
                row = (options, dtype, length, backward)
                yield f"{what} {length} {dtype}", [our_kernel(*row), torch_kernel(*row)]
        for context in (512, 2048):
            for member, peer in (("softmax", "Llama"), ("diff_v1", "DiffLlama")):
                ours = our_training(options, "unchain", member, dtype, context)
                yield f"train {member} {context} {dtype}", [ours, torch_training(options, peer, dtype, context)]
        yield f"members {dtype}", [our_training(options, member, member, dtype, 512) for member in MEMBERS]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="name of the results file")
    parser.add_argument("--unchain", default="build/release/unchain")
    parser.add_argument("--data", required=True, help="folder with text/bible.txt and vocabulary/ of 4096 pieces")
    parser.add_argument("--peers", required=True, help="folder of attention.py and training.py")
    parser.add_argument("--hf-python", default=sys.executable, help="Python with torch and transformers")
    parser.add_argument("--dtypes", nargs="+", choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 2048, 4096])
    parser.add_argument("--rows", nargs="+", default=[], help="only rows whose names hold one of these words")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of our kernels in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--results", default=str(run.ROOT / "bench" / "results"), help="folder of the results file")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as options.scratch:
        rows = [
            run.measure(name, everyone, options.rounds)
            for name, everyone in rows_of(options)
            if not options.rows or any(word in name for word in options.rows)
        ]
        del options.scratch
    return run.publish(options, rows)


if __name__ == "__main__":
    sys.exit(main())
