"""Checkpoint folders as the GGUF files that llama.cpp's converter makes of them, with our own writer, by its rules.

Keys were recorded from the converter itself (conversion/*.py of llama.cpp as llama-cpp-python 0.3.36 ships it), run
over the same folders. Every tensor of this writer was equal to the converter's then, except for the last bit of
exponentials. For InternLM 2, EXAONE 3, MiniCPM, Orion, XVERSE, Baichuan, Ling, DeepSeek MoE, Nemotron Super, BitNet,
Jina 2, NeoBERT and Step 3.5, keys were written after the converter's source.
Names of tensors come from the `gguf` package. The changes of values are written here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from tests.weights.gguf.conversion_rules import LIKE, Named, rule_of
from tests.weights.gguf.converted_states import fused, numbers_of
from tests.weights.gguf.export import all_of, llama3_divisors, read_tensors

RECORDED = Path(__file__).parent / "recorded.json"
OWN = {
    "indexer.k_norm.weight": "indexer.k_norm.weight",
    "indexer.k_norm.bias": "indexer.k_norm.bias",
    "indexer.weights_proj": "indexer.proj.weight",
    "indexer.wk.": "indexer.attn_k.weight",
    "indexer.wq_b": "indexer.attn_q_b.weight",
    "self_attn.attn_sub_norm": "attn_sub_norm.weight",
    "mlp.ffn_sub_norm": "ffn_sub_norm.weight",
    "mixer.experts.up_proj": "ffn_up_exps.weight",
    "mixer.experts.down_proj": "ffn_down_exps.weight",
    "feed_forward.experts.w1": "ffn_gate_exps.weight",
    "feed_forward.experts.w2": "ffn_down_exps.weight",
    "feed_forward.experts.w3": "ffn_up_exps.weight",
}
"""Names that the package's map does not have."""
NOT_READ = (
    *("pooler.", "cls.", "model.visual.", "visual.", "model.vit.", "vit.", "mlp_AR.", "model.projector."),
    *("vision_model.", "vit_large_projector."),
)
"""Beginnings of names of tensors that the converter leaves out, or puts into a file of their own."""
_EXPERT = re.compile(r"(.*\.experts|model\.altup_\w*projections)\.(\d+)\.(.+)")


def recorded() -> dict[str, dict[str, Any]]:
    """Family -> {"arch": name, "keys": {key without the architecture: [type, value]}}."""
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def write_converted(family: str, folder: Path, path: Path, kind: Type = Type.F32) -> Path:
    """Writes the file. kind: the type of matrices."""
    said = recorded()[family]
    arch, config = said["arch"], read_config(folder)
    writer = gguf.GGUFWriter(path, arch)
    for key, (number, value) in said["keys"].items():
        add_key(writer, f"{arch}.{key}", number, value)
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["w", "o", "wo", *(f"word{index}" for index in range(3, size))])
    writer.add_token_types([1] * size)
    writer.add_token_merges(["w o"])
    tensors = read_tensors(folder)
    for key, numbers in numbers_of(arch, tensors).items():
        writer.add_array(key, numbers)
    for name, values in tensors_of(arch, config, tensors):
        of = all_of(kind)(name, values.shape)
        small = "norm" in name or "conv" in name or ("ssm_" in name and "ssm_out" not in name)
        if small or values.shape[-1] % gguf.GGML_QUANT_SIZES[of][0]:
            of = Type.F32
        if values.dtype == np.int32:
            writer.add_tensor(name, values)
            continue
        writer.add_tensor(name, gguf.quants.quantize(values, of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json; for a model of images, that of its language model."""
    config = json.loads((folder / "config.json").read_text())
    return {**config, **config.get("text_config", {})}


def add_key(writer: gguf.GGUFWriter, key: str, number: int, value: Any) -> None:
    """A value of one of the format's types."""
    kind = gguf.GGUFValueType(number)
    if isinstance(value, list):
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=kind)
    else:
        writer.add_key_value(key, value, kind)


def tensors_of(arch: str, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Named:
    """All tensors of the file."""
    kind = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == LIKE.get(arch, arch))
    layers = (
        config.get("num_hidden_layers")
        or config.get("n_layer")
        or config.get("n_layers")
        or config.get("num_layers")
        or len(config["layers_block_type"])
    )
    names = gguf.get_tensor_name_map(kind, layers)
    yield from rotation_divisors(arch, config)
    for name, values in stacked(fused(arch, tensors)):
        name = name.replace("language_model.", "")
        if arch == "hy_v3":
            if name.endswith("post_attention_layernorm.weight"):
                name = f"blk.{name.split('.')[2]}.ffn_norm.weight"
            name = name.replace("router.gate", "gate").replace("shared_mlp", "shared_experts")
            if name.endswith("mlp.expert_bias"):
                name = f"blk.{name.split('.')[2]}.exp_probs_b"
        if arch == "bloom":
            name = name.removeprefix("transformer.")
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if name.startswith(NOT_READ):
            continue
        for each, changed in rule_of(arch)(name, values, config):
            found = _own_name(each) or names.get_name(each, try_suffixes=(".weight", ".bias"))
            assert found is not None, each
            yield found, np.ascontiguousarray(changed)


def _own_name(name: str) -> str | None:
    if name.startswith(("blk.", "rope_", "token_embd", "output")):
        return name
    found = next((part for part in OWN if part in name), None)
    return None if found is None else f"blk.{name.split('.')[2]}.{OWN[found]}"


def stacked(tensors: dict[str, np.ndarray]) -> Named:
    """The experts of a layer in one tensor, under the name of the stack."""
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for name, values in tensors.items():
        found = _EXPERT.fullmatch(name)
        if found is None:
            yield name, values
        else:
            stacks.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = values
    for name, each in stacks.items():
        yield name, np.stack([each[index] for index in range(len(each))])


def rotation_divisors(arch: str, config: dict[str, Any]) -> Named:
    """Factors of longrope for short and for long contexts."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    full = rope.get("full_attention", rope) if arch == "step35" else {}
    if full.get("rope_type") == "llama3":
        half = llama3_divisors(full, int(config["head_dim"] * full["partial_rotary_factor"]))
        yield "rope_freqs.weight", np.pad(half, (0, config["head_dim"] // 2 - len(half)), constant_values=1.0)
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", llama3_divisors(rope, config["hidden_size"] // config["num_attention_heads"])
    if arch == "gemma4":
        half = next(each["head_dim"] for each in config["per_layer_config"].values()) // 2
        share = rope["full_attention"]["partial_rotary_factor"]
        turned = int(half * share)
        yield "rope_freqs.weight", np.array([1.0] * turned + [1e30] * (half - turned), np.float32)
    if rope.get("rope_type") == "longrope" and arch in ("phi3", "phimoe", "minicpm3"):
        for part in ("long", "short"):
            yield f"rope_factors_{part}.weight", np.array(rope[f"{part}_factor"], np.float32)
