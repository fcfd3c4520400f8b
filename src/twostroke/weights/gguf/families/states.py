"""Decoders that keep a state: Mamba, hybrids with attention, short convolutions.

Sources: conversion/{mamba,jamba,granite,nemotron,falcon_h1,lfm2}.py of llama.cpp.
"""

from __future__ import annotations

from typing import Any

from twostroke.weights.gguf.families.dense import GRANITE
from twostroke.weights.gguf.families.experts import COUNTS, DEEPSEEK, GRANITE_MOE, GRANITE_STACK, LOCAL
from twostroke.weights.gguf.families.family import OUTER, Config, Family, Joined, Place
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import (
    ATTENTION,
    SHARED_GATE_AND_UP,
    Names,
    choice_bias,
    filters,
    flat,
)
from twostroke.weights.gguf.keys import Keys


def mamba_names(prefix: str) -> Names:
    """Returns the names of the tensors of a Mamba layer (Mamba 1 and 2). prefix: the beginning of the Hugging Face
    names."""
    return {
        "ssm_a": Place(f"{prefix}.A_log", negated_exp=True, whole=True),
        "ssm_d": Place(f"{prefix}.D", whole=True),
        "ssm_conv1d.weight": Place(f"{prefix}.conv1d.weight", shape=filters, whole=True),
        "ssm_conv1d.bias": f"{prefix}.conv1d",
        "ssm_dt": f"{prefix}.dt_proj",
        "ssm_in": f"{prefix}.in_proj",
        "ssm_out": f"{prefix}.out_proj",
        "ssm_x": f"{prefix}.x_proj",
        "ssm_norm": Place(f"{prefix}.norm", shape=flat),
        **{f"ssm_{part}_norm": f"{prefix}.{part}_layernorm" for part in ("b", "c", "dt")},
    }


def mamba2_names(prefix: str) -> Names:
    """Returns the names for Mamba 2, which has one step and one decay for each head. A_log and D are vectors in Hugging
    Face checkpoints."""
    return {
        **mamba_names(prefix),
        "ssm_a": Place(f"{prefix}.A_log", shape=flat, negated_exp=True, whole=True),
        "ssm_d": Place(f"{prefix}.D", shape=flat, whole=True),
        "ssm_dt.bias": Place(f"{prefix}.dt_bias", whole=True),
    }


BACKBONE: Names = {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"}
FINAL: Names = {**OUTER, "output_norm": "model.final_layernorm"}
FED: Names = {f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")}
_RECURRENT = (
    KeyRow("ssm.conv_kernel", "conv_kernel", silent=4),
    KeyRow("ssm.state_size", "state_size"),
    KeyRow("attention.layer_norm_rms_epsilon", "layer_norm_epsilon", float, silent=1e-5),
)
MAMBA_ROWS = (*_RECURRENT, KeyRow("ssm.time_step_rank", "time_step_rank"))
MAMBA2_ROWS = (*_RECURRENT, KeyRow("ssm.group_count", "n_groups", silent=1), KeyRow("ssm.time_step_rank", "num_heads"))
_AMONG_OTHERS = KeyRow("ssm.conv_kernel", "mamba_d_conv", silent=4)
JAMBA_ROWS = (
    _AMONG_OTHERS,
    KeyRow("ssm.state_size", "mamba_d_state", silent=16),
    KeyRow("ssm.time_step_rank", "mamba_dt_rank"),
)
HYBRID_ROWS = (
    _AMONG_OTHERS,
    KeyRow("ssm.state_size", "mamba_d_state"),
    KeyRow("ssm.group_count", "mamba_n_groups", silent=1),
    KeyRow("ssm.time_step_rank", "mamba_n_heads"),
)
CONV_ROWS = (KeyRow("shortconv.l_cache", "conv_L_cache"),)
NO_HEADS = {"num_attention_heads": "", "num_key_value_heads": "", "intermediate_size": "", "rms_norm_eps": ""}


def attending(keys: Keys, layers: int) -> list[bool]:
    """Returns, for each layer, whether it has attention: such a layer has a matrix of queries in the file."""
    return [f"blk.{index}.attn_q.weight" in keys.tensors for index in range(layers)]


def _kv_heads(keys: Keys, config: Config) -> int:
    """Returns the number of KV heads in the layers that have any. The key is an array with zeros for the other layers.
    """
    found = set(keys.each("attention.head_count_kv", int(config["num_hidden_layers"]))) - {0}
    dim = config.get("head_dim") or config["hidden_size"] // max(1, config["num_attention_heads"])
    return found.pop() if len(found) == 1 else int(keys.tensor_shape("attn_k.weight")[0] // dim)


def _mamba(keys: Keys, config: Config) -> dict[str, Any]:
    inner = keys.number("ssm.inner_size")
    return {
        "expand": inner / config["hidden_size"],
        "intermediate_size": inner,
        "use_conv_bias": keys.has_tensor("ssm_conv1d.bias"),
        "use_bias": keys.has_tensor("ssm_in.bias"),
    }


def _falcon_mamba(keys: Keys) -> str:
    return "falcon-mamba" if keys.truth("ssm.dt_b_c_rms", False) else ""


def _mamba2(keys: Keys, config: Config) -> dict[str, Any]:
    heads = config["num_heads"]
    return {**_mamba(keys, config), "time_step_rank": heads, "head_dim": keys.number("ssm.inner_size") // heads}


def _every(layers: list[bool]) -> tuple[int, int]:
    """Returns the period and the offset of the True entries, from the first two of them. For example, (4, 3) means
    every fourth layer from layer 3 on. With fewer than two True entries, the period is the number of layers."""
    at = [index for index, each in enumerate(layers) if each]
    period = at[1] - at[0] if len(at) > 1 else len(layers)
    return period, at[0] if at else 0


def _jamba(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    attention = _every(attending(keys, layers))
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in keys.tensors for index in range(layers)]
    experts = _every(sparse)
    keys.ignore("expert_count")
    return {
        "mamba_expand": keys.number("ssm.inner_size") // config["hidden_size"],
        "mamba_conv_bias": keys.has_tensor("ssm_conv1d.bias"),
        "mamba_proj_bias": keys.has_tensor("ssm_in.bias"),
        "num_key_value_heads": _kv_heads(keys, config),
        "attn_layer_period": attention[0],
        "attn_layer_offset": attention[1],
        "expert_layer_period": experts[0],
        "expert_layer_offset": experts[1],
        "num_experts": max(1, keys.number("expert_count", 1)) if any(sparse) else 1,
    }


def _mamba2_fields(keys: Keys, config: Config) -> dict[str, Any]:
    inner = keys.number("ssm.inner_size")
    return {
        "mamba_d_head": inner // config["mamba_n_heads"],
        "mamba_d_ssm": inner,
        "mamba_conv_bias": keys.has_tensor("ssm_conv1d.bias"),
        "mamba_proj_bias": keys.has_tensor("ssm_in.bias"),
    }


def _granite_hybrid(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    experts = keys.number("expert_count", 0)
    shared = keys.number("expert_shared_feed_forward_length", 0) or config["intermediate_size"]
    turns = keys.truth("rope.scaling.finetuned", True)
    return {
        **_mamba2_fields(keys, config),
        "mamba_expand": keys.number("ssm.inner_size") // config["hidden_size"],
        "num_key_value_heads": _kv_heads(keys, config),
        "num_local_experts": experts,
        "shared_intermediate_size": shared,
        "position_embedding_type": "rope" if turns else "nope",
        "layer_types": ["attention" if each else "mamba" for each in attending(keys, layers)],
        **({} if keys.has("attention.scale") else {"attention_multiplier": _root(config)}),
    }


def _root(config: Config) -> float:
    return float((config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) ** -0.5)


def _nemotron_h(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    names = {"ssm_in.weight": "M", "attn_q.weight": "*", "ffn_gate_inp.weight": "E", "ffn_up.weight": "-"}

    def letter(index: int) -> str:
        found = [letter for name, letter in names.items() if f"blk.{index}.{name}" in keys.tensors]
        if len(found) != 1:
            raise keys.wrong("block_count", f"Layer {index} has {len(found)} of {', '.join(names)}.")
        return found[0]

    widths = set(keys.each("feed_forward_length", layers)) - {0}
    if len(widths) > 1:
        raise keys.wrong("feed_forward_length", "The blocks of this family have one width.")
    heads, inner = keys.number("ssm.time_step_rank"), keys.number("ssm.inner_size")
    keys.same("attention.value_length", config.get("head_dim"))
    keys.ignore("rope.dimension_count", "expert_weights_norm", "expert_gating_func", "attention.layer_norm_rms_epsilon")
    dense = keys.tensor_shape("ffn_up.weight")[0] if keys.has_tensor("ffn_up.weight") else (widths or {64}).pop()
    return {
        "hybrid_override_pattern": "".join(map(letter, range(layers))),
        "intermediate_size": dense,
        "num_key_value_heads": _kv_heads(keys, config),
        "ssm_state_size": keys.number("ssm.state_size"),
        "conv_kernel": keys.number("ssm.conv_kernel"),
        "n_groups": keys.number("ssm.group_count"),
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // heads,
        "use_conv_bias": keys.has_tensor("ssm_conv1d.bias"),
        "use_bias": keys.has_tensor("ssm_in.bias"),
        "mlp_bias": keys.has_tensor("ffn_up.bias") or keys.has_tensor("ffn_up_shexp.bias"),
        "norm_topk_prob": keys.truth("expert_weights_norm", True),
        "moe_latent_size": keys.number("moe_latent_size") if keys.has("moe_latent_size") else None,
    }


def _falcon_h1(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Falcon-H1. The converter multiplied the model's factors into the weights."""
    normed = keys.has_tensor("ssm_norm.weight")
    biased = keys.has_tensor("ssm_out.bias")
    return {
        **_mamba2_fields(keys, config),
        "mamba_rms_norm": normed,
        "mamba_norm_before_gate": False,
        "projectors_bias": biased,
    }


def _lfm2(keys: Keys, config: Config) -> dict[str, Any]:
    layers = int(config["num_hidden_layers"])
    return {
        "layer_types": ["full_attention" if each else "conv" for each in attending(keys, layers)],
        "num_key_value_heads": _kv_heads(keys, config),
        "conv_bias": keys.has_tensor("shortconv.conv.bias"),
        "block_auto_adjust_ff_dim": False,
        "tie_word_embeddings": "output.weight" not in keys.tensors,
    }


def _lfm2moe(keys: Keys, config: Config) -> dict[str, Any]:
    if keys.number("expert_gating_func", 2) != 2:
        raise keys.wrong("expert_gating_func", "Experts of this family are chosen by a sigmoid (2).")
    return {**_lfm2(keys, config), "use_expert_bias": keys.has_tensor("exp_probs_b.bias")}


LFM2: Names = {
    **ATTENTION,
    "attn_norm": "operator_norm",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
    "shortconv.conv.weight": Place("conv.conv.weight", shape=filters, whole=True),
    "shortconv.conv.bias": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_gate_inp": "feed_forward.gate",
    "ffn_gate_exps": "feed_forward.experts.{}.w1",
    "ffn_up_exps": "feed_forward.experts.{}.w3",
    "ffn_down_exps": "feed_forward.experts.{}.w2",
    **choice_bias("feed_forward.expert_bias"),
}
LFM2_OUTER: Names = {
    "token_embd": "model.embed_tokens",
    "token_embd_norm": "model.embedding_norm",
    "output_norm": "model.embedding_norm",
    "output": "lm_head",
}
NEMOTRON_H: Names = {
    "attn_norm": "norm",
    **{f"attn_{part}": f"mixer.{part}_proj" for part in ("q", "k", "v")},
    "attn_output": "mixer.o_proj",
    **mamba2_names("mixer"),
    **{f"ffn_{part}": f"mixer.{part}_proj" for part in ("up", "down")},
    "ffn_gate_inp": "mixer.gate",
    **{f"ffn_{part}_exps": f"mixer.experts.{{}}.{part}_proj" for part in ("up", "down")},
    **{f"ffn_{part}_shexp": f"mixer.shared_experts.{part}_proj" for part in ("up", "down")},
    "ffn_latent_down": "mixer.fc1_latent_proj",
    "ffn_latent_up": "mixer.fc2_latent_proj",
    **choice_bias("mixer.gate.e_score_correction_bias"),
}
HYBRID: Names = {**GRANITE_MOE, **mamba2_names("mamba"), "ffn_down": "shared_mlp.output_linear"}
NEMOTRON_EXPERTS = {
    **DEEPSEEK,
    "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
}
_MAMBA_LAYER: Names = {"attn_norm": "norm", **mamba_names("mixer")}


def _nemotron(experts: bool) -> Family:
    return Family(
        "NemotronHForCausalLM",
        "nemotron_h",
        NEMOTRON_H,
        outer={**BACKBONE, "token_embd": "backbone.embeddings"},
        layers="backbone.layers.",
        pairs=True,
        apart=True,
        keys=NEMOTRON_EXPERTS if experts else {},
        renamed={"intermediate_size": "", "num_key_value_heads": ""},
        more=_nemotron_h,
    )


FAMILIES: dict[str, Family] = {
    "mamba": Family(
        "MambaForCausalLM",
        "mamba",
        _MAMBA_LAYER,
        outer=BACKBONE,
        layers="backbone.layers.",
        apart=True,
        chosen=_falcon_mamba,
        rows=MAMBA_ROWS,
        renamed=NO_HEADS,
        more=_mamba,
    ),
    "falcon-mamba": Family(
        "FalconMambaForCausalLM",
        "falcon_mamba",
        _MAMBA_LAYER,
        outer=BACKBONE,
        layers="backbone.layers.",
        apart=True,
        rows=MAMBA_ROWS,
        renamed=NO_HEADS,
        more=_mamba,
    ),
    "mamba2": Family(
        "Mamba2ForCausalLM",
        "mamba2",
        {"attn_norm": "norm", **mamba2_names("mixer")},
        outer=BACKBONE,
        layers="backbone.layers.",
        apart=True,
        rows=MAMBA2_ROWS,
        renamed=NO_HEADS,
        more=_mamba2,
    ),
    "jamba": Family(
        "JambaForCausalLM",
        "jamba",
        {
            **ATTENTION,
            **mamba_names("mamba"),
            "ffn_norm": "pre_ff_layernorm",
            **FED,
            "ffn_gate_inp": "feed_forward.router",
            **{f"ffn_{part}_exps": f"feed_forward.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")},
        },
        outer=FINAL,
        renamed={"num_key_value_heads": ""},
        rows=JAMBA_ROWS,
        more=_jamba,
    ),
    "granitehybrid": Family(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        HYBRID,
        pairs=True,
        joined=(
            GRANITE_STACK,
            SHARED_GATE_AND_UP,
            Joined("shared_mlp.input_linear.weight", ("ffn_gate.weight", "ffn_up.weight")),
        ),
        keys={**GRANITE, **LOCAL},
        renamed={"num_key_value_heads": ""},
        rows=HYBRID_ROWS,
        more=_granite_hybrid,
    ),
    "nemotron_h": _nemotron(experts=False),
    "nemotron_h_moe": _nemotron(experts=True),
    "falcon-h1": Family(
        "FalconH1ForCausalLM",
        "falcon_h1",
        {
            **ATTENTION,
            **mamba2_names("mamba"),
            "ffn_norm": Place("pre_ff_layernorm.weight", whole=True),
            **FED,
        },
        outer=FINAL,
        rows=HYBRID_ROWS,
        more=_falcon_h1,
    ),
    "lfm2": Family(
        "Lfm2ForCausalLM",
        "lfm2",
        LFM2,
        outer=LFM2_OUTER,
        renamed={"rms_norm_eps": "norm_eps", "num_key_value_heads": ""},
        rows=CONV_ROWS,
        more=_lfm2,
    ),
    "lfm2moe": Family(
        "Lfm2MoeForCausalLM",
        "lfm2_moe",
        LFM2,
        outer=LFM2_OUTER,
        keys={**COUNTS, "leading_dense_block_count": "num_dense_layers"},
        renamed={"rms_norm_eps": "norm_eps", "num_key_value_heads": ""},
        rows=CONV_ROWS,
        more=_lfm2moe,
    ),
}
