"""Decoders with experts: the names of their GGUF tensors and the fields of their config.json.

Sources: conversion/*.py of llama.cpp, MODEL_TENSORS of the `gguf` package.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.dense import GRANITE, HEAD_NORMS, windows_of
from twostroke.weights.gguf.families.family import Config, Family, Joined, Place
from twostroke.weights.gguf.families.names import (
    ATTENTION,
    DENSE,
    EXPERTS,
    GATE_AND_UP,
    GUESSES,
    MIXTRAL_EXPERTS,
    SHARED_GATE_AND_UP,
    choice_bias,
    expert_by_expert,
    shared,
    two_by_two,
)
from twostroke.weights.gguf.keys import Keys

COUNTS = {"expert_count": "num_experts"}
LOCAL = {"expert_count": "num_local_experts"}
DEEPSEEK = {
    "expert_count": "n_routed_experts",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "leading_dense_block_count": "first_k_dense_replace",
}
"""Keys of families that choose experts by DeepSeek-V3's rule."""

GATED_SHARED = {
    **shared("mlp.shared_expert"),
    "ffn_gate_inp_shexp": Place("mlp.shared_expert_gate", shape=lambda _, shape: (1, shape[-1])),
}
DEEPSEEK_NAMES = {
    **DENSE,
    **EXPERTS,
    **shared("mlp.shared_experts"),
    **choice_bias("mlp.gate.e_score_correction_bias"),
    **GUESSES,
}


def sigmoid_rule(keys: Keys, _: Config) -> dict[str, Any]:
    """Returns the fields of a router whose expert weights come from a sigmoid. They are divided by their sum only where
    the file asks for that."""
    if keys.number("expert_gating_func", 2) != 2:
        raise keys.wrong("expert_gating_func", "Experts of this family are chosen by a sigmoid (2).")
    keys.ignore("expert_shared_feed_forward_length")
    return {"norm_topk_prob": keys.truth("expert_weights_norm", False)}


def without_guesses(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns num_hidden_layers without the layers for multi-token prediction, which the key block_count includes."""
    guesses = keys.number("nextn_predict_layers", 0)
    return {"num_hidden_layers": config["num_hidden_layers"] - guesses}


def _glm4moe(keys: Keys, config: Config) -> dict[str, Any]:
    normed = keys.has_tensor("attn_q_norm.weight")
    keys.ignore("rope.dimension_sections")  # these sections belong to the positions of images
    return {**sigmoid_rule(keys, config), **without_guesses(keys, config), "use_qk_norm": normed}


def _exaone_moe(keys: Keys, config: Config) -> dict[str, Any]:
    keys.text("rope.scaling.type", "none")
    return {**sigmoid_rule(keys, config), **windows_of(keys, config), **without_guesses(keys, config)}


def _hy_v3(keys: Keys, config: Config) -> dict[str, Any]:
    layers = range(int(config["num_hidden_layers"]))
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in keys.tensors for index in layers]
    if not sigmoid_rule(keys, config)["norm_topk_prob"]:
        raise keys.wrong("expert_weights_norm", "Weights of this family are divided by their sum.")
    keys.ignore("leading_dense_block_count")
    types = ["sparse" if each else "dense" for each in sparse]
    return {"mlp_layer_types": types, "num_shared_experts": keys.number("expert_shared_count", 1)}


def _granite_shared(keys: Keys) -> str:
    return "granitemoeshared" if keys.number("expert_shared_feed_forward_length", 0) else ""


def _ernie(keys: Keys, config: Config) -> dict[str, Any]:
    keys.ignore("expert_shared_feed_forward_length")
    layers = range(int(config["num_hidden_layers"]))
    sparse = [index for index in layers if f"blk.{index}.ffn_gate_inp.weight" in keys.tensors]
    return {"use_bias": keys.has_tensor("attn_q.bias"), "moe_layer_end_index": max(sparse, default=-1)}


def _hunyuan(keys: Keys, config: Config) -> dict[str, Any]:
    keys.ignore("expert_shared_feed_forward_length", "rope.scaling.original_context_length")
    return {"intermediate_size": keys.number("expert_feed_forward_length", config["intermediate_size"])}


def _minimax(keys: Keys, config: Config) -> dict[str, Any]:
    keys.number("expert_gating_func", 2)
    keys.same("attention.value_length", config["head_dim"])
    turned = keys.number("rope.dimension_count", config["head_dim"])
    return {"rotary_dim": turned, "partial_rotary_factor": turned / config["head_dim"]}


def _phimoe(keys: Keys, config: Config) -> dict[str, Any]:
    rope, biased = config.get("rope_scaling"), keys.has_tensor("output.bias")
    if rope is None:
        keys.ignore("rope.scaling.attn_factor", "rope.scaling.original_context_length")
        return {"lm_head_bias": biased}
    factor = rope.pop("attention_factor", 1.0)
    return {"rope_scaling": {**rope, "short_mscale": factor, "long_mscale": factor}, "lm_head_bias": biased}


def _llama4(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Llama 4. Fields without a key have the values of all published models; with 128 experts,
    heads have no norms, as in llama.cpp."""
    keys.ignore("expert_gating_func")
    return {
        "intermediate_size_mlp": config["intermediate_size"],
        "intermediate_size": keys.number("expert_feed_forward_length"),
        "use_qk_norm": config["num_local_experts"] != 128,
        "attention_chunk_size": keys.number("attention.chunk_size", 8192),
        "attn_temperature_tuning": True,
    }


def _afmoe(keys: Keys, config: Config) -> dict[str, Any]:
    keys.number("expert_gating_func", 2)
    keys.truth("expert_weights_norm", True)
    return {"mup_enabled": True, **windows_of(keys, config)}


def _qwen2moe(keys: Keys, _: Config) -> dict[str, Any]:
    return {"norm_topk_prob": keys.truth("expert_weights_norm", False), "sliding_window": None}


def _qwen3moe(keys: Keys, _: Config) -> dict[str, Any]:
    return {"norm_topk_prob": keys.truth("expert_weights_norm", True), "sliding_window": None}


def _olmoe(keys: Keys, _: Config) -> dict[str, Any]:
    return {"norm_topk_prob": keys.truth("expert_weights_norm", False)}


def _gpt_oss(keys: Keys, config: Config) -> dict[str, Any]:
    keys.number("expert_feed_forward_length", 0)
    rope = config.get("rope_scaling")
    return {"rope_scaling": None if rope is None else {**rope, "truncate": False}}


GRANITE_MOE = {
    **ATTENTION,
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "block_sparse_moe.router.layer",
    "ffn_down_exps": "block_sparse_moe.output_linear",
    "ffn_down_shexp": "shared_mlp.output_linear",
}
GRANITE_STACK = Joined("block_sparse_moe.input_linear.weight", GATE_AND_UP, order=expert_by_expert, matrices=True)

FAMILIES: dict[str, Family] = {
    "mixtral": Family(
        "MixtralForCausalLM",
        "mixtral",
        {**DENSE, **MIXTRAL_EXPERTS},
        pairs=True,
        fixed={"sliding_window": None},
        keys=LOCAL,
    ),
    "qwen2moe": Family(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        {**DENSE, **EXPERTS, **GATED_SHARED},
        windows=True,
        keys={**COUNTS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        more=_qwen2moe,
    ),
    "qwen3moe": Family(
        "Qwen3MoeForCausalLM", "qwen3_moe", {**DENSE, **EXPERTS}, windows=True, keys=COUNTS, more=_qwen3moe
    ),
    "olmoe": Family("OlmoeForCausalLM", "olmoe", {**DENSE, **EXPERTS}, keys=COUNTS, more=_olmoe),
    "gpt-oss": Family(
        "GptOssForCausalLM",
        "gpt_oss",
        {
            **DENSE,
            "post_attention_norm": "post_attention_layernorm",
            "attn_sinks.weight": Place("self_attn.sinks", whole=True),
            "ffn_gate_inp": "mlp.router",
            "ffn_down_exps.bias": Place("mlp.experts.down_proj_bias", whole=True),
        },
        joined=(
            Joined("mlp.experts.gate_up_proj", GATE_AND_UP, order=two_by_two, matrices=True, turned=True),
            Joined("mlp.experts.gate_up_proj_bias", ("ffn_gate_exps.bias", "ffn_up_exps.bias"), order=two_by_two),
            Joined("mlp.experts.down_proj", ("ffn_down_exps.weight",), matrices=True, turned=True),
        ),
        windows=True,
        keys=LOCAL,
        more=_gpt_oss,
    ),
    "glm4moe": Family(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        {**DEEPSEEK_NAMES, "post_attention_norm": "post_attention_layernorm"},
        partial=True,
        keys=DEEPSEEK,
        more=_glm4moe,
    ),
    "dots1": Family(
        "Dots1ForCausalLM",
        "dots1",
        DEEPSEEK_NAMES,
        keys=DEEPSEEK,
        fixed={"sliding_window": None},
        more=sigmoid_rule,
    ),
    "granitemoe": Family(
        "GraniteMoeForCausalLM",
        "granitemoe",
        GRANITE_MOE,
        pairs=True,
        joined=(GRANITE_STACK,),
        chosen=_granite_shared,
        keys={**GRANITE, **LOCAL},
    ),
    "granitemoeshared": Family(
        "GraniteMoeSharedForCausalLM",
        "granitemoeshared",
        GRANITE_MOE,
        pairs=True,
        joined=(GRANITE_STACK, SHARED_GATE_AND_UP),
        keys={**GRANITE, **LOCAL, "expert_shared_feed_forward_length": "shared_intermediate_size"},
    ),
    "ernie4_5-moe": Family(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        {
            **DENSE,
            **EXPERTS,
            **shared("mlp.shared_experts"),
            "exp_probs_b.bias": Place(
                "mlp.moe_statics.e_score_correction_bias", shape=lambda _, shape: (1, shape[-1]), whole=True
            ),
        },
        keys={
            "expert_count": "moe_num_experts",
            "interleave_moe_layer_step": "moe_layer_interval",
            "leading_dense_block_count": "moe_layer_start_index",
            "expert_shared_count": "moe_num_shared_experts",
        },
        renamed={"num_experts_per_tok": "moe_k"},
        more=_ernie,
    ),
    "exaone-moe": Family(
        "ExaoneMoeForCausalLM",
        "exaone_moe",
        {**DEEPSEEK_NAMES, **choice_bias("mlp.e_score_correction_bias")},
        windows=True,
        keys={**DEEPSEEK, **COUNTS, "expert_shared_count": "num_shared_experts"},
        more=_exaone_moe,
    ),
    "hy_v3": Family(
        "HYV3ForCausalLM",
        "hy_v3",
        {
            **DENSE,
            **EXPERTS,
            "ffn_gate_inp": "mlp.router.gate",
            **shared("mlp.shared_mlp"),
            **choice_bias("mlp.expert_bias"),
            **GUESSES,
        },
        keys={**COUNTS, "expert_weights_scale": "router_scaling_factor"},
        more=_hy_v3,
    ),
    "hunyuan-moe": Family(
        "HunYuanMoEV1ForCausalLM",
        "hunyuan_v1_moe",
        {**DENSE, **EXPERTS, **HEAD_NORMS, **shared("mlp.shared_mlp"), "ffn_gate_inp": "mlp.gate.wg"},
        keys={**COUNTS, "expert_shared_count": "num_shared_expert"},
        renamed={"num_experts_per_tok": "moe_topk"},
        more=_hunyuan,
    ),
    "minimax-m2": Family(
        "MiniMaxM2ForCausalLM",
        "minimax_m2",
        {**DENSE, **MIXTRAL_EXPERTS, **choice_bias("block_sparse_moe.e_score_correction_bias")},
        apart=True,
        keys=LOCAL,
        more=_minimax,
    ),
    "phimoe": Family(
        "PhimoeForCausalLM", "phimoe", {**DENSE, **MIXTRAL_EXPERTS}, windows=True, keys=LOCAL, more=_phimoe
    ),
    "llama4": Family(
        "Llama4ForCausalLM",
        "llama4_text",
        {
            **ATTENTION,
            "ffn_norm": "post_attention_layernorm",
            **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
            "ffn_gate_inp": "feed_forward.router",
            **shared("feed_forward.shared_expert"),
        },
        joined=(
            Joined(
                "feed_forward.experts.gate_up_proj", GATE_AND_UP, order=expert_by_expert, matrices=True, turned=True
            ),
            Joined("feed_forward.experts.down_proj", ("ffn_down_exps.weight",), matrices=True, turned=True),
        ),
        keys={**LOCAL, "interleave_moe_layer_step": "interleave_moe_layer_step"},
        more=_llama4,
    ),
    "afmoe": Family(
        "AfmoeForCausalLM",
        "afmoe",
        {
            **DEEPSEEK_NAMES,
            "attn_gate": "self_attn.gate_proj",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_mlp_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_gate_inp": "mlp.router.gate",
            **choice_bias("mlp.expert_bias"),
        },
        windows=True,
        keys={
            **COUNTS,
            "leading_dense_block_count": "num_dense_layers",
            "expert_shared_count": "num_shared_experts",
            "expert_weights_scale": "route_scale",
        },
        more=_afmoe,
    ),
}
