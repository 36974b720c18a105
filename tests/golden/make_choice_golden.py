#!/usr/bin/env python3
"""Log-likelihoods of the options in choice/*.jsonl as transformers computes them for SmolLM2-135M-Instruct Q4_1.

    pip install torch transformers gguf
    python3 make_choice_golden.py FOLDER_WITH_THE_GGUF

Weights and tokenizer come from the GGUF file through transformers; products in float32. Plain loops: each option is
read whole, with no cache. Writes choice/golden.json.
"""
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).parent / "choice"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def lines(name):
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def main():
    folder = sys.argv[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32).eval()

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)

    def score(context, whole):
        ids, first = encode(whole), len(encode(context))
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        logp = torch.log_softmax(logits, -1)
        total, likeliest = 0.0, True
        for position in range(first, len(ids)):
            total += logp[position - 1, ids[position]].item()
            likeliest = likeliest and int(logits[position - 1].argmax()) == ids[position]
        return {"log_likelihood": total, "tokens": len(ids) - first, "likeliest": likeliest}

    golden = {"model": FILE, "torch": torch.__version__, "transformers": transformers.__version__}
    forms = {"plain": lambda c: (c, c + " "), "question": lambda c: (f"Question: {c}\nAnswer:", f"Question: {c}\nAnswer: ")}
    for name, form in forms.items():
        golden[name] = [
            {"options": [score(form(item["context"])[0], form(item["context"])[1] + choice) for choice in item["choices"]]}
            for item in lines("choices.jsonl")
        ]
    golden["last_words"] = []
    for item in lines("last_words.jsonl"):
        context = item["text"][: -len(item["text"].split()[-1])].rstrip()
        golden["last_words"].append({"options": [score(context, item["text"])]})
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
