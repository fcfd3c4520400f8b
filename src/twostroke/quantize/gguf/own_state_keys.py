"""The keys of families that keep a state. own_keys.py has those of other families."""

from __future__ import annotations

from typing import Any

from twostroke.quantize.gguf.fields import Names, head_dim, rope_of
from twostroke.weights.gguf.families.family import Config


def states(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that a model needs whose layers are all Mamba 1, or all Mamba 2."""
    inner = int(config.get("intermediate_size") or config["expand"] * config["hidden_size"])
    inner = int(config["num_heads"] * config["head_dim"]) if "num_heads" in config else inner
    return {
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.key_length": None,
        "attention.layer_norm_epsilon": None,
        "ssm.inner_size": inner,
    }


def falcon_mamba(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Falcon Mamba needs: Mamba with norms."""
    return {**states(config, names), "ssm.dt_b_c_rms": True}


def jamba(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Jamba needs: Mamba and attention."""
    return {
        **_of_attending(config, names),
        "ssm.inner_size": int(config.get("mamba_expand", 2) * config["hidden_size"]),
        "expert_count": config.get("num_experts"),
        "attention.key_length": None,
        "attention.value_length": None,
        "rope.dimension_count": None,
        "rope.freq_base": None,
    }


def _of_attending(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF key that lists the number of KV heads of each layer; the number is 0 for layers without
    attention."""
    kv = int(config.get("num_key_value_heads") or config["num_attention_heads"])
    layers = range(int(config["num_hidden_layers"]))
    return {"attention.head_count_kv": [kv if f"blk.{index}.attn_q.weight" in names else 0 for index in layers]}


def granite_hybrid(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Granite 4 needs: Mamba 2 and attention."""
    turns = config.get("position_embedding_type") == "rope"
    return {
        **_of_attending(config, names),
        "ssm.inner_size": int(config.get("mamba_expand", 2) * config["hidden_size"]),
        "expert_shared_feed_forward_length": config.get("shared_intermediate_size"),
        "rope.scaling.finetuned": turns,
    }


def lfm2(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that LFM2 needs: short convolutions and attention."""
    epsilon = float(config.get("norm_eps", 1e-5))
    return {
        **_of_attending(config, names),
        "feed_forward_length": next(shape[0] for name, shape in names.items() if name.endswith("ffn_gate.weight")),
        "attention.layer_norm_rms_epsilon": epsilon,
    }


def lfm2moe(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that LFM2 with experts needs."""
    return {**lfm2(config, names), "expert_gating_func": 2}


def delta(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Qwen3-Next needs: the gated delta rule and attention."""
    dim = head_dim(config)
    share = config.get("partial_rotary_factor") or rope_of(config).get("partial_rotary_factor") or 0.25
    layers = range(int(config["num_hidden_layers"]))
    return {
        "attention.value_length": dim,
        "full_attention_interval": int(config.get("full_attention_interval") or 4),
        "attention.recurrent_layers": [f"blk.{index}.attn_q.weight" not in names for index in layers],
        "rope.dimension_count": int(dim * share),
        "ssm.inner_size": int(config["linear_num_value_heads"]) * int(config["linear_value_head_dim"]),
    }


def delta_sections(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Qwen3.5 needs: those of Qwen3-Next, and the sections of its rotary positions."""
    sections = rope_of(config).get("mrope_section") or [11, 11, 10]
    return {**delta(config, names), "rope.dimension_sections": [*map(int, sections), 0]}
