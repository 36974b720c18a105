#!/usr/bin/env python3
"""Times the prefill of a Hugging Face folder with transformers: tokens a second, logits of the last position only.

    hf_prefill.py FOLDER --dtype f32|bf16 [--tokens 512] [--repeats 5] [--attention sdpa,eager] [--threads 2]

Prints one JSON object a line, one for each attention implementation and number of threads. Loading and a warm-up run
are not timed; no cache is kept (use_cache=False), which only helps this side. Needs torch and transformers.
"""

import argparse
import json
import time

import torch
import transformers

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=TYPES, default="f32")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    for attention in options.attention.split(","):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            options.folder, dtype=TYPES[options.dtype], attn_implementation=attention
        ).eval()
        ids = torch.randint(0, model.config.vocab_size, (1, options.tokens), generator=torch.Generator().manual_seed(1))
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            samples = []
            with torch.inference_mode():
                for _ in range(options.repeats + 1):
                    start = time.perf_counter()
                    model(ids, use_cache=False, logits_to_keep=1)
                    samples.append(options.tokens / (time.perf_counter() - start))
            print(
                json.dumps(
                    {
                        "settings": {"attention": attention, "threads": threads},
                        "tokens_per_s": samples[1:],
                        "dtype": options.dtype,
                        "torch": torch.__version__,
                        "transformers": transformers.__version__,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
