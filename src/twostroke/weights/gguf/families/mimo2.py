"""MiMo-V2: heads of V narrower than those of K, and twice as many KV heads in layers with a window.

Source: conversion/mimo.py of llama.cpp.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.dense import windows_of
from twostroke.weights.gguf.families.experts import DEEPSEEK, DEEPSEEK_NAMES, sigmoid_rule, without_guesses
from twostroke.weights.gguf.families.family import Config, Family, Place
from twostroke.weights.gguf.keys import Keys


def _mimo2(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(without_guesses(keys, config)["num_hidden_layers"])
    dim = config["head_dim"]
    if config.get("rope_scaling"):
        raise keys.wrong("rope.scaling.type", "Rotations of this family are not scaled.")
    types = windows_of(keys, {**config, "num_hidden_layers": layers}).get("layer_types", ["full_attention"] * layers)
    share = keys.number("rope.dimension_count", dim) / dim
    theta = config.get("rope_theta", 5e6)
    bases = {"full_attention": theta, "sliding_attention": keys.number("rope.freq_base_swa", theta)}
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in keys.tensors for index in range(layers)]
    return {
        **sigmoid_rule(keys, config),
        "norm_topk_prob": keys.truth("expert_weights_norm", True),
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": keys.number("nextn_predict_layers", 0),
        "num_key_value_heads": _kv_heads(keys, types),
        "layer_types": types,
        "mlp_layer_types": ["sparse" if each else "dense" for each in sparse],
        "v_head_dim": keys.number("attention.value_length", dim),
        "attention_value_scale": keys.number("attention.value_scale", 1.0) or 1.0,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}
            for kind, base in bases.items()
        },
    }


def _kv_heads(keys: Keys, types: list[str]) -> int:
    """Returns the number of K and V heads of a layer without a window."""
    each = keys.each("attention.head_count_kv", len(types))
    found = {heads if kind == "full_attention" else heads / 2 for heads, kind in zip(each, types, strict=True)}
    if len(found) != 1 or min(found) != int(min(found)):
        raise keys.wrong("attention.head_count_kv", "Layers with a window have twice the KV heads of the others.")
    return int(found.pop())


FAMILIES: dict[str, Family] = {
    "mimo2": Family(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        {**DEEPSEEK_NAMES, "attn_sinks.weight": Place("self_attn.attention_sink_bias", whole=True)},
        windows=True,
        apart=True,
        keys=DEEPSEEK,
        renamed={"num_key_value_heads": ""},
        more=_mimo2,
    ),
}
