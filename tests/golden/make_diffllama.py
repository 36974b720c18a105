#!/usr/bin/env python3
"""Makes tiny random diffllama models in tiny/ with golden logits, a loss and its gradients, with the transformers library.

    python3 make_diffllama.py

Each case is a folder as make_tiny_models.py makes them; golden.json also holds, of the mean NLL of ids 1 …, the gradients
of some tensors (`gradients`: name → the first numbers and the Euclidean norm).
"""

import contextlib
import json
import platform
import shutil
from pathlib import Path

import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.diffllama.modeling_diffllama import DiffLlamaRMSNorm

OUT = Path(__file__).resolve().parent / "tiny"
VOCABULARY, LENGTH, POSITIONS, SHOWN = 97, 70, (0, 20, 63), 24


def case(hidden, feed_forward, layers, heads, kv_heads, **more):
    return {"architectures": ["DiffLlamaForCausalLM"], "model_type": "diffllama", "vocab_size": VOCABULARY,
            "hidden_size": hidden, "intermediate_size": feed_forward, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_act": "silu",
            "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False} | more


CASES = {
    "diffllama_grouped": case(40, 52, 3, 8, 4, head_dim=6, rms_norm_eps=1e-5, tie_word_embeddings=True),
    "diffllama_untied": case(24, 44, 2, 4, 4, rope_theta=500.0, tie_word_embeddings=False),
}


@contextlib.contextmanager
def in_double():
    """Norms and softmax in f64, which transformers rounds to f32 for any weights."""
    softmax, norm = torch.nn.functional.softmax, DiffLlamaRMSNorm.forward
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None, **_: softmax(x, dim=dim)
    DiffLlamaRMSNorm.forward = lambda self, x: self.weight * x * torch.rsqrt(
        x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon
    )
    try:
        yield
    finally:
        torch.nn.functional.softmax, DiffLlamaRMSNorm.forward = softmax, norm


def rounded(value):
    return float(f"{value:.8g}")


def golden_of(model, seed):
    """Logits, a loss and, computed in double, its gradients of a model on ids drawn from the seed."""
    ids = torch.randint(
        0, model.config.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(seed + 1000)
    ).tolist()
    single = model.eval()(torch.tensor([ids]), use_cache=False).logits[0].double()
    with in_double():
        model = model.double().eval()
        exact = model(torch.tensor([ids]), use_cache=False).logits[0]
        loss = torch.nn.functional.cross_entropy(exact[:-1], torch.tensor(ids[1:]))
        loss.backward()
    gradients = {
        key: {"norm": rounded(p.grad.norm().item()), "first": [rounded(x) for x in p.grad.flatten()[:SHOWN].tolist()]}
        for key, p in model.named_parameters()
    }
    difference = ((exact - single).abs().max() / exact.abs().max()).item()
    print(f"nll {loss:.4f}, largest logit {exact.abs().max():.3f}, f32 differs by {difference:.1e}")
    return {
        "ids": ids,
        "mean_nll": rounded(loss.item()),
        "largest_logit": rounded(exact.abs().max().item()),
        "logits": {str(p): [rounded(x) for x in exact[p].tolist()] for p in POSITIONS},
        "gradients": gradients,
        "seed": seed,
        "stored": "F32",
        "computed": "float64, RoPE angles float32; f32_difference: of the plain f32 forward, by the largest logit",
        "f32_difference": float(f"{difference:.2g}"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def make(name, seed):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CASES[name] | {"torch_dtype": "float32"}, indent=1) + "\n")
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    for key, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 1 + 0.3 * noise if key.endswith("norm.weight") else 0.35 * noise
    tensors = {
        key: value.detach().contiguous().clone()
        for key, value in model.state_dict().items()
        if not (key == "lm_head.weight" and config.tie_word_embeddings)
    }
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    print(name, end=": ")
    (folder / "golden.json").write_text(json.dumps(golden_of(model, seed), indent=1) + "\n")


if __name__ == "__main__":
    for number, name in enumerate(CASES):
        make(name, 300 + number)
