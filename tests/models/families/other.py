"""Tiny configs of families with a feature of their own, by the names that tests use: limits of q, k and v, norms of
heads, and experts that compute nothing."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import Config, small

IDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}
HALF: dict[str, Any] = {"rope_type": "default", "rope_theta": 25000.0, "partial_rotary_factor": 0.5}

persimmon = small(transformers.PersimmonConfig, rope_parameters=HALF, num_key_value_heads=4)
longcat_flash = small(
    transformers.LongcatFlashConfig,
    **{"ffn_hidden_size": 72, "intermediate_size": 72, "expert_ffn_hidden_size": 40, "n_routed_experts": 5},
    **{"zero_expert_num": 3, "moe_topk": 4, "q_lora_rank": 32, "kv_lora_rank": 24, "num_key_value_heads": 4},
    **{"qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16, "head_dim": 8, "num_hidden_layers": 4},
)
jetmoe = small(
    transformers.JetMoeConfig,
    **{"kv_channels": 12, "num_key_value_heads": 3, "num_local_experts": 5, "num_experts_per_tok": 2},
    **{"intermediate_size": 40, "rms_norm_eps": 1e-4, "num_attention_heads": 6},
    pad_token_id=None,  # otherwise its embedding would be zeros, and a router of the first layer would have no choice
)


def dbrx() -> transformers.PretrainedConfig:
    """transformers rotates by rope_parameters, other engines by the group's own rope_theta."""
    attention = {"kv_n_heads": 2, "clip_qkv": 1.0, "rope_theta": 500.0}
    experts = {"ffn_hidden_size": 40, "moe_num_experts": 6, "moe_top_k": 3}
    return transformers.DbrxConfig(
        **{"vocab_size": 199, "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 256, **IDS},
        **{"attn_config": attention, "ffn_config": experts, "initializer_range": 0.2},
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )


def fuyu() -> transformers.PretrainedConfig:
    text = {**persimmon()().to_dict(), "num_hidden_layers": 2, "qk_layernorm": False}
    return transformers.FuyuConfig(
        text_config=text, patch_size=4, num_channels=3, initializer_range=0.2, architectures=["FuyuForCausalLM"]
    )


OTHER: dict[str, Config] = {
    "dbrx": dbrx,
    "persimmon": persimmon(),
    "fuyu": fuyu,
    "longcat-flash": longcat_flash(),
    "jetmoe": jetmoe(),
}
