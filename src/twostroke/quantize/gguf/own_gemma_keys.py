"""The keys of Gemma 3n and Gemma 4. own_keys.py has those of other families."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from twostroke.quantize.gguf.fields import Names, rope_groups, rope_of
from twostroke.weights.gguf.families.family import Config

SLIDING = "sliding_attention"


def _shared(config: Config) -> dict[str, Any]:
    types = config.get("layer_types") or ()
    sliding = rope_groups(config).get(SLIDING) or {}
    return {
        "attention.sliding_window_pattern": [each == SLIDING for each in types],
        "rope.freq_base": float(rope_of(config).get("rope_theta") or 1_000_000.0),
        "rope.freq_base_swa": float(sliding.get("rope_theta") or config.get("rope_local_base_freq") or 10_000.0),
    }


def gemma3n(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Gemma 3n needs: the feed-forward width and the activation sparsity of each layer, and
    the keys of its sliding windows."""
    layers = int(config["num_hidden_layers"])
    widths, shares = config["intermediate_size"], config.get("activation_sparsity_pattern") or [0.0] * layers
    return {
        **_shared(config),
        "feed_forward_length": list(widths) if isinstance(widths, list | tuple) else [int(widths)] * layers,
        "activation_sparsity_scale": [NormalDist().inv_cdf(each) if each else -math.inf for each in shares],
    }


def gemma4(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Gemma 4 needs. It has heads of two sizes, and layers that share K and V may have a
    feed-forward block of twice the width."""
    types = list(config.get("layer_types") or ())
    by_layer = config.get("per_layer_config") or {}
    layers = [dict(by_layer.get(str(index)) or by_layer.get(index) or {}) for index in range(len(types))]
    full = [index for index, each in enumerate(types) if each != SLIDING]
    narrow, kv = int(config.get("head_dim", 256)), int(config["num_key_value_heads"])
    older = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    wide = next((each["head_dim"] for each in layers if "head_dim" in each), config.get("global_head_dim") or 512)
    of_full = next((each["num_key_value_heads"] for each in layers if "num_key_value_heads" in each), older or kv)
    width, own = int(config["intermediate_size"]), len(types) - int(config.get("num_kv_shared_layers") or 0)
    factor = 2 if config.get("use_double_wide_mlp") else 1
    return {
        **_shared(config),
        "attention.key_length": int(wide),
        "attention.value_length": int(wide),
        "attention.key_length_swa": narrow,
        "attention.value_length_swa": narrow,
        "attention.head_count_kv": [int(of_full) if index in full else kv for index in range(len(types))],
        "feed_forward_length": [width if index < own else factor * width for index in range(len(types))],
        "rope.dimension_count": int(wide),
        "rope.dimension_count_swa": narrow,
        "expert_used_count": config.get("top_k_experts"),
        "expert_count": config.get("num_experts"),
    }
