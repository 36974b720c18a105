#!/usr/bin/env python3
"""Checks of run.py with made-up contestants: python3 bench/peers/run_test.py"""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import run


def script(folder, name, body):
    path = Path(folder) / name
    path.write_text("#!/usr/bin/env python3\nimport sys, json\n" + body, encoding="utf-8")
    path.chmod(0o755)
    return path


OURS = "print(json.dumps({'prefill_tokens_per_s': [200.0, 400.0, 300.0], 'decode_tokens_per_s': [50.0], 'isa': 'x'}))\n"
# Slower with flash attention off, so that tuning has something to find; one object for each setting of the lists.
LLAMA = """
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print(json.dumps([{"n_threads": 2, "flash_attn": int(fa == "on"), "n_ubatch": int(ub), "poll": 50,
                   "samples_ts": [100.0 if fa == "on" else 60.0]}
                  for fa in flags["-fa"].split(",") for ub in flags["-ub"].split(",")]))
"""


class RunTest(unittest.TestCase):
    def results(self, ours=OURS, llama=LLAMA, more=()):
        with tempfile.TemporaryDirectory() as folder:
            script(folder, "llama-bench", llama)
            program = script(folder, "model_bench", ours)
            with contextlib.redirect_stdout(io.StringIO()) as table, contextlib.redirect_stderr(io.StringIO()):
                status = run.main(
                    [
                        "--name",
                        "x",
                        "--model",
                        "m.gguf",
                        "--model-bench",
                        str(program),
                        "--unchain",
                        str(program),
                        "--llama",
                        folder,
                        "--gguf-f32",
                        "f.gguf",
                        "--rows",
                        "prefill f32",
                        "--rounds",
                        "3",
                        "--threads",
                        "2",
                        "--results",
                        folder,
                        *more,
                    ]
                )
            text = (Path(folder) / "x.json").read_text(encoding="utf-8")
            self.assertNotIn(folder, text)
            return status, json.loads(text)["rows"][0], table.getvalue()

    def test_ratio_is_of_medians_within_a_round(self):
        status, row, table = self.results()
        self.assertEqual(status, 0)
        self.assertEqual(row["contestants"]["llama.cpp"]["settings"]["fa"], "on")
        self.assertEqual(row["ratios"]["llama.cpp"]["rounds"], [3.0, 3.0, 3.0])
        self.assertEqual(row["ratios"]["fastest peer"]["median"], 3.0)
        self.assertIn("3.00", table)

    def failing(self, **contestants):
        status, row, table = self.results(**contestants)
        self.assertEqual(status, 1)
        self.assertEqual(row["ratios"], {})
        self.assertIn("failed", table)
        return row

    def test_crash_gives_no_ratio(self):
        row = self.failing(llama="import os\nos.abort()\n")
        self.assertIn("exit status -6", row["contestants"]["llama.cpp"]["failed"])

    def test_figures_before_a_crash_do_not_count(self):
        self.failing(llama=LLAMA + "sys.exit(3)\n")
        self.failing(ours=OURS + "sys.exit(3)\n")

    def test_unsound_figures_give_no_ratio(self):
        self.failing(ours="print('{}')\n")
        self.failing(ours=OURS.replace("400.0", "float('nan')"))
        self.failing(llama="print('no json')\n")
        self.failing(llama="print('[]')\n")

    def test_timeout_gives_no_ratio(self):
        row = self.failing(ours="import time\n'--version' in sys.argv or time.sleep(60)\n", more=["--timeout", "1"])
        self.assertIn("longer than 1 s", row["contestants"]["unchain"]["failed"])

    def test_one_failed_peer_hides_the_fastest_but_not_the_other(self):
        ratios = run.compare({"us": [[4.0]], "a": [[2.0]]}, {"b": "crashed"}, ["us", "a", "b"])
        self.assertEqual(list(ratios), ["a"])
        ratios = run.compare({"us": [[4.0]], "a": [[2.0]], "b": [[8.0]]}, {}, ["us", "a", "b"])
        self.assertEqual(ratios["fastest peer"]["median"], 0.5)


if __name__ == "__main__":
    unittest.main()
