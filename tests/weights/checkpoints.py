"""Tiny checkpoints that the tests write themselves, with the safetensors library on the other side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 131, "hidden_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 72,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip
QWEN2 = {**CONFIG, "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True, "num_attention_heads": 6}
QWEN3 = {**CONFIG, "architectures": ["Qwen3ForCausalLM"], "attention_bias": True}
BIASED = {**CONFIG, "attention_bias": True, "mlp_bias": True}


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensor names and shapes of a checkpoint for `config`."""
    hidden, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    family = config["architectures"][0]
    attention_bias = config.get("attention_bias", False)
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        matrices = {
            "self_attn.q_proj": (q_rows, hidden), "self_attn.k_proj": (kv_rows, hidden),
            "self_attn.v_proj": (kv_rows, hidden), "self_attn.o_proj": (hidden, q_rows),
            "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide),
        }  # fmt: skip
        for name, shape in matrices.items():
            found[f"{layer}{name}.weight"] = shape
            qkv = name[10:] in ("q_proj", "k_proj", "v_proj")
            if (
                (qkv and family == "Qwen2ForCausalLM")
                or (name.startswith("self_attn") and attention_bias)
                or (name.startswith("mlp") and config.get("mlp_bias"))
            ):
                found[f"{layer}{name}.bias"] = shape[:1]
        found[layer + "input_layernorm.weight"] = (hidden,)
        found[layer + "post_attention_layernorm.weight"] = (hidden,)
        if family == "Qwen3ForCausalLM":
            found[layer + "self_attn.q_norm.weight"] = (dim,)
            found[layer + "self_attn.k_norm.weight"] = (dim,)
    found["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    return found


def random_tensors(
    config: dict[str, Any], dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random tensors of `shapes(config)`."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes(config).items()}


def write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], shards: int = 1) -> Path:
    """Writes config.json and one safetensors file, or `shards` of them with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    names = list(tensors)
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::shards]}, folder / shard)
        weight_map |= dict.fromkeys(names[i::shards], shard)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def f32(tensor: torch.Tensor) -> np.ndarray:
    """Any float tensor -> float32 array."""
    return tensor.float().numpy()
