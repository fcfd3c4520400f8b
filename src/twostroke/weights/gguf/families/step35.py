"""Step 3.5 and 3.7: more query heads in layers with a window, and for each layer a limit to which the activations in
gated blocks are clamped.

Source: conversion/step3.py of llama.cpp.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.dense import windows_of
from twostroke.weights.gguf.families.experts import without_guesses
from twostroke.weights.gguf.families.family import Config, Family
from twostroke.weights.gguf.families.names import DENSE, GUESSES, choice_bias, shared
from twostroke.weights.gguf.keys import Keys

FULL, SLIDING = "full_attention", "sliding_attention"
FULL_SHARE = 0.5
"""The share of a head that is rotated in layers without a window: the converter accepts no other value."""


def _step35(keys: Keys, config: Config) -> dict[str, Any]:
    stored = int(config["num_hidden_layers"])
    layers = int(without_guesses(keys, config)["num_hidden_layers"])
    dim = config["head_dim"]
    if keys.number("expert_gating_func", 2) not in (0, 2):
        raise keys.wrong("expert_gating_func", "Experts of this family are chosen by a sigmoid (2).")
    if not keys.truth("expert_weights_norm", True):
        raise keys.wrong("expert_weights_norm", "Weights of this family are divided by their sum.")
    keys.same("attention.value_length", dim)
    keys.same("rope.dimension_count", dim)
    keys.same("moe_every_n_layers", 1)
    keys.ignore("leading_dense_block_count")
    types = windows_of(keys, {**config, "num_hidden_layers": layers}).get("layer_types", [FULL] * layers)
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in keys.tensors for index in range(layers)]
    heads = _heads(keys, "attention.head_count", types)
    limits = {"swiglu_limits": "swiglu_clamp_exp", "swiglu_limits_shared": "swiglu_clamp_shexp"}
    return {
        **{name: keys.floats(key, stored)[:layers] for name, key in limits.items() if keys.has(key)},
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": stored - layers,
        "num_attention_heads": heads[FULL],
        "num_sliding_attention_heads": heads[SLIDING],
        "num_key_value_heads": _heads(keys, "attention.head_count_kv", types, same=True)[FULL],
        "share_expert_dim": keys.number("expert_shared_feed_forward_length"),
        "layer_types": types,
        "mlp_layer_types": ["sparse" if each else "dense" for each in sparse],
        "rope_parameters": _ropes(keys, config),
        "rope_scaling": None,
    }


def _heads(keys: Keys, key: str, types: list[str], *, same: bool = False) -> dict[str, int]:
    """Returns the number of heads in layers with full attention and in layers with a window. If the model has no layer
    of a kind, that kind gets the number of the other kind. same: True where both kinds must have the same number."""
    each = keys.each(key, len(types))
    found = {kind: {heads for heads, own in zip(each, types, strict=True) if own == kind} for kind in (FULL, SLIDING)}
    if any(len(counts) > 1 for counts in found.values()) or (same and len(set(each)) != 1):
        raise keys.wrong(key, "Layers of one kind must have as many heads each, and all layers as many KV heads each.")
    return {kind: (counts or set(each)).pop() for kind, counts in found.items()}


def _ropes(keys: Keys, config: Config) -> dict[str, dict[str, Any]]:
    """Returns the rotations of each kind of layer. Divisors of the rotary frequencies, if the file has them, apply only
    to layers with full attention."""
    theta = config.get("rope_theta", 10_000.0)
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": FULL_SHARE}
    scaling = dict(config.get("rope_scaling") or {})
    turned = int(config["head_dim"] * FULL_SHARE) // 2
    for name in ("short_factor", "long_factor"):
        if name in scaling:  # the rest are ones, for the other layers
            scaling[name] = scaling[name][:turned]
    return {
        FULL: {**full, **scaling},
        SLIDING: {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", theta)},
    }


FAMILIES: dict[str, Family] = {
    "step35": Family(
        "Step3p5ForCausalLM",
        "step3p5",
        {
            **DENSE,
            **{"attn_gate": "self_attn.g_proj", "ffn_gate_inp": "moe.gate"},
            **{f"ffn_{part}_exps": f"moe.{part}_proj" for part in ("gate", "up", "down")},
            **shared("share_expert"),
            **choice_bias("moe.router_bias"),
            **GUESSES,
        },
        less_one=frozenset({"output_norm", "attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"}),
        windows=True,
        apart=True,
        keys={"expert_count": "n_routed_experts", "expert_weights_scale": "moe_router_scaling_factor"},
        renamed={"num_attention_heads": "", "num_key_value_heads": ""},
        more=_step35,
        written=False,
    ),
}
