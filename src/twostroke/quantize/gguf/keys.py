"""Makes the keys of a GGUF file from config.json, all but those of the tokenizer.

Most keys follow from the tables of the reader of GGUF files, used in the other direction. Keys from which a family's
reader computes fields are in own_keys.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from twostroke.quantize.gguf.container import KeyValue
from twostroke.quantize.gguf.fields import head_dim, rope_of
from twostroke.quantize.gguf.names import FIX
from twostroke.quantize.gguf.own_keys import OWN_KEYS, no_own_keys
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Pooling, Task
from twostroke.weights.gguf.config import NUMBERS
from twostroke.weights.gguf.families.family import Config, Family, Shape
from twostroke.weights.gguf.keys import WITHOUT_NAME
from twostroke.weights.gguf.pooling import CLS, LAST, MEAN, RANK
from twostroke.weights.gguf.pooling import KEY as POOLING

PLAIN_ROPE = (None, "default")
FLOATS = ("epsilon", "freq_base", "freq_base_swa", "softcapping", "scale")
"""The endings of keys whose values are float32."""


def model_keys(
    config: Config, entry: str, arch: str, family: Family, tensors: Mapping[str, Shape]
) -> dict[str, KeyValue]:
    """Returns the GGUF keys that begin with the architecture's name. entry: the name under which the reader's tables
    (FAMILIES) describe the architecture. arch: the name that the file gives it. tensors: the shapes of the file's
    tensors, by name."""
    rope = rope_of(config)
    said = {**config, **({"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {})}
    if not config.get("use_sliding_window", True):
        said.pop("sliding_window", None)
    found: dict[str, KeyValue] = {}
    for key, field in {**NUMBERS, **family.keys}.items():
        names = (family.renamed.get(field, field), field, *ALIASES.get(field, ()))
        value = next((said[name] for name in names if said.get(name) is not None), None)
        value = None if family.renamed.get(field) == "" else value
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = float(value) if key.endswith(FLOATS) else int(value)
    found |= {} if family.apart else _heads(config, family)
    found |= _scaled(rope, config)
    found |= {row.key: value for row in family.rows if (value := row.written(config)) is not None}
    found |= OWN_KEYS.get(entry, no_own_keys)(config, tensors)
    named = {key if key.startswith(WITHOUT_NAME) else f"{arch}.{key}": value for key, value in found.items()}
    return {key: value for key, value in named.items() if value is not None}


ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers"),
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_attention_heads": ("n_head", "n_heads"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
    "num_experts": ("num_local_experts",),
    "num_local_experts": ("num_experts",),
    "intermediate_size": ("n_inner",),
    "rope_theta": ("rotary_emb_base",),
}
"""Usual fields of config.json, each with the other names that some families have for it."""


def general_keys(arch: str, name: str, file_type: int) -> dict[str, KeyValue]:
    """Returns the GGUF keys that every file has."""
    return {
        "general.architecture": arch,
        "general.name": name,
        "general.alignment": 32,
        "general.quantization_version": 2,
        "general.file_type": file_type,
    }


POOLINGS: Mapping[Pooling, int] = {Pooling.MEAN: MEAN, Pooling.CLS: CLS, Pooling.LAST: LAST}


def pooling_keys(arch: str, task: Task, pooling: Pooling | None) -> dict[str, KeyValue]:
    """Returns the GGUF keys that tell how the output rows become a vector or a score. pooling: the pooling that the
    files of sentence-transformers name. Raises UnsupportedModel for a model that makes vectors and has none of these
    files."""
    if task is Task.RERANK:
        return {f"{arch}.{POOLING}": RANK}
    if task is Task.EMBED and pooling is None:
        raise UnsupportedModel(
            "This model cannot be written as GGUF: no file says how its rows become a vector.",
            why="GGUF files of encoders name a pooling, and it is read from modules.json.",
            fix="Put modules.json and the config.json of its Pooling into the folder.",
        )
    if pooling is not None and pooling not in POOLINGS:
        raise UnsupportedModel(
            f"This model cannot be written as GGUF: its pooling is {pooling}.",
            why=f"GGUF files have numbers for {', '.join(POOLINGS)}.",
            fix="Serve the folder as it is.",
        )
    return {} if pooling is None else {f"{arch}.{POOLING}": POOLINGS[pooling]}


def _heads(config: Config, family: Family) -> dict[str, KeyValue]:
    dim = head_dim(config)
    if not dim:
        return {}
    group = rope_of(config)
    share = float(config.get("partial_rotary_factor") or group.get("partial_rotary_factor") or 1.0)
    turned = int(dim * share) if family.partial else dim
    return {"attention.key_length": dim, "attention.value_length": dim, "rope.dimension_count": turned}


def _scaled(rope: Mapping[str, Any], config: Config) -> dict[str, KeyValue]:
    """Returns the GGUF keys for RoPE scaling of the types yarn and linear, and none for other types, which
    `rotation_divisors` writes or refuses."""
    kind = rope.get("rope_type", rope.get("type"))
    if kind not in ("yarn", "linear"):
        return {}
    found: dict[str, KeyValue] = {"rope.scaling.type": str(kind), "rope.scaling.factor": float(rope["factor"])}
    original = rope.get("original_max_position_embeddings")
    found |= {"rope.scaling.original_context_length": int(original)} if original and kind == "yarn" else {}
    for field in ("beta_fast", "beta_slow"):
        if kind == "yarn" and rope.get(field) is not None:
            found[f"rope.scaling.yarn_{field}"] = float(rope[field])
    return found


def rotation_divisors(config: Mapping[str, Any]) -> dict[str, list[float]]:
    """Returns the tensors, by their names in the file, that hold divisors of the rotary frequencies. Plain rotations,
    and scaling that keys describe, have none. Raises UnsupportedModel."""
    rope = rope_of(config)
    kind = rope.get("rope_type", rope.get("type"))
    if kind in (*PLAIN_ROPE, "yarn", "linear"):
        return {}
    if kind == "proportional":
        return {"rope_freqs.weight": _turned_part(config, float(rope["partial_rotary_factor"]))}
    if kind == "longrope":
        return {
            f"rope_factors_{each}.weight": [float(one) for one in rope[f"{each}_factor"]] for each in ("short", "long")
        }
    if kind != "llama3":
        raise UnsupportedModel(f"Rotations scaled by {str(kind)[:40]!r} cannot be written as GGUF.", fix=FIX)
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    factor, low, high = (float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = float(rope["original_max_position_embeddings"])
    found = []
    dim = head_dim(config)
    for pair in range(0, dim, 2):
        length = 2 * math.pi * theta ** (pair / dim)
        share = min(1.0, max(0.0, (original / length - low) / (high - low)))
        found.append(1 / ((1 - share) / factor + share))
    return {"rope_freqs.weight": found}


def _turned_part(config: Mapping[str, Any], share: float) -> list[float]:
    """Returns the divisors of Gemma 4's rotary frequencies: 1 for each pair of channels that is rotated. All other
    pairs of a head get a huge number, which stops their rotation."""
    by_layer = (config.get("per_layer_config") or {}).values()
    dim = next((each["head_dim"] for each in by_layer if "head_dim" in each), config.get("global_head_dim") or 512)
    half = int(dim) // 2
    turned = int(half * share)
    return [1.0] * turned + [1e30] * (half - turned)
