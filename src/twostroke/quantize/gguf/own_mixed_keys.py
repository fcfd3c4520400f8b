"""The keys of Apertus, Grok, Kimi Linear and MiMo-V2. own_keys.py has those of other families."""

from __future__ import annotations

from typing import Any

from twostroke.quantize.gguf.fields import Names, head_dim, rope_groups
from twostroke.weights.gguf.families.family import Config


def apertus(config: Config, _: Names) -> dict[str, Any]:
    """Returns the GGUF keys for the numbers of the activation xIELU, each a list over the layers."""
    return {f"xielu.{name}": [float(each) for each in numbers] for name, numbers in config["xielu"].items()}


def grok(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF key for the soft cap of the router's logits. llama.cpp reads this key, but does not use its
    value."""
    return {"router_logit_softcapping": 30.0}


def kimi_linear(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that Kimi Linear needs in addition to those of latent attention: which layers have latent
    attention, and those of its experts and linear layers."""
    layers = range(int(config["num_hidden_layers"]))
    linear = config.get("linear_attn_config") or {}
    renamed = {
        "expert_count": ("num_experts", "num_local_experts", "n_routed_experts"),
        "expert_used_count": ("num_experts_per_token", "num_experts_per_tok"),
        "expert_shared_count": ("num_shared_experts", "n_shared_experts"),
        "expert_group_count": ("num_expert_group", "n_group"),
    }
    found = {key: next((config[f] for f in fields if config.get(f)), None) for key, fields in renamed.items()}
    return {
        **found,
        "attention.head_count_kv": [int(f"blk.{index}.attn_kv_a_mqa.weight" in names) for index in layers],
        "attention.value_length": config.get("head_dim"),
        "expert_gating_func": 2,
        "expert_weights_norm": bool(config.get("moe_renormalize", config.get("norm_topk_prob", True))),
        "leading_dense_block_count": sum(f"blk.{index}.ffn_gate_inp.weight" not in names for index in layers),
        "kda.head_dim": linear.get("head_dim", config.get("linear_head_dim")),
        "ssm.conv_kernel": linear.get("short_conv_kernel_size", config.get("linear_conv_kernel_dim")),
    }


def mimo2(config: Config, names: Names) -> dict[str, Any]:
    """Returns the GGUF keys that MiMo-V2 needs. The model has twice as many KV heads in layers with a window as in
    others."""
    layers = range(int(config["num_hidden_layers"]))
    dim, base = head_dim(config), int(config.get("num_key_value_heads") or 4)
    pattern = config.get("hybrid_layer_pattern")
    types = config.get("layer_types") or ["full_attention"] * len(layers)
    windows = list(map(int, pattern)) if pattern else [int(each == "sliding_attention") for each in types]
    groups = rope_groups(config)
    full, sliding = (groups.get(kind) or {} for kind in ("full_attention", "sliding_attention"))
    share = full.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 0.334
    size, factor = config.get("sliding_window_size"), config.get("attention_value_scale", 0.707)
    return {
        "attention.head_count_kv": [base * (1 + each) for each in windows],
        "attention.sliding_window": config.get("sliding_window", 129) if size is None else int(size) + 1,
        "attention.sliding_window_pattern": windows,
        "attention.value_length": config.get("v_head_dim", 128),
        "attention.value_scale": None if factor is None else float(factor),
        "expert_gating_func": 2,
        "expert_weights_norm": bool(config.get("norm_topk_prob", True)),
        "rope.dimension_count": int(dim * share),
        "rope.freq_base": float(full.get("rope_theta") or config.get("rope_theta") or 5e6),
        "rope.freq_base_swa": float(sliding.get("rope_theta") or config.get("swa_rope_theta") or 1e4),
    }
