"""DeepSeek-V4. Its tensors have the names of the published checkpoints, without `model.` before them.

Source: conversion/deepseek.py of llama.cpp. In the first layers, a table gives the experts of each token id; files
store this table as whole numbers.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.experts import DEEPSEEK
from twostroke.weights.gguf.families.family import Config, Family, Place
from twostroke.weights.gguf.families.names import Names, choice_bias
from twostroke.weights.gguf.keys import Keys

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
SCORES = {1: "softmax", 2: "sigmoid", 4: "sqrtsoftplus"}
"""The function of scores for each value of the key expert_gating_func."""
GATED = {"gate": "w1", "up": "w3", "down": "w2"}
OWN = {
    "attention.q_lora_rank": "q_lora_rank",
    "attention.output_group_count": "o_groups",
    "attention.output_lora_rank": "o_lora_rank",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk",
    "attention.compress_rope_freq_base": "compress_rope_theta",
    "hyper_connection.count": "hc_mult",
    "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
    "hyper_connection.epsilon": "hc_eps",
    "hash_layer_count": "num_hash_layers",
    "swiglu_clamp_exp": "swiglu_limit",
    "rope.dimension_count": "qk_rope_head_dim",
}


def _deepseek4(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    rates = keys.each("attention.compress_ratios", layers)
    kinds = [
        (SPARSE if f"blk.{index}.indexer.proj.weight" in keys.tensors else HEAVY) if rate else SLIDING
        for index, rate in enumerate(rates)
    ]
    own = {kind: {rate for rate, each in zip(rates, kinds, strict=True) if each == kind} for kind in (SPARSE, HEAVY)}
    if any(len(found) > 1 for found in own.values()):
        raise keys.wrong("attention.compress_ratios", "Layers with an index have one ratio, those without another.")
    word = SCORES.get(keys.number("expert_gating_func", 4))
    if word is None:
        raise keys.wrong("expert_gating_func", f"It must be one of {', '.join(map(str, SCORES))}.")
    keys.same("attention.value_length", config.get("head_dim"))
    if keys.number("swiglu_clamp_shexp", config["swiglu_limit"]) != config["swiglu_limit"]:
        raise keys.wrong("swiglu_clamp_shexp", "All experts of this family have one limit.")
    keys.ignore("embedding_length_out")
    return {
        "layer_types": kinds,
        "compress_rates": {kind: found.pop() for kind, found in own.items() if found},
        "scoring_func": word,
        "norm_topk_prob": keys.truth("expert_weights_norm", True),
    }


DEEPSEEK4: Names = {
    "attn_norm": "attn_norm",
    "attn_q_a": "attn.wq_a",
    "attn_q_b": "attn.wq_b",
    "attn_q_a_norm": "attn.q_norm",
    "attn_kv": "attn.wkv",
    "attn_kv_a_norm": "attn.kv_norm",
    "attn_output_a": "attn.wo_a",
    "attn_output_b": "attn.wo_b",
    "attn_sinks.weight": Place("attn.attn_sink", whole=True),
    **{
        f"hc_{block}_{part}.weight": Place(f"hc_{block}_{part}", whole=True)
        for block in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    },
    **{
        stored.format(part): f"attn.{ours}{name}"
        for stored, ours in (("attn_compressor_{}", "compressor."), ("indexer_compressor_{}", "indexer.compressor."))
        for part, name in (("kv", "wkv"), ("gate", "wgate"), ("norm", "norm"))
    },
    "attn_compressor_ape.weight": Place("attn.compressor.ape", whole=True),
    "indexer_compressor_ape.weight": Place("attn.indexer.compressor.ape", whole=True),
    "indexer.proj": "attn.indexer.weights_proj",
    "indexer.attn_q_b": "attn.indexer.wq_b",
    "ffn_norm": "ffn_norm",
    "ffn_gate_inp": "ffn.gate",
    "ffn_gate_tid2eid.weight": Place("ffn.gate.tid2eid", whole=True),
    **choice_bias("ffn.gate.bias"),
    **{f"ffn_{part}_exps": f"ffn.experts.{{}}.{name}" for part, name in GATED.items()},
    **{f"ffn_{part}_shexp": f"ffn.shared_experts.{name}" for part, name in GATED.items()},
}

FAMILIES: dict[str, Family] = {
    "deepseek4": Family(
        "DeepseekV4ForCausalLM",
        "deepseek_v4",
        DEEPSEEK4,
        outer={
            "token_embd": "embed",
            "output_norm": "norm",
            "output": "head",
            **{f"output_hc_{part}.weight": Place(f"hc_head_{part}", whole=True) for part in ("fn", "base", "scale")},
        },
        layers="layers.",
        windows=True,
        apart=True,
        keys={**DEEPSEEK, **OWN},
        more=_deepseek4,
        written=False,
    ),
}
