"""Kimi Linear: Kimi delta attention in most layers, latent attention in the others.

Source: conversion/kimi_linear.py of llama.cpp.
"""

from __future__ import annotations

import math
from typing import Any

from twostroke.weights.gguf.families.experts import DEEPSEEK, sigmoid_rule
from twostroke.weights.gguf.families.family import Config, Family, Place, Shape
from twostroke.weights.gguf.families.latent import KEYS_AND_VALUES, LATENT, RANK, latent_heads
from twostroke.weights.gguf.families.names import MIXTRAL_EXPERTS, Names, choice_bias, shared
from twostroke.weights.gguf.keys import Keys


def taps(_: Config, shape: Shape) -> Shape:
    """Returns the shape (channels, 1, taps) that PyTorch gives the filters of a short convolution. Files have one or
    two more axes of size 1."""
    return (math.prod(shape[:-1]), 1, shape[-1])


def of_heads(_: Config, shape: Shape) -> Shape:
    """Returns the shape (1, 1, heads, 1), which Hugging Face checkpoints have for a vector with one number for each
    head."""
    return (1, 1, math.prod(shape), 1)


def _kimi(keys: Keys, config: Config) -> dict[str, Any]:
    layers = range(int(config["num_hidden_layers"]))
    full = [f"blk.{index}.attn_kv_a_mqa.weight" in keys.tensors for index in layers]
    heads = math.prod(keys.tensor_shape("ssm_a")) if keys.has_tensor("ssm_a") else config["num_attention_heads"]
    return {
        **sigmoid_rule(keys, config),
        **latent_heads(keys, config),
        "norm_topk_prob": keys.truth("expert_weights_norm", True),
        "layer_types": ["full_attention" if each else "linear_attention" for each in full],
        "linear_num_heads": heads,
        "linear_head_dim": keys.number("kda.head_dim"),
        "linear_conv_kernel_dim": keys.number("ssm.conv_kernel"),
    }


KIMI: Names = {
    **LATENT,
    **MIXTRAL_EXPERTS,
    **shared("block_sparse_moe.shared_experts"),
    **choice_bias("block_sparse_moe.gate.e_score_correction_bias"),
    **{f"ssm_conv1d_{part}.weight": Place(f"self_attn.{part}_conv1d.weight", shape=taps, whole=True) for part in "qkv"},
    **{f"ssm_{part}": f"self_attn.{part}_proj" for part in ("f_a", "f_b", "g_a", "g_b")},
    "ssm_beta": "self_attn.b_proj",
    "ssm_a": Place("self_attn.A_log", shape=of_heads, negated_exp=True, whole=True),
    "ssm_dt.bias": Place("self_attn.dt_bias", whole=True),
    "ssm_norm": "self_attn.o_norm",
}

FAMILIES: dict[str, Family] = {
    "kimi-linear": Family(
        "KimiLinearForCausalLM",
        "kimi_linear",
        KIMI,
        joined=(KEYS_AND_VALUES,),
        apart=True,
        keys={**DEEPSEEK, **RANK},
        renamed={"num_key_value_heads": ""},
        more=_kimi,
    ),
}
