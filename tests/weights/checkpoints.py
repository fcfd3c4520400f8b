"""Tiny checkpoints that the tests write themselves, with the safetensors library on the other side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import TensorSpec, deserialize, serialize_file

DTYPES: dict[str, type] = {
    **{"F32": np.float32, "F16": np.float16, "F64": np.float64},
    **{"I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_},
}
WHOLE = {"int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64", "bool": "BOOL"}
NAMES = {
    **{"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"},
    **{"I8": "int8", "U8": "uint8", "I32": "int32", "I64": "int64", "BOOL": "bool"},
}
"""As the library calls them where it writes."""
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


def random_tensors(config: dict[str, Any], dtype: str = "F32", seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 arrays of `shapes(config)`, rounded to a type of safetensors: F32, BF16 or F16."""
    rng = np.random.default_rng(seed)
    return {
        name: as_float32(stored(rng.standard_normal(shape, np.float32), dtype), dtype).reshape(shape)
        for name, shape in shapes(config).items()
    }


def stored(values: np.ndarray, dtype: str) -> bytes:
    """Numbers as a safetensors file has them. bfloat16 is the upper half of float32, rounded to even."""
    if dtype != "BF16":
        return values.astype(DTYPES[dtype]).tobytes()
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16).tobytes()


def as_float32(data: bytes, dtype: str) -> np.ndarray:
    """The inverse of `stored`, in one dimension."""
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, DTYPES[dtype]).astype(np.float32)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a file, as float32."""
    parts = deserialize(path.read_bytes())
    return {name: as_float32(each["data"], each["dtype"]).reshape(each["shape"]) for name, each in parts}


def save(path: Path, tensors: Mapping[str, np.ndarray], dtype: str | Mapping[str, str] = "F32") -> None:
    """A file of safetensors. dtype: the type of all tensors, or of those that are named; the others are F32. Arrays of
    whole numbers keep their type."""
    parts, kept = {}, []
    for name, values in tensors.items():
        own = WHOLE.get(values.dtype.name) or (dtype if isinstance(dtype, str) else dtype.get(name, "F32"))
        data = np.frombuffer(stored(values, own), np.uint8)
        kept.append(data)  # as long as the library reads it by its address
        place = {"data_ptr": data.ctypes.data, "data_len": data.nbytes}
        parts[name] = TensorSpec(dtype=NAMES[own], shape=values.shape, **place)
    serialize_file(parts, path, {"format": "pt"})


def write(
    folder: Path,
    config: dict[str, Any],
    tensors: Mapping[str, Any],
    shards: int = 1,
    dtype: str | Mapping[str, str] = "F32",
) -> Path:
    """Write config.json and one safetensors file, or `shards` of them after an index. tensors: arrays, stored as
    `dtype` (see `save`), or tensors of torch, stored as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        _save(folder / "model.safetensors", tensors, dtype)
        return folder
    weight_map: dict[str, str] = {}
    names = list(tensors)
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        _save(folder / shard, {name: tensors[name] for name in names[i::shards]}, dtype)
        weight_map |= dict.fromkeys(names[i::shards], shard)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _save(path: Path, tensors: Mapping[str, Any], dtype: str | Mapping[str, str]) -> None:
    if all(isinstance(each, np.ndarray) for each in tensors.values()):
        save(path, tensors, dtype)
        return
    from safetensors.torch import save_file

    save_file(dict(tensors), path, metadata={"format": "pt"})
