#!/usr/bin/env python3
"""Makes the tiny random models in tiny/ and their golden logits with the transformers library.

    python3 make_tiny_models.py [CASE ...]     # no CASE: all of them

A case is a Hugging Face folder (config.json, model.safetensors or shards with an index) and golden.json. Some cases
also hold other_config.json (the same model in the other form of config.json) and model.gguf (the same weights as GGUF).
Weights are drawn wide, so that logits are far apart and a mistake anywhere shows. What the cases are for: README.md.
"""

import contextlib
import json
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import safetensors
import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

OUT = Path(__file__).resolve().parent / "tiny"
VOCABULARY, LENGTH, POSITIONS = 97, 70, (0, 20, 63)
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


# fmt: off
def llama(hidden, ffn, layers, heads, kv=None, **more):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
              "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
              "num_attention_heads": heads, "hidden_act": "silu", "max_position_embeddings": 256,
              "bos_token_id": 1, "eos_token_id": 2}
    return config | ({"num_key_value_heads": kv} if kv else {}) | more


def gemma3(hidden, ffn, layers, heads, kv, head_dim, **more):
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": VOCABULARY,
            "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head_dim,
            "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 256,
            "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0} | more


def rope(theta, kind="default", **more):
    return {"rope_theta": theta, "rope_type": kind} | more


S, F = "sliding_attention", "full_attention"
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# name: (config, stored type, shards, other form of the rope keys or None, GGUF too)
CASES = {
    "llama_tied": (llama(36, 52, 2, 3, 1, tie_word_embeddings=True, rms_norm_eps=1e-5), "F32", 1, None, False),
    "llama_untied_sharded": (llama(40, 28, 2, 4, 2, rope_theta=500.0, rope_scaling=None), "F32", 3,
                             {"rope_parameters": rope(500.0)}, False),
    "llama_grouped": (llama(36, 52, 2, 6, 2, head_dim=10, tie_word_embeddings=True, rope_parameters=rope(100000.0)),
                      "F16", 1, {"rope_theta": 100000.0}, True),
    "llama_bias": (llama(24, 44, 2, 4, 2, head_dim=8, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2),
                   "BF16", 1, None, True),
    "llama_one_layer": (llama(20, 36, 1, 2, head_dim=None, num_key_value_heads=None), "F32", 1, None, False),
    "llama_linear": (llama(24, 28, 2, 2, 1, rope_theta=300.0, rope_scaling={"type": "linear", "factor": 4.0}),
                     "BF16", 1, {"rope_parameters": rope(300.0, "linear", factor=4.0)}, True),
    "llama_llama3": (llama(36, 28, 2, 3, 1, rope_parameters=rope(1000.0, "llama3", **LLAMA3)), "F16", 1,
                     {"rope_theta": 1000.0, "rope_scaling": {"rope_type": "llama3"} | LLAMA3}, True),
    "gemma3_window": (gemma3(36, 52, 4, 4, 1, 10, sliding_window=8, sliding_window_pattern=3, query_pre_attn_scalar=24,
                             rope_theta=50000.0, rope_local_base_freq=500.0, rope_scaling=None, rms_norm_eps=1e-2),
                      "BF16", 1, {"layer_types": [S, S, F, S],
                                  "rope_parameters": {F: rope(50000.0), S: rope(500.0)}}, False),
    "gemma3_kv2": (gemma3(40, 28, 3, 4, 2, 12, sliding_window=16, layer_types=[S, F, S], query_pre_attn_scalar=7,
                          rope_parameters={F: rope(20000.0, "linear", factor=8.0), S: rope(3000.0)}), "F16", 1,
                   {"layer_types": [S, F, S], "rope_theta": 20000.0, "rope_local_base_freq": 3000.0,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, False),
    "gemma3_untied": (gemma3(20, 36, 2, 2, 2, 14, tie_word_embeddings=False, attention_bias=True, sliding_window=8,
                             layer_types=[F, S], query_pre_attn_scalar=14), "F32", 1, None, False),
    "gemma3_softcap": (gemma3(24, 28, 2, 2, 1, 12, sliding_window=8, layer_types=[S, F], query_pre_attn_scalar=12,
                              final_logit_softcapping=5.0), "F16", 2, None, False),
    "gemma3_default_pattern": (gemma3(24, 20, 7, 2, 1, 10, sliding_window=16, query_pre_attn_scalar=10,
                                      rope_theta=40000.0), "F16", 1, None, True),
}
# fmt: on


def other_config(config, rope_keys):
    """The config with its rope (and, where given, layer type) keys in the other form."""
    keys = (
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "rope_local_base_freq",
        "sliding_window_pattern",
        "layer_types",
    )
    return {key: value for key, value in config.items() if key not in keys} | rope_keys


def draw_weights(model, seed, is_gemma):
    """Wide weights: norms around 1 (for Gemma around 0, as it multiplies by 1 + w), the rest with deviation 0.35."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = name.endswith("norm.weight")
        parameter.data = (0.0 if is_gemma else 1.0) + 0.3 * noise if is_norm else 0.35 * noise


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def save_weights(folder, tensors, shards):
    meta = {"format": "pt"}
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata=meta)
        return
    where = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensor for i, (name, tensor) in enumerate(tensors.items()) if i % shards == shard}
        safetensors.torch.save_file(part, folder / file, metadata=meta)
        where |= {name: file for name in part}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))},
    )


@contextlib.contextmanager
def in_double():
    """Keeps norms and softmax, which transformers rounds to f32 for any weights, in f64. RoPE angles stay f32."""
    softmax, llama_norm, gemma_norm = torch.nn.functional.softmax, LlamaRMSNorm.forward, Gemma3RMSNorm.forward
    normed = lambda x, eps: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None, **_: softmax(x, dim=dim)
    LlamaRMSNorm.forward = lambda self, x: self.weight * normed(x, self.variance_epsilon)
    Gemma3RMSNorm.forward = lambda self, x: (1.0 + self.weight) * normed(x, self.eps)
    try:
        yield
    finally:
        torch.nn.functional.softmax, LlamaRMSNorm.forward, Gemma3RMSNorm.forward = softmax, llama_norm, gemma_norm


@torch.no_grad()
def logits_of(folder, ids, double, gguf_file=None):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, gguf_file=gguf_file
    )
    problems = {key: value for key, value in info.items() if value}
    assert not problems or gguf_file, problems
    inputs = torch.tensor([ids])
    if not double:
        return model.eval()(inputs, use_cache=False).logits[0].double()
    with in_double():
        return model.double().eval()(inputs, use_cache=False).logits[0]


def mean_nll(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()


def rounded(value):
    return float(f"{value:.8g}")


def llama_rows(array, heads):
    """Rows of one head from (half, i) order to neighbouring pairs (i, half), as GGUF stores llama's q and k."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name, is_gemma):
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{GGUF_NAMES[stem]}.{kind}"
    layer, stem = stem.removeprefix("model.layers.").split(".", 1)
    after_attention = "post_attention_norm" if is_gemma else "ffn_norm"
    return f"blk.{layer}.{after_attention if stem == 'post_attention_layernorm' else GGUF_NAMES[stem]}.{kind}"


def add_rope(writer, rope, head_dim):
    """linear as metadata; llama3 as the tensor of divisors that GGUF files carry in its place."""
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        wavelength = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
        smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        smooth = np.clip(smooth, 0, 1)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32))


def save_gguf(path, config, tensors, stored):
    is_gemma = config.model_type == "gemma3_text"
    writer = gguf.GGUFWriter(path, "gemma3" if is_gemma else "llama")
    writer.add_name(path.parent.name)
    writer.add_tokenizer_model("none")  # what llama.cpp calls a model without a vocabulary
    writer.add_file_type(
        {
            "F32": gguf.LlamaFileType.ALL_F32,
            "F16": gguf.LlamaFileType.MOSTLY_F16,
            "BF16": gguf.LlamaFileType.MOSTLY_BF16,
        }[stored]
    )
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if is_gemma:
        assert config.query_pre_attn_scalar == config.head_dim and config.rope_parameters[S]["rope_theta"] == 10000.0
        writer.add_sliding_window(config.sliding_window)
    else:
        writer.add_rope_dimension_count(config.head_dim)
    add_rope(writer, config.rope_parameters[F] if is_gemma else config.rope_parameters, config.head_dim)
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        if is_gemma and name.endswith("norm.weight"):
            array = array + np.float32(1)
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name and not is_gemma:
                array = llama_rows(array, heads)
        if array.ndim == 1 or stored == "F32":
            writer.add_tensor(gguf_name(name, is_gemma), np.ascontiguousarray(array))
        elif stored == "F16":
            writer.add_tensor(gguf_name(name, is_gemma), array.astype(np.float16))
        else:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(gguf_name(name, is_gemma), gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_forms_agree(folder, other):
    """transformers must read both forms of config.json as the same model."""
    with tempfile.TemporaryDirectory() as scratch:
        write_json(Path(scratch) / "config.json", other)
        a, b = (AutoConfig.from_pretrained(where).to_dict() for where in (folder, scratch))
    for key in ("rope_parameters", "layer_types", "sliding_window", "head_dim", "num_key_value_heads"):
        for config in (a, b):
            if key == "rope_parameters":
                config[key].pop("type", None)  # the oldest spelling of rope_type, kept beside it
        assert a.get(key) == b.get(key), (folder.name, key, a.get(key), b.get(key))


def make(name, seed):
    config_json, stored, shards, rope_keys, wants_gguf = CASES[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config_json | {"torch_dtype": str(TYPES[stored]).removeprefix("torch.")})
    if rope_keys:
        write_json(folder / "other_config.json", other_config(config_json, rope_keys))
        check_forms_agree(folder, other_config(config_json, rope_keys))
    config = AutoConfig.from_pretrained(folder)
    is_gemma = config.model_type == "gemma3_text"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    draw_weights(model, seed, is_gemma)
    tensors = {
        key: value.detach().to(TYPES[stored]).contiguous()
        for key, value in model.state_dict().items()
        if not (key == "lm_head.weight" and config.tie_word_embeddings)
    }
    save_weights(folder, tensors, shards)

    ids = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(seed + 1000)).tolist()
    exact, single = logits_of(folder, ids, True), logits_of(folder, ids, False)
    difference = ((exact - single).abs().max() / exact.abs().max()).item()
    assert difference < 2e-5, (name, difference)
    if wants_gguf:
        save_gguf(folder / "model.gguf", config, tensors, stored)
    write_json(
        folder / "golden.json",
        {
            "ids": ids,
            "mean_nll": rounded(mean_nll(exact, ids)),
            "largest_logit": rounded(exact.abs().max().item()),
            "logits": {str(p): [rounded(x) for x in exact[p].tolist()] for p in POSITIONS},
            "seed": seed,
            "stored": stored,
            "computed": "float64, RoPE angles float32; f32_difference: of the plain f32 forward, by the largest logit",
            "f32_difference": float(f"{difference:.2g}"),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
            "python": platform.python_version(),
        },
    )
    print(
        f"{name:24} {stored:4} nll {mean_nll(exact, ids):.4f}, largest logit {exact.abs().max():.3f}, "
        f"f32 differs by {difference:.1e}"
    )


def make_unsupported():
    """A model of a kind that is not read: a sound folder, so the answer must be 'unsupported' and not 'damaged'."""
    folder = OUT / "unsupported_mamba"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(
        folder / "config.json",
        {
            "architectures": ["MambaForCausalLM"],
            "model_type": "mamba",
            "vocab_size": VOCABULARY,
            "hidden_size": 8,
            "state_size": 4,
            "num_hidden_layers": 1,
        },
    )
    safetensors.torch.save_file(
        {"backbone.embeddings.weight": torch.zeros(VOCABULARY, 8, dtype=torch.float16)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def main():
    torch.set_num_threads(1)
    for seed, name in enumerate(CASES, start=1):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, seed)
    make_unsupported()


if __name__ == "__main__":
    main()
