"""Checkpoint folders written as GGUF files by the `gguf` package: its names, its writer, its quantizers.

The changes of convert_hf_to_gguf.py to values are written once more here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from tests.weights import checkpoints
from tests.weights.gguf.k_quants import q1_0, q4_k, q5_k, q6_k

TypeOf = Callable[[str, tuple[int, ...]], Type]


def all_of(kind: Type) -> TypeOf:
    """Matrices of one type, and vectors as float32."""
    return lambda name, shape: kind if len(shape) > 1 else Type.F32


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder as float32."""
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= checkpoints.read_tensors(path)
    return found


def interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in the order of llama.cpp's llama: LlamaModel.permute."""
    shape = values.shape
    return values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def stacked(tensors: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The experts of a layer in one tensor, under the name of the stack."""
    found = {name: values for name, values in tensors.items() if ".experts." not in name}
    count = config.get("num_local_experts") or config.get("num_experts") or 0
    for name, values in tensors.items():
        if ".experts.0." in name:
            each = [tensors[name.replace(".experts.0.", f".experts.{index}.")] for index in range(count)]
            assert all(one.shape == values.shape for one in each)
            found[name.replace(".experts.0.", ".experts.")] = np.stack(each)
    return found


def converted(name: str, values: np.ndarray, arch: str, config: dict[str, Any]) -> np.ndarray:
    """What the converter stores for a tensor."""
    heads = config.get("num_attention_heads", 0)
    pairs = arch in ("llama", "granite", "smollm3")
    if pairs and ".q_proj." in name:
        return interleaved(values, heads)
    if pairs and ".k_proj." in name:
        return interleaved(values, config.get("num_key_value_heads") or heads)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    if arch == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return np.ascontiguousarray(values.T)
    return values


FLOATS = all_of(Type.F32)
OURS = {Type.Q1_0: q1_0, Type.Q4_K: q4_k, Type.Q5_K: q5_k, Type.Q6_K: q6_k}


def q4_k_m(name: str, shape: tuple[int, ...]) -> Type:
    """The mix of that name: values and some other matrices in Q6_K."""
    if len(shape) == 1:
        return Type.F32
    layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
    wide = name.startswith(("output", "token_embd")) or (layer % 2 == 0 and ("attn_v" in name or "ffn_down" in name))
    return Type.Q6_K if wide else Type.Q4_K


def write_gguf(folder: Path, path: Path, arch: str, type_of: TypeOf = FLOATS, **more: Any) -> Path:
    """Writes the folder's model and tokenizer. more: arguments of GGUFWriter."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, arch, **more)
    add_hyperparameters(writer, config)
    add_tokenizer(writer, folder)
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = gguf.get_tensor_name_map(_arch(arch), layers)
    for name, values in stacked(read_tensors(folder), config).items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert ours is not None, name
        stored = converted(name, values, arch, config)
        kind = type_of(ours, stored.shape)
        if stored.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = Type.F16
        raw = OURS[kind](stored) if kind in OURS else gguf.quants.quantize(stored, kind)
        writer.add_tensor(ours, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _arch(name: str) -> Any:
    return next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)


def add_hyperparameters(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Adds the keys that the converter's set_gguf_parameters adds."""
    if config["model_type"] == "gpt2":
        writer.add_block_count(config["n_layer"])
        writer.add_context_length(config["n_positions"])
        writer.add_embedding_length(config["n_embd"])
        writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
        writer.add_head_count(config["n_head"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    if "norm_epsilon" in config:
        writer.add_layer_norm_eps(config["norm_epsilon"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_of_family(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    if config["model_type"] == "phi3":
        add_phi3_rope(writer, config, dim)
        return
    writer.add_rope_dimension_count(dim)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    if rope.get("rope_type") in ("yarn", "linear"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, dim))
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def add_of_family(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Adds what only some families have."""
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.get(key):
            writer.add_float32(f"{writer.arch}.{key}", config[key])
    if config["model_type"] in ("gemma2", "gemma3_text", "phi3") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])


def add_phi3_rope(writer: gguf.GGUFWriter, config: dict[str, Any], dim: int) -> None:
    """Does what Phi3MiniModel.set_gguf_parameters and generate_extra_tensors do."""
    rope = config["rope_parameters"]
    positions = config["max_position_embeddings"]
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings", positions)
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1.0) * dim))
    if rope.get("rope_type") == "longrope":
        scale = positions / original
        writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(scale) / np.log(original)) if scale > 1 else 1.0)
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))


def llama3_divisors(rope: dict[str, Any], dim: int) -> np.ndarray:
    """Does what LlamaModel.generate_extra_tensors does."""
    frequencies = 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)))
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    found = []
    for frequency in frequencies:
        length = 2 * np.pi / float(frequency)
        if length < original / high:
            found.append(1.0)
        elif length > original / low:
            found.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, pre: str = "gpt-2") -> None:
    """Adds a tokenizer.json of merges over bytes as the converter stores it, or a list of words where the folder has
    none."""
    path = folder / "tokenizer.json"
    config = json.loads((folder / "config.json").read_text())
    size = config["vocab_size"]
    tokens, types, merges = [f"word{index}" for index in range(size)], [1] * size, ["w o"]
    if path.exists():
        said = json.loads(path.read_text())
        for text, index in said["model"]["vocab"].items():
            tokens[index] = text
        for token in said["added_tokens"]:
            tokens[token["id"]], types[token["id"]] = token["content"], 3 if token["special"] else 4
        merges = [m if isinstance(m, str) else " ".join(m) for m in said["model"]["merges"]]
    else:
        tokens[:3] = ["w", "o", "wo"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        if isinstance(config.get(key), int):
            add(config[key])
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    if template.exists():
        writer.add_chat_template(template.read_text())
