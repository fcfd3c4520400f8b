"""Decoders in which most layers keep the state of a gated delta rule: Qwen3-Next and Qwen3.5.

Source: conversion/qwen.py of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.families.experts import COUNTS, GATED_SHARED
from twostroke.weights.gguf.families.family import Config, Family, Joined, Place, Shape
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import DENSE, EXPERTS, GUESSES, Names, filters
from twostroke.weights.gguf.families.states import attending
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.row_orders import taken_in_turn, untiled_values


def _delta(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of a decoder with the gated delta rule in most layers."""
    layers = int(config["num_hidden_layers"]) - keys.number("nextn_predict_layers", 0)
    keys.ignore("attention.recurrent_layers", "full_attention_interval", "rope.dimension_sections")
    keys.same("attention.value_length", config["head_dim"])
    share = keys.number("rope.dimension_count", config["head_dim"]) / config["head_dim"]
    return {
        "num_hidden_layers": layers,
        "layer_types": ["full_attention" if each else "linear_attention" for each in attending(keys, layers)],
        "linear_value_head_dim": keys.number("ssm.inner_size") // config["linear_num_value_heads"],
        "partial_rotary_factor": share,
    }


def _qwen3next(keys: Keys, config: Config) -> dict[str, Any]:
    return {**_delta(keys, config), "norm_topk_prob": keys.truth("expert_weights_norm", True)}


def _by_key_head(config: Config, shapes: tuple[Shape, ...]) -> I32Array:
    """Returns the order of rows by key head: for each head its q, its k, its value heads and their gates."""
    groups, each = int(config["linear_num_key_heads"]), int(config["linear_key_head_dim"])
    values = shapes[1][0] // groups
    if groups * 2 * (each + values) != shapes[0][0] + shapes[1][0]:
        raise ValueError(f"{groups} key heads of {each} rows")  # refused before these numbers are used
    return taken_in_turn(groups, (each, each, values, values))


def _grouped_values(each_of: str, before: bool = False) -> Callable[[Config, int], I32Array]:
    """Returns a function that computes the order for rows that belong to value heads: Hugging Face checkpoints have the
    value heads of one key head next to each other. each_of: the config field with the number of rows of one value head;
    "" for one row. before: whether the rows of q and k come first in the same tensor."""

    def order(config: Config, rows: int) -> I32Array:
        keys, values = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])
        first = 2 * keys * int(config["linear_key_head_dim"]) if before else 0
        if first + values * (int(config[each_of]) if each_of else 1) != rows:
            raise ValueError(f"{values} value heads after {first} rows")
        return untiled_values(first, keys, values // keys, int(config[each_of]) if each_of else 1)

    return order


_VALUE = "linear_value_head_dim"
DELTA_NORMS = frozenset({"attn_norm", "post_attention_norm", "output_norm", "attn_q_norm", "attn_k_norm"})
DELTA: Names = {
    **DENSE,
    **EXPERTS,
    **GATED_SHARED,
    "post_attention_norm": "post_attention_layernorm",
    "ssm_a": Place("linear_attn.A_log", negated_exp=True, whole=True),
    "ssm_dt.bias": Place("linear_attn.dt_bias", whole=True),
    "ssm_conv1d.weight": Place("linear_attn.conv1d.weight", shape=filters, whole=True),
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    **GUESSES,
}
TILED: Names = {
    **DELTA,
    "ssm_a": Place("linear_attn.A_log", order=_grouped_values(""), negated_exp=True, whole=True),
    "ssm_dt.bias": Place("linear_attn.dt_bias", order=_grouped_values(""), whole=True),
    "ssm_conv1d.weight": Place(
        "linear_attn.conv1d.weight", order=_grouped_values(_VALUE, before=True), shape=filters, whole=True
    ),
    "ssm_alpha": Place("linear_attn.in_proj_a", order=_grouped_values("")),
    "ssm_beta": Place("linear_attn.in_proj_b", order=_grouped_values("")),
    "attn_qkv": Place("linear_attn.in_proj_qkv", order=_grouped_values(_VALUE, before=True)),
    "attn_gate": Place("linear_attn.in_proj_z", order=_grouped_values(_VALUE)),
    "ssm_out": Place("linear_attn.out_proj", columns=_grouped_values(_VALUE)),
}
DELTA_ROWS = (
    KeyRow("ssm.conv_kernel", "linear_conv_kernel_dim"),
    KeyRow("ssm.state_size", "linear_key_head_dim"),
    KeyRow("ssm.group_count", "linear_num_key_heads"),
    KeyRow("ssm.time_step_rank", "linear_num_value_heads"),
)
SHARED_WIDTH = {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}


FAMILIES: dict[str, Family] = {
    "qwen3next": Family(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        DELTA,
        joined=(Joined("linear_attn.in_proj_qkvz.weight", ("attn_qkv.weight", "attn_gate.weight"), _by_key_head),),
        less_one=DELTA_NORMS,
        apart=True,
        keys={**COUNTS, **SHARED_WIDTH},
        rows=DELTA_ROWS,
        more=_qwen3next,
    ),
    "qwen35": Family(
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        TILED,
        less_one=DELTA_NORMS,
        apart=True,
        rows=DELTA_ROWS,
        more=_delta,
    ),
    "qwen35moe": Family(
        "Qwen3_5MoeForCausalLM",
        "qwen3_5_moe_text",
        TILED,
        less_one=DELTA_NORMS,
        apart=True,
        keys={**COUNTS, **SHARED_WIDTH},
        rows=DELTA_ROWS,
        more=_delta,
    ),
}
