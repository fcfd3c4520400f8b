"""RWKV-6 and RWKV-7.

Source: conversion/rwkv.py of llama.cpp. Vectors that Hugging Face checkpoints have as (1, 1, width) are stored flat.
The vectors with which a block mixes rows lie in one tensor. RWKV-7 mixes values with those of the first layer, so layer
0 needs no tensors for this. Converters fill the places of these tensors with copies of others, which no program reads.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.family import Config, Family, Place, Shape
from twostroke.weights.gguf.families.names import Names
from twostroke.weights.gguf.keys import Keys

WAYS6, WAYS7 = ("w", "k", "v", "r", "g"), ("r", "w", "k", "v", "a", "g")
"""The letters of a block's inputs (RWKV-6, RWKV-7), each mixed from a row and the row before it with a vector of its
own (token shift). Files store these vectors in this order."""
LARGE = 4096
"""The hidden size of the RWKV-6 models whose low-rank (LoRA) products have twice the usual inner size."""
NO_HEADS = {"num_attention_heads": "", "num_key_value_heads": ""}


def _row(_: Config, shape: Shape) -> Shape:
    return (1, 1, shape[-1])


def _by_heads(config: Config, shape: Shape) -> Shape:
    dim = int(config["head_dim"])
    return (shape[-1] // dim, dim)


def _rescaled(config: Config, layer: int) -> float:
    """Returns the factor that undoes a change of the converter, which divides the output of a layer by two for every
    `rescale_every` layers before it."""
    every = int(config["rescale_every"])
    return 2.0 ** (layer // every) if every > 0 else 1.0


def _rwkv6(keys: Keys, config: Config) -> dict[str, Any]:
    large = config["hidden_size"] == LARGE
    keys.same("time_mix_extra_dim", 64 if large else 32)
    keys.same("time_decay_extra_dim", 128 if large else 64)
    keys.same("token_shift_count", 2)
    every = keys.number("rescale_every_n_layers", 0)
    if not isinstance(every, int) or not 0 <= every or config["num_hidden_layers"] // max(1, every) > 60:
        raise keys.wrong("rescale_every_n_layers", "It must be a number of layers, 0 for none.")
    return {"rescale_every": every, "head_size": keys.number("wkv.head_size")}


def _rwkv7(keys: Keys, config: Config) -> dict[str, Any]:
    keys.same("token_shift_count", 2)
    return {
        "head_dim": keys.number("wkv.head_size"),
        "decay_low_rank_dim": keys.number("attention.decay_lora_rank"),
        "a_low_rank_dim": keys.number("attention.iclr_lora_rank"),
        "v_low_rank_dim": keys.number("attention.value_residual_mix_lora_rank"),
        "gate_low_rank_dim": keys.number("attention.gate_lora_rank"),
    }


RWKV6: Names = {
    "attn_norm": "ln1",
    "attn_norm_2": "ln2",
    "time_mix_lerp_x.weight": Place("attention.time_maa_x", shape=_row, whole=True),
    "time_mix_lerp_fused.weight": Place("attention.time_maa_{}", shape=_row, whole=True, parts=WAYS6),
    **{f"time_mix_lerp_{way}.weight": Place(f"attention.time_maa_{way}", shape=_row, whole=True) for way in WAYS6},
    "time_mix_w1.weight": Place("attention.time_maa_w1", whole=True),
    "time_mix_w2.weight": Place("attention.time_maa_w2", whole=True),
    "time_mix_first.weight": Place("attention.time_faaaa", whole=True),
    "time_mix_decay.weight": Place("attention.time_decay", shape=_row, whole=True),
    "time_mix_decay_w1.weight": Place("attention.time_decay_w1", whole=True),
    "time_mix_decay_w2.weight": Place("attention.time_decay_w2", whole=True),
    **{f"time_mix_{name}": f"attention.{name}" for name in ("key", "value", "receptance", "gate")},
    "time_mix_output": Place("attention.output", factor=_rescaled),
    "time_mix_ln": "attention.ln_x",
    "channel_mix_lerp_k.weight": Place("feed_forward.time_maa_k", shape=_row, whole=True),
    "channel_mix_lerp_r.weight": Place("feed_forward.time_maa_r", shape=_row, whole=True),
    **{f"channel_mix_{name}": f"feed_forward.{name}" for name in ("key", "receptance")},
    "channel_mix_value": Place("feed_forward.value", factor=_rescaled),
}
RWKV7: Names = {
    "attn_norm": "attn_norm",
    "attn_norm_2": "ffn_norm",
    "time_mix_lerp_fused.weight": Place("attn.x_{}", shape=_row, whole=True, parts=WAYS7),
    **{f"time_mix_{way}0.weight": Place(f"attn.{way}_lora.lora.2.bias", whole=True) for way in "wav"},
    **{f"time_mix_{way}1": f"attn.{way}_lora.lora.0" for way in "wavg"},
    **{f"time_mix_{way}2": f"attn.{way}_lora.lora.2" for way in "wavg"},
    **{f"time_mix_k_{name}.weight": Place(f"attn.k_{name}", whole=True) for name in "ka"},
    "time_mix_r_k.weight": Place("attn.r_k", shape=_by_heads, whole=True),
    **{f"time_mix_{name}": f"attn.{name[0]}_proj" for name in ("key", "value", "receptance", "output")},
    "time_mix_ln": "attn.g_norm",
    "channel_mix_lerp_k.weight": Place("ffn.x_k", whole=True),
    **{f"channel_mix_{name}": f"ffn.{name}" for name in ("key", "value")},
}

FAMILIES: dict[str, Family] = {
    "rwkv6": Family(
        "Rwkv6ForCausalLM",
        "rwkv6",
        RWKV6,
        outer={
            "token_embd": "rwkv.embeddings",
            "token_embd_norm": "rwkv.blocks.0.pre_ln",
            "output_norm": "rwkv.ln_out",
            "output": "head",
        },
        layers="rwkv.blocks.",
        turned=frozenset({"time_mix_w1", "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2"}),
        apart=True,
        renamed={**NO_HEADS, "max_position_embeddings": "context_length"},
        more=_rwkv6,
        written=False,
    ),
    "rwkv7": Family(
        "RWKV7ForCausalLM",
        "rwkv7",
        RWKV7,
        outer={
            "token_embd": "model.embeddings",
            "token_embd_norm": "model.layers.0.pre_norm",
            "output_norm": "model.norm",
            "output": "lm_head",
        },
        apart=True,
        renamed={**NO_HEADS, "layer_norm_epsilon": "norm_eps"},
        more=_rwkv7,
        written=False,
    ),
}
