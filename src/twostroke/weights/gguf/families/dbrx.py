"""GGUF names of DBRX.

Source: conversion/dbrx.py of llama.cpp. The stacks of experts are three tensors in our checkpoints, the last of them
transposed.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.classic import CLIP
from twostroke.weights.gguf.families.family import Config, Family, Joined
from twostroke.weights.gguf.families.names import Names
from twostroke.weights.gguf.keys import Keys

OUTER: Names = {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"}
LAYER: Names = {
    "attn_norm": "norm_attn_norm.norm_1",
    "attn_qkv": "norm_attn_norm.attn.Wqkv",
    "attn_output": "norm_attn_norm.attn.out_proj",
    "attn_output_norm": "norm_attn_norm.norm_2",
    "ffn_gate_inp": "ffn.router.layer",
}
STACKS = {"w1": "ffn_gate_exps.weight", "v1": "ffn_up_exps.weight", "w2": "ffn_down_exps.weight"}


def _dbrx(keys: Keys, config: Config) -> dict[str, Any]:
    attention = {
        "kv_n_heads": config["num_key_value_heads"],
        "clip_qkv": keys.number(CLIP, 0.0) or None,
        "rope_theta": config.get("rope_theta", 10_000.0),
    }
    experts = {
        "ffn_hidden_size": config["intermediate_size"],
        "moe_num_experts": keys.number("expert_count"),
        "moe_top_k": config["num_experts_per_tok"],
        "moe_normalize_expert_weights": 1.0,
    }
    return {"attn_config": attention, "ffn_config": experts}


FAMILIES: dict[str, Family] = {
    "dbrx": Family(
        "DbrxForCausalLM",
        "dbrx",
        LAYER,
        outer=OUTER,
        layers="transformer.blocks.",
        joined=tuple(
            Joined(f"ffn.experts.mlp.{ours}", (stored,), turned_pieces=frozenset({stored} if ours == "w2" else ()))
            for ours, stored in STACKS.items()
        ),
        more=_dbrx,
        written=False,
    ),
}
