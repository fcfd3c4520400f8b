"""Architectures that transformers does not have. Some of them are computed as another architecture and differ only in
the names of their tensors in GGUF files.

Sources: conversion/*.py of llama.cpp, MODEL_TENSORS of the `gguf` package.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.families.experts import without_guesses
from twostroke.weights.gguf.families.family import OUTER, Config, Family, Joined, Place, Shape
from twostroke.weights.gguf.families.names import DENSE, EXPERTS, GUESSES, Names, choice_bias, shared
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.row_orders import halves_of_pairs

BITNET: Names = {**DENSE, "attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}
MIXTURE: Names = {**DENSE, **EXPERTS, **shared("mlp.shared_experts")}
COUNTS = {"leading_dense_block_count": "first_k_dense_replace", "expert_weights_scale": "routed_scaling_factor"}
PER_LAYER = {"num_attention_heads": "", "num_key_value_heads": "", "intermediate_size": ""}


def _pairs(config: Config, rows: int) -> I32Array:
    """Returns, for each row of a layer's q or k, the stored row: the file stores rotary pairs, where Hugging Face
    checkpoints have halves. The number of heads follows from `rows`, because it differs from layer to layer."""
    return halves_of_pairs(rows, rows // int(config["head_dim"]))


def _minicpm(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of MiniCPM, computed from the factors that the file has."""
    depth = keys.number("residual_scale") * math.sqrt(config["num_hidden_layers"])
    base = config["hidden_size"] / keys.number("logit_scale")
    return {"scale_emb": keys.number("embedding_scale"), "scale_depth": depth, "dim_model_base": base}


def _deepseek(keys: Keys, _: Config) -> dict[str, Any]:
    """Returns the fields of DeepSeek. A token's expert weights are divided by their sum only if the file asks for it.
    """
    keys.ignore("expert_shared_feed_forward_length")
    return {"norm_topk_prob": keys.truth("expert_weights_norm", False)}


def _ling2(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Ling 2. The key expert_shared_feed_forward_length has the width of each shared expert.
    Without this key, a shared expert is as wide as the others."""
    if keys.number("expert_gating_func", 2) != 2:
        raise keys.wrong("expert_gating_func", "Experts of this family are chosen by a sigmoid (2).")
    if not keys.truth("expert_weights_norm", True):
        raise keys.wrong("expert_weights_norm", "Weights of this family are divided by their sum.")
    count = keys.number("expert_shared_count", 0)
    wide = keys.number("expert_shared_feed_forward_length", config["moe_intermediate_size"])
    found = {"num_shared_experts": count, "moe_shared_expert_intermediate_size": wide}
    return {**without_guesses(keys, config), **found}


def _bitnet(keys: Keys, _: Config) -> dict[str, Any]:
    """Returns the activation. Without the key it is SiLU, as in the models before b1.58 2B4T."""
    return {"hidden_act": keys.text("hidden_activation", "silu")}


def _thinned(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the numbers of heads and the widths of each layer as block_configs. A layer without query heads has no
    attention."""
    layers, dim = int(config["num_hidden_layers"]), int(config["head_dim"])
    heads, groups, wide = (
        keys.each(key, layers) for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    )
    for key in ("attention.value_length", "rope.dimension_count"):
        keys.same(key, dim)
    most = max(heads)
    if any(count and not group for count, group in zip(heads, groups, strict=True)):
        raise UnsupportedModel(
            f"{keys.place}: {keys.prefix}attention.head_count_kv is 0 in a layer with query heads.",
            why="Such a layer has one product in place of its attention, which is not read from GGUF files.",
            fix="Use the model's original checkpoint.",
        )
    if any(count not in (0, most) for count in heads) or any(count and most % count for count in groups):
        raise keys.wrong("attention.head_count", "Layers with attention must have the same number of query heads.")
    blocks = [
        {
            "attention": {"n_heads_in_group": most // group if group else None, "no_op": not group},
            "ffn": {"intermediate_size": inner or None, "no_op": not inner},
        }
        for group, inner in zip(groups, wide, strict=True)
    ]
    return {"block_configs": blocks, "num_attention_heads": most}


def _parted(config: Config, shapes: tuple[Shape, ...]) -> I32Array:
    """Returns the order that joins q, k and v to one tensor. The rows of q and k are stored as rotary pairs and become
    two halves for each head; those of v keep their order."""
    heads = (int(config["num_attention_heads"]), int(config["num_key_value_heads"]))
    q, k, v = (shape[0] for shape in shapes)
    orders = (halves_of_pairs(q, heads[0]), q + halves_of_pairs(k, heads[1]), q + k + np.arange(v, dtype=np.int32))
    return np.concatenate(orders)


def _joined(name: str) -> tuple[Joined, ...]:
    return (Joined(f"{name}.weight", tuple(f"attn_{part}.weight" for part in "qkv"), order=_parted),)


def _baichuan(_: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Baichuan. Models of 13B, which llama.cpp recognizes by their 40 layers, have slopes
    (ALiBi). A file's head is used unchanged."""
    large = config["num_hidden_layers"] == LARGE_BAICHUAN
    return {"position_embedding": "ALIBI" if large else "ROPE", "norm_head": False}


def _ling1(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Ling 1, whose router weights are not multiplied by a factor. As in llama.cpp, all layers
    have experts."""
    if keys.number("expert_weights_scale", 1.0) != 1.0:
        raise keys.wrong("expert_weights_scale", "The weights of experts have no factor in this family.")
    keys.same("leading_dense_block_count", 0)
    count = keys.number("expert_shared_count")
    return {"num_shared_experts": count, "norm_topk_prob": keys.truth("expert_weights_norm", False)}


NO_QKV = {stem: name for stem, name in MIXTURE.items() if stem not in ("attn_q", "attn_k", "attn_v")}
LARGE_BAICHUAN = 40

FAMILIES: dict[str, Family] = {
    "orion": Family("OrionForCausalLM", "orion", DENSE, renamed={"layer_norm_epsilon": "rms_norm_eps"}, written=False),
    "xverse": Family("XverseForCausalLM", "xverse", DENSE, pairs=True, written=False),
    "baichuan": Family(
        "BaichuanForCausalLM",
        "baichuan",
        {stem: name for stem, name in DENSE.items() if stem not in ("attn_q", "attn_k", "attn_v")},
        joined=_joined("self_attn.W_pack"),
        more=_baichuan,
        written=False,
    ),
    "bailingmoe": Family(
        "BailingMoeForCausalLM",
        "bailing_moe",
        {**NO_QKV, "attn_output": "attention.dense"},
        outer={**OUTER, "token_embd": "model.word_embeddings"},
        joined=_joined("attention.query_key_value"),
        keys={"expert_count": "num_experts"},
        more=_ling1,
        written=False,
    ),
    "internlm2": Family("LlamaForCausalLM", "llama", DENSE, pairs=True, written=False),
    "exaone": Family(
        "LlamaForCausalLM",
        "llama",
        DENSE,
        renamed={"layer_norm_epsilon": "rms_norm_eps"},
        written=False,
    ),
    "minicpm": Family("MiniCPMForCausalLM", "minicpm", DENSE, pairs=True, more=_minicpm, written=False),
    "deci": Family(
        "DeciLMForCausalLM",
        "nemotron-nas",
        {
            **DENSE,
            "attn_q": Place("self_attn.q_proj", order=_pairs),
            "attn_k": Place("self_attn.k_proj", order=_pairs),
        },
        apart=True,
        renamed=PER_LAYER,
        more=_thinned,
        written=False,
    ),
    "deepseek": Family(
        "DeepseekForCausalLM",
        "deepseek",
        MIXTURE,
        pairs=True,
        keys={**COUNTS, "expert_count": "n_routed_experts", "expert_shared_count": "n_shared_experts"},
        more=_deepseek,
        written=False,
    ),
    "bailingmoe2": Family(
        "BailingMoeV2ForCausalLM",
        "bailing_moe",
        {
            **MIXTURE,
            **GUESSES,
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
            "attn_q_norm": "attention.query_layernorm",
            "attn_k_norm": "attention.key_layernorm",
            **choice_bias("mlp.gate.expert_bias"),
        },
        outer={**OUTER, "token_embd": "model.word_embeddings"},
        partial=True,
        keys={
            **COUNTS,
            "expert_count": "num_experts",
            "expert_group_count": "n_group",
            "expert_group_used_count": "topk_group",
        },
        more=_ling2,
        written=False,
    ),
    "bitnet": Family("BitNetForCausalLM", "bitnet", BITNET, more=_bitnet, written=False),
}
