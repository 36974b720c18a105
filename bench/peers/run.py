#!/usr/bin/env python3
"""Times unchain against llama.cpp and transformers, by turns, each at its best settings.

Shared machines wander by tens of percent within minutes, so a lone figure means little. Here every row is measured in
rounds A B C A B C ..., each contestant in its own process, and what counts is the ratio within a round: its median over
the rounds, with the smallest and the largest beside it.

    python3 bench/peers/run.py --name smollm2 --unchain build/release/unchain --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --llama LLAMA_BIN_FOLDER --gguf-f32 smollm2-f32.gguf --gguf-bf16 smollm2-bf16.gguf \\
        --hf-python VENV/bin/python --hf SMOLLM2_HF_FOLDER

Rows: prefill in f32 and bf16 (512 tokens, logits of the last position, on every side), decode in f32 and bf16 (64
tokens after --depth tokens, one sequence; llama.cpp only). A peer whose options are left out is left out of the rows.

1. Tuning. llama-bench is tried with flash attention on and off, with micro-batches of 128, 256 and 512 (prefill) or
   polling 50 and 100 (decode); transformers with sdpa and eager attention. All with --threads threads. The setting with
   the best median of each is used from there on.
2. Rounds. One run of each contestant a round; the order turns by one each round.
3. A contestant that exits with an error, runs out of time or prints no sound figure has failed: it is reported with its
   exit code and last words, and gives no ratio; nor is there then a ratio to "the fastest peer" of that row, as it is
   unknown.

bench/results/NAME.json keeps all of it: settings tried and chosen, commands, versions, commit, processor and its flags,
load before each round, every sample. A Markdown table goes to stdout, progress to stderr. Exit status 1 if any
contestant failed.

Make the peers' files from the model's own GGUF file:
    llama-quantize --allow-requantize MODEL.gguf smollm2-f32.gguf F32         (and BF16)
    unchain export MODEL.gguf -o SMOLLM2_HF_FOLDER --type f32                 (or any such folder of the same model)
Ours is `bench/model_bench` beside the program:
    model_bench MODEL --prefill P --decode D --repeats R --dtype T --threads N --json -
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# No library is to be held to another processor's kernels by a variable of this shell.
ENVIRONMENT = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("OPENBLAS_", "MKL_", "ONEDNN_", "DNNL_", "OMP_"))
}
ROWS = [(f"{work} {dtype}", work, dtype) for work in ("prefill", "decode") for dtype in ("f32", "bf16")]


class Failed(Exception):
    """A contestant that gave no figure; the text says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def output_of(command, timeout_s):
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=timeout_s, env=ENVIRONMENT
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"ran longer than {timeout_s} s") from None
    except OSError as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        raise Failed(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def sound(samples):
    if not samples or not all(isinstance(x, (int, float)) and math.isfinite(x) and x > 0 for x in samples):
        raise Failed(f"printed no sound figures: {samples}")
    return samples


class Unchain:
    name = "unchain"

    def __init__(self, options, work, dtype):
        program = options.model_bench or Path(options.unchain).parent / "bench" / "model_bench"
        sizes = [options.tokens, 0] if work == "prefill" else [max(options.depth, 1), options.decode]
        self.key, self.timeout_s = f"{work}_tokens_per_s", options.timeout
        # Threads that wait by spinning, as llama.cpp's do (--poll).
        self.command = [
            "env",
            "OMP_WAIT_POLICY=active",
            program,
            options.model,
            "--prefill",
            sizes[0],
            "--decode",
            sizes[1],
            "--repeats",
            options.repeats,
            "--dtype",
            dtype,
            "--threads",
            options.threads,
            "--json",
            "-",
        ]
        self.settings, self.tried = {"threads": options.threads, "OMP_WAIT_POLICY": "active"}, []

    def tune(self):
        pass

    def run(self):
        try:
            reply = json.loads(output_of(self.command, self.timeout_s))
        except json.JSONDecodeError as error:
            raise Failed(f"printed no JSON: {error}") from None
        self.settings |= {key: value for key, value in reply.items() if not isinstance(value, (list, dict))}
        return sound(reply.get(self.key))


class LlamaCpp:
    """llama-bench takes lists of settings and asks for the logits of the last prompt token alone."""

    name = "llama.cpp"

    def __init__(self, options, work, dtype):
        self.options, self.work = options, work
        file = options.gguf_f32 if dtype == "f32" else options.gguf_bf16
        sizes = (
            ["-p", options.tokens, "-n", 0]
            if work == "prefill"
            else ["-p", 0, "-n", options.decode, "-d", options.depth]
        )
        self.start = [Path(options.llama) / "llama-bench", "-m", file, "-o", "json", *sizes]
        self.settings, self.tried, self.timeout_s = None, [], options.timeout
        self.command = None

    def bench(self, repeats, **lists):
        flags = [part for key, value in lists.items() for part in (("-" if len(key) < 3 else "--") + key, value)]
        self.command = self.start + ["-r", repeats] + flags
        try:
            return json.loads(output_of(self.command, self.timeout_s))
        except json.JSONDecodeError as error:
            raise Failed(f"printed no JSON: {error}") from None

    def tune(self):
        more = {"ub": "128,256,512"} if self.work == "prefill" else {"poll": "50,100"}
        for reply in self.bench(self.options.tuning_repeats, t=self.options.threads, fa="on,off", **more):
            settings = {
                "t": reply["n_threads"],
                "fa": "on" if reply["flash_attn"] > 0 else "off",
                "ub": reply["n_ubatch"],
                "poll": reply["poll"],
            }
            self.tried.append({"settings": settings, "tokens_per_s": sound(reply["samples_ts"])})
        self.settings = best(self.tried)

    def run(self):
        reply = self.bench(self.options.repeats, **self.settings)
        return sound([x for one in reply for x in one["samples_ts"]])


class HuggingFace:
    name = "transformers"

    def __init__(self, options, work, dtype):
        assert work == "prefill"
        self.options, self.timeout_s = options, options.timeout
        self.start = [
            options.hf_python,
            HERE / "hf_prefill.py",
            options.hf,
            "--dtype",
            dtype,
            "--tokens",
            options.tokens,
        ]
        self.settings, self.tried, self.command = None, [], None

    def bench(self, repeats, attention):
        self.command = self.start + ["--repeats", repeats, "--attention", attention, "--threads", self.options.threads]
        try:
            return [
                json.loads(line)
                for line in output_of(self.command, self.timeout_s).splitlines()
                if line.startswith("{")
            ]
        except json.JSONDecodeError as error:
            raise Failed(f"printed no JSON: {error}") from None

    def tune(self):
        for reply in self.bench(self.options.tuning_repeats, "sdpa,eager"):
            self.tried.append({"settings": reply["settings"], "tokens_per_s": sound(reply["tokens_per_s"])})
        self.settings = best(self.tried)

    def run(self):
        return sound(
            [x for one in self.bench(self.options.repeats, self.settings["attention"]) for x in one["tokens_per_s"]]
        )


def best(tried):
    if not tried:
        raise Failed("printed no figures")
    return max(tried, key=lambda one: statistics.median(one["tokens_per_s"]))["settings"]


def contestants(options, work, dtype):
    there = [Unchain(options, work, dtype)]
    if options.llama and (options.gguf_f32 if dtype == "f32" else options.gguf_bf16):
        there.append(LlamaCpp(options, work, dtype))
    if options.hf and work == "prefill":
        there.append(HuggingFace(options, work, dtype))
    return there


def measure(name, everyone, rounds):
    """One row: tune, run the rounds, compare. Returns what the results file keeps of it."""
    failed, samples, loads = {}, {}, []
    for one in everyone:
        try:
            one.tune()
        except Failed as error:
            failed[one.name] = str(error)
    for turn in range(rounds):
        loads.append(os.getloadavg()[0])
        shift = turn % len(everyone)
        for one in everyone[shift:] + everyone[:shift]:
            if one.name in failed:
                continue
            try:
                samples.setdefault(one.name, []).append(one.run())
                say(f"{name}: round {turn + 1}: {one.name} {statistics.median(samples[one.name][-1]):.1f} tokens/s")
            except Failed as error:
                failed[one.name] = str(error)
    for who, why in failed.items():
        say(f"{name}: {who} failed: {why}")
    return {
        "row": name,
        "load_before_rounds": loads,
        "ratios": compare(samples, failed, [one.name for one in everyone]),
        "contestants": {
            one.name: {
                "failed": failed.get(one.name),
                "settings": one.settings,
                "tried": one.tried,
                "command": [str(part) for part in one.command],
                "samples_tokens_per_s": samples.get(one.name, []),
                **({"peak_memory_mb": one.peak_mb} if getattr(one, "peak_mb", None) else {}),
                **spread([x for turn in samples.get(one.name, []) for x in turn]),
            }
            for one in everyone
        },
    }


def spread(samples):
    if not samples:
        return {}
    return {
        "median_tokens_per_s": statistics.median(samples),
        "min_tokens_per_s": min(samples),
        "max_tokens_per_s": max(samples),
    }


def compare(samples, failed, names):
    """Ratios of unchain to each peer, round by round, and to the fastest of the row; none where somebody failed."""
    ours, peers = names[0], names[1:]
    medians = {
        name: [statistics.median(turn) for turn in turns] for name, turns in samples.items() if name not in failed
    }
    ratios = {}
    if ours in medians:
        for peer in peers:
            if peer in medians:
                ratios[peer] = [a / b for a, b in zip(medians[ours], medians[peer])]
        if peers and all(peer in medians for peer in peers):
            ratios["fastest peer"] = [
                a / max(b) for a, b in zip(medians[ours], zip(*(medians[peer] for peer in peers)))
            ]
    return {
        peer: {"rounds": values, "median": statistics.median(values), "min": min(values), "max": max(values)}
        for peer, values in ratios.items()
    }


def version_of(command):
    """What a program says of itself, or None."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout + done.stderr).strip() if done.returncode == 0 else None


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {"model": platform.processor()}
    facts = dict([part.strip() for part in line.split(":", 1)] for line in lines if ":" in line)
    return {
        "model": facts.get("model name"),
        "family": facts.get("cpu family"),
        "flags": facts.get("flags", "").split(),
        "cores": os.cpu_count(),
    }


def about(options):
    versions = {"unchain": version_of([options.unchain, "--version"])}
    paths = paths_of(options)
    if "llama" in paths:
        versions["llama.cpp"] = version_of([Path(options.llama) / "llama-bench", "--version"])
    if "hf" in paths or "peers" in paths:
        versions["transformers"] = version_of(
            [
                options.hf_python,
                "-c",
                "import torch, transformers, sys; "
                "print('transformers', transformers.__version__, 'torch', torch.__version__, sys.version.split()[0])",
            ]
        )
    return {
        "name": options.name,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": version_of(["git", "-C", ROOT, "rev-parse", "HEAD"]),
        "changed_files": version_of(["git", "-C", ROOT, "status", "--short", "--untracked-files=no"]),
        "processor": processor(),
        "system": platform.platform(),
        "versions": versions,
        "options": {key: value for key, value in vars(options).items() if key not in PATHS + ("results",)},
        "files": {key: path.name for key, path in paths.items()},
    }


PATHS = ("model", "gguf_f32", "gguf_bf16", "hf", "unchain", "model_bench", "llama", "hf_python", "data", "peers")


def paths_of(options):
    """The files and folders that were given."""
    return {key: Path(value) for key, value in vars(options).items() if key in PATHS and value}


def without_folders(text, options):
    """The results as anybody could have made them: names of files in place of this machine's folders."""
    folders = {f"{path.parent}/" for path in paths_of(options).values()} | {
        f"{HERE}/",
        f"{ROOT}/",
        f"{Path(sys.executable).parent}/",
    }
    for folder in sorted(folders - {"./", "//"}, key=len, reverse=True):
        text = text.replace(folder, "")
    return text


def table(rows):
    lines = [
        "| row | contestant | tokens/s: median (min to max) | unchain's ratio to it: median (min to max) | settings |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in rows:
        for name, one in row["contestants"].items():
            speed = (
                "failed"
                if one["failed"]
                else "{median_tokens_per_s:.1f} ({min_tokens_per_s:.1f} to {max_tokens_per_s:.1f})".format(**one)
            )
            ratio = row["ratios"].get(name)
            settings = ", ".join(f"{key} {value}" for key, value in (one["settings"] or {}).items())
            lines.append(f"| {row['row']} | {name} | {speed} | {shown(ratio)} | {settings} |")
        if "fastest peer" in row["ratios"]:
            lines.append(f"| {row['row']} | fastest peer | | **{shown(row['ratios']['fastest peer'])}** | |")
    return "\n".join(lines)


def shown(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="name of the results file")
    parser.add_argument("--unchain", default="build/release/unchain")
    parser.add_argument("--model-bench", help="default: bench/model_bench beside --unchain")
    parser.add_argument("--model", required=True, help="GGUF file that unchain loads")
    parser.add_argument("--llama", help="folder of llama-bench")
    parser.add_argument("--gguf-f32", help="F32 GGUF for llama.cpp")
    parser.add_argument("--gguf-bf16", help="BF16 GGUF for llama.cpp")
    parser.add_argument("--hf-python", default=sys.executable, help="Python with torch and transformers")
    parser.add_argument("--hf", help="Hugging Face folder of the same model")
    parser.add_argument("--rows", nargs="+", choices=[row[0] for row in ROWS], default=[row[0] for row in ROWS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of a contestant in a round")
    parser.add_argument("--tuning-repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=512, help="prefill length")
    parser.add_argument("--decode", type=int, default=64, help="tokens decoded")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before decoding")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one run of a contestant")
    parser.add_argument("--results", default=str(ROOT / "bench" / "results"), help="folder of the results file")
    return parser.parse_args(arguments)


def publish(options, rows):
    """Writes bench/results/NAME.json and prints the table. Returns the exit status."""
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / (options.name + ".json.tmp")
    text = json.dumps({"about": about(options), "rows": rows}, indent=1) + "\n"
    temporary.write_text(without_folders(text, options), encoding="utf-8")
    temporary.replace(folder / (options.name + ".json"))
    print(table(rows))
    return int(any(one["failed"] for row in rows for one in row["contestants"].values()))


def main(arguments=None):
    options = parse(arguments)
    rows = [
        measure(name, contestants(options, work, dtype), options.rounds)
        for name, work, dtype in ROWS
        if name in options.rows
    ]
    return publish(options, rows)


if __name__ == "__main__":
    sys.exit(main())
