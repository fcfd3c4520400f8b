"""Grok-1.

Source: conversion/grok.py of llama.cpp, and the constants of its grok.cpp for files that lack a key. Grok-2 has another
block in addition to the experts, and is refused by the names of its tensors.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.experts import COUNTS
from twostroke.weights.gguf.families.family import Config, Family
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import Names
from twostroke.weights.gguf.keys import Keys

SCALES = (
    KeyRow("attention.output_scale", "attn_output_multiplier", float, absent=128**-0.5, silent=1.0),
    KeyRow("embedding_scale", "embedding_multiplier_scale", float, absent=78.38367176906169, silent=1.0),
    KeyRow("logit_scale", "output_multiplier_scale", float, absent=3**-0.5, silent=1.0),
    KeyRow("attn_logit_softcapping", "max_attn_value", float, absent=30.0, silent=30.0),
)


def _grok(keys: Keys, config: Config) -> dict[str, Any]:
    if config.get("final_logit_softcapping"):
        raise keys.wrong("final_logit_softcapping", "Logits of this family have no cap.")
    keys.same("router_logit_softcapping", 30.0)  # llama.cpp reads this key, but does nothing with it
    return {"intermediate_size": keys.number("expert_feed_forward_length", config["intermediate_size"])}


GROK: Names = {
    "attn_norm": "pre_attn_norm",
    **{f"attn_{part}": f"attn.{part}_proj" for part in "qkv"},
    "attn_output": "attn.o_proj",
    "attn_output_norm": "post_attn_norm",
    "ffn_norm": "pre_moe_norm",
    "ffn_gate_inp": "moe_block.gate",
    "ffn_gate_exps": "moe_block.experts.{}.linear",
    "ffn_up_exps": "moe_block.experts.{}.linear_v",
    "ffn_down_exps": "moe_block.experts.{}.linear_1",
    "layer_output_norm": "post_moe_norm",
    "post_ffw_norm": "post_moe_norm",
}

LEFT_OUT = {"attn_logit_softcapping": ""}
"""A value of Family.renamed: the empty name takes this key out of the keys that are read for all families. SCALES reads
it instead, because config.json of Grok-1 has it as max_attn_value."""

FAMILIES: dict[str, Family] = {
    "grok": Family("Grok1ModelForCausalLM", "grok-1", GROK, keys=COUNTS, rows=SCALES, more=_grok, renamed=LEFT_OUT),
}
