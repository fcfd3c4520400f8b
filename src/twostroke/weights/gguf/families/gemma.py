"""Gemma 3n and Gemma 4: layers of two sizes, K and V that layers share, embeddings for each layer.

Sources: conversion/gemma.py of llama.cpp, MODEL_TENSORS of the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.families.dense import windows_of
from twostroke.weights.gguf.families.experts import COUNTS
from twostroke.weights.gguf.families.family import OUTER, Config, Family, Place
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import SANDWICH, Names
from twostroke.weights.gguf.keys import Keys

PER_LAYER: Names = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
PER_LAYER_OUTER: Names = {
    **OUTER,
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
STREAMS: Names = {
    **{
        f"altup_{stored}": f"altup.{ours}"
        for stored, ours in (
            ("correct_coef", "correction_coefs"),
            ("predict_coef", "prediction_coefs"),
            ("router", "modality_router"),
            ("router_norm", "router_norm"),
        )
    },
    "altup_correct_scale.weight": Place("altup.correct_output_scale", whole=True),
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
}
EXPERTS: Names = {
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "ffn_gate_inp.scale": Place("router.scale", whole=True),
    "ffn_gate_inp.weight": Place("router.proj.weight", whole=True),
    "ffn_down_exps.scale": Place("router.per_expert_scale", whole=True),
    "ffn_gate_up_exps.weight": Place("experts.gate_up_proj", whole=True),
    "ffn_down_exps.weight": Place("experts.down_proj", whole=True),
}
BY_LAYER = {"intermediate_size": "", "num_key_value_heads": "", "head_dim": ""}
"""Fields that get no value from the usual keys ("" in Family.renamed), because the keys may have one value for each
layer. _gemma4 reads these keys."""
SHARED_ROWS = (
    KeyRow("attention.shared_kv_layers", "num_kv_shared_layers", absent=0, silent=0),
    KeyRow("embedding_length_per_layer_input", "hidden_size_per_layer_input", absent=0, silent=0),
)
STREAM_ROWS = (
    KeyRow("altup.num_inputs", "altup_num_inputs", silent=4),
    KeyRow("altup.active_idx", "altup_active_idx", silent=0),
)
UNTURNED = 1e20
"""The file has a divisor for the frequency of each rotary pair. A pair with a divisor of at least this number is not
rotated."""


def _shared(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields that Gemma 3n and Gemma 4 share: the layers' types, whether the head is the embedding, and the
    number of tokens in the table of per-layer embeddings."""
    layers = int(config["num_hidden_layers"])
    said = windows_of(keys, config, every=6)
    found = {
        **said,
        "tie_word_embeddings": "output.weight" not in keys.tensors,
    }
    if "layer_types" not in said:
        found["layer_types"] = ["full_attention"] * layers
    if keys.has_tensor("per_layer_token_embd.weight"):
        found["vocab_size_per_layer_input"] = keys.tensor_shape("per_layer_token_embd.weight")[0]
    return found


def _gemma3n(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    return {
        **_shared(keys, config),
        "laurel_rank": keys.tensor_shape("laurel_l.weight")[0],
        "intermediate_size": keys.each("feed_forward_length", layers),
        "activation_sparsity_pattern": _shares(keys, layers),
    }


def _shares(keys: Keys, layers: int) -> list[float]:
    """Returns, for each layer, the share of the gates that its activation sparsity sets to zero. The file has the
    threshold instead, as a number of standard deviations."""
    cuts = keys.floats("activation_sparsity_scale", layers)
    return [0.0 if cut == -np.inf else NormalDist().cdf(cut) for cut in cuts]


def _gemma4(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    common = _shared(keys, config)
    full = [kind == "full_attention" for kind in common["layer_types"]]
    heads = keys.each("attention.head_count_kv", layers, int(config["num_attention_heads"]))
    widths = keys.each("feed_forward_length", layers)
    wide, narrow = keys.number("attention.key_length"), keys.number("attention.key_length_swa")
    keys.ignore("attention.value_length", "attention.value_length_swa", "rope.dimension_count")
    keys.same("rope.dimension_count_swa", narrow)
    own = layers - int(config["num_kv_shared_layers"])
    same = any(f"blk.{index}.attn_v.weight" not in keys.tensors for index in range(own) if full[index])
    if len(set(widths[:own])) > 1 or set(widths[own:]) - {widths[0], 2 * widths[0]}:
        raise keys.wrong("feed_forward_length", "Only layers that read K and V of other layers may be twice as wide.")
    return {
        **common,
        "head_dim": narrow,
        "global_head_dim": wide,
        "num_key_value_heads": _only(keys, [each for each, whole in zip(heads, full, strict=True) if not whole]),
        "num_global_key_value_heads": _only(keys, [each for each, whole in zip(heads, full, strict=True) if whole]),
        "attention_k_eq_v": same,
        "intermediate_size": widths[0],
        "use_double_wide_mlp": widths[-1] != widths[0],
        "enable_moe_block": bool(keys.number("expert_count", 0)),
        "rope_parameters": _turns(keys, config),
        "rope_scaling": None,
    }


def _only(keys: Keys, numbers: list[int]) -> int:
    if len(set(numbers)) != 1:
        raise keys.wrong("attention.head_count_kv", "Each kind of layer must occur, with one number of KV heads.")
    return numbers[0]


def _turns(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the rope parameters of each layer type. For layers without a window, rope_freqs holds a divisor for each
    rotary pair: 1 for pairs that are rotated, a huge number for the others."""
    divisors = (config.get("rope_scaling") or {}).get("short_factor") or []
    turned = sum(each < UNTURNED for each in divisors)
    if not divisors or any(each != 1.0 for each in divisors[:turned]):
        raise CorruptModel(
            f"{keys.place}: rope_freqs.weight does not say which part of a head turns.",
            why="It has a 1 for each pair that is rotated, then a number above 1e20 for each that is not.",
            fix="Download the file again.",
        )
    base = config.get("rope_theta", 1_000_000.0)
    share = turned / len(divisors)
    return {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": base},
        "sliding_attention": {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", 10_000.0)},
    }


FAMILIES: Mapping[str, Family] = {
    "gemma3n": Family(
        "Gemma3nForCausalLM",
        "gemma3n_text",
        {**SANDWICH, **PER_LAYER, **STREAMS},
        outer={
            **PER_LAYER_OUTER,
            "altup_proj": "model.altup_projections.{}",
            "altup_unembd_proj": "model.altup_unembed_projections.{}",
        },
        windows=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh"},
        keys={"rope.freq_base_swa": "rope_local_base_freq"},
        renamed={"intermediate_size": ""},
        rows=(*SHARED_ROWS, *STREAM_ROWS),
        more=_gemma3n,
    ),
    "gemma4": Family(
        "Gemma4ForCausalLM",
        "gemma4_text",
        {
            **SANDWICH,
            **PER_LAYER,
            **EXPERTS,
            "layer_output_scale.weight": Place("layer_scalar", whole=True),
        },
        outer=PER_LAYER_OUTER,
        windows=True,
        apart=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh"},
        keys=COUNTS,
        renamed={**BY_LAYER, "num_experts_per_tok": "top_k_experts"},
        rows=SHARED_ROWS,
        more=_gemma4,
    ),
}
