"""Published config.json files of models with states: the fields that matter, and the parameters of the files. Two more
figures are the bytes of K and V of one position in bfloat16, and the bytes that a sequence keeps whatever its length.

For models that also take images or guess several tokens, the figures are those of the language model alone.
"""

from __future__ import annotations

import math
from typing import Any

from tests.models.published.dense import sizes


def lfm2(hidden: int, inner: int, heads: int) -> dict[str, Any]:
    """Ten convolutions and six layers of attention."""
    named = {"full_attn_idxs": [2, 5, 8, 10, 12, 14], "block_ff_dim": inner, "conv_L_cache": 3}
    return sizes("Lfm2ForCausalLM", 65_536, hidden, inner, 16, heads, 8, **named)


def mamba(heads: int, of_head: int, numbers: int) -> dict[str, Any]:
    """Fields of the Mamba-2 layers of hybrids."""
    return {"mamba_n_heads": heads, "mamba_d_head": of_head, "mamba_d_state": numbers, "mamba_n_groups": 1}


def states_bytes(layers: int, numbers: int, channels: int, taps: int = 4) -> int:
    """The bytes of the states of `layers` layers: the scan's numbers, and the last inputs of the convolution."""
    return layers * 4 * (numbers + (taps - 1) * channels)


def mamba1(architecture: str, vocab: int, hidden: int, layers: int, **more: Any) -> dict[str, Any]:
    """Mamba's own fields."""
    usual = {"architectures": [architecture], "vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers}
    return {**usual, "intermediate_size": 2 * hidden, "state_size": 16, "time_step_rank": hidden // 16, **more}


def mamba2(
    hidden: int, layers: int, parameters: int, groups: int = 1, **more: Any
) -> tuple[dict[str, Any], int, int, int]:
    """A row with heads of 64 channels and 128 numbers of state for each channel."""
    inner = 2 * hidden
    config = {
        **{"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "vocab_size": 50_288, "hidden_size": hidden},
        **{"num_hidden_layers": layers, "num_heads": inner // 64, "head_dim": 64, "state_size": 128},
        **{"n_groups": groups, "conv_kernel": 4, "expand": 2, "tie_word_embeddings": True},
        **{"time_step_limit": [0.0, math.inf], "time_step_min": 0.001, **more},
    }
    return config, parameters, 0, states_bytes(layers, inner * 128, inner + 2 * groups * 128)


MAMBA2 = {
    "state-spaces/mamba2-130m": mamba2(768, 24, 128_989_632),
    "state-spaces/mamba2-1.3b": mamba2(2048, 48, 1_343_757_312),
    "state-spaces/mamba2-2.7b": mamba2(2560, 64, 2_702_599_680),
    "mistralai/Mamba-Codestral-7B-v0.1": mamba2(
        4096, 64, 7_285_403_648, groups=8, vocab_size=32_768, tie_word_embeddings=False
    ),
}
NEMOTRON_LAYERS = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
GRANITE_LAYERS = ["attention" if index in (5, 15, 25, 35) else "mamba" for index in range(40)]
NEXT = {"num_experts": 512, "num_experts_per_tok": 10, "full_attention_interval": 4, "rope_theta": 1e7}
DELTA = 32 * 128 * 128, (2 * 16 + 32) * 128
"""Numbers and channels of a layer of Qwen3-Next-80B-A3B and Qwen3.5-9B."""

MINIMAX = {
    **{f"layernorm_{name}_alpha": 3.5565588200778455 for name in ("full_attention", "linear_attention", "mlp")},
    **{"attn_type_list": ([0] * 7 + [1]) * 10, "num_local_experts": 32, "num_experts_per_tok": 2, "postnorm": True},
    **{"rope_theta": 1e7, "shared_intermediate_size": 0},
}

KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
"""The layers of Kimi Linear with latent attention, counted from 1."""
KIMI = {
    **{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "moe_layer_freq": 1, "rms_norm_eps": 1e-5},
    **{"qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": None, "num_shared_experts": 1, "num_experts": 256},
    **{"num_experts_per_token": 8, "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "mla_use_nope": True},
    **{"moe_router_activation_func": "sigmoid", "moe_renormalize": True, "num_expert_group": 1, "topk_group": 1},
    **{"routed_scaling_factor": 2.446, "model_max_length": 1_048_576, "num_nextn_predict_layers": 0},
    "linear_attn_config": {
        **{"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": KIMI_FULL},
        "kda_layers": [index for index in range(1, 28) if index not in KIMI_FULL],
    },
}

PUBLISHED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "LiquidAI/LFM2-350M": (lfm2(1024, 6656, 16), 354_483_968, 6 * 2 * 8 * 64 * 2, 10 * 2 * 1024 * 4),
    "LiquidAI/LFM2-700M": (lfm2(1536, 10_240, 24), 742_489_344, 6 * 2 * 8 * 64 * 2, 10 * 2 * 1536 * 4),
    "LiquidAI/LFM2-1.2B": (lfm2(2048, 12_288, 32), 1_170_340_608, 6 * 2 * 8 * 64 * 2, 10 * 2 * 2048 * 4),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (
        sizes("Qwen3NextForCausalLM", 151_936, 2048, 5120, 48, 16, 2, **NEXT),
        79_674_391_296,
        12 * 2 * 2 * 256 * 2,
        states_bytes(36, *DELTA),
    ),
    "Qwen/Qwen3.5-9B": (
        sizes("Qwen3_5ForCausalLM", 248_320, 4096, 12_288, 32, 16, 4),
        8_953_803_264,
        8 * 2 * 4 * 256 * 2,
        states_bytes(24, *DELTA),
    ),
    "tiiuae/Falcon-H1-0.5B-Base": (
        sizes(
            "FalconH1ForCausalLM", 32_784, 1024, 2048, 36, 8, 2, head_dim=64, mamba_d_ssm=1536, **mamba(24, 64, 128)
        ),
        521_411_104,
        36 * 2 * 2 * 64 * 2,
        states_bytes(36, 24 * 64 * 128, 1536 + 256),
    ),
    "ibm-ai-platform/Bamba-9B": (
        sizes(
            "BambaForCausalLM", 128_256, 4096, 14_336, 32, 32, 8, attn_layer_indices=[9, 18, 27],
            **mamba(128, 64, 128),
        ),
        9_780_235_392,
        3 * 2 * 8 * 128 * 2,
        states_bytes(29, 128 * 64 * 128, 8192 + 256),
    ),
    "state-spaces/mamba-130m-hf": (
        mamba1("MambaForCausalLM", 50_280, 768, 24),
        129_135_360,
        0,
        states_bytes(24, 1536 * 16, 1536),
    ),
    "state-spaces/mamba-2.8b-hf": (
        mamba1("MambaForCausalLM", 50_280, 2560, 64),
        2_768_345_600,
        0,
        states_bytes(64, 5120 * 16, 5120),
    ),
    "tiiuae/falcon-mamba-7b": (
        mamba1("FalconMambaForCausalLM", 65_024, 4096, 64, expand=16, tie_word_embeddings=False),
        7_272_665_088,
        0,
        states_bytes(64, 8192 * 16, 8192),
    ),
    "ai21labs/Jamba-v0.1": (
        sizes("JambaForCausalLM", 65_536, 4096, 14_336, 32, 32, 8, num_experts=16, mamba_dt_rank=256),
        51_570_323_328,
        4 * 2 * 8 * 128 * 2,
        states_bytes(28, 8192 * 16, 8192),
    ),
    "nvidia/Nemotron-H-8B-Base-8K": (
        {
            **sizes("NemotronHForCausalLM", 131_072, 4096, 21_504, 52, 32, 8),
            "hybrid_override_pattern": NEMOTRON_LAYERS,
        },
        8_100_852_736,
        4 * 2 * 8 * 128 * 2,
        states_bytes(24, 128 * 64 * 128, 8192 + 2 * 8 * 128),
    ),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (
        sizes("KimiLinearForCausalLM", 163_840, 2304, 9216, 27, 32, 32, **KIMI),
        49_122_681_728,
        7 * 2 * (512 + 64),
        20 * 4 * (32 * 128 * 128 + 3 * 3 * 32 * 128),
    ),
    "MiniMaxAI/MiniMax-Text-01": (
        sizes("MiniMaxText01ForCausalLM", 200_064, 6144, 9216, 80, 64, 8, head_dim=128, rotary_dim=64, **MINIMAX),
        456_089_655_296,
        10 * 2 * 8 * 128 * 2,
        70 * 64 * 128 * 128 * 4,
    ),
    "ibm-granite/granite-4.0-h-micro": (
        sizes(
            "GraniteMoeHybridForCausalLM", 100_352, 2048, 8192, 40, 32, 8, shared_intermediate_size=8192,
            num_local_experts=0, layer_types=GRANITE_LAYERS, tie_word_embeddings=True, **mamba(64, 64, 128),
        ),
        3_191_396_096,
        4 * 2 * 8 * 64 * 2,
        states_bytes(36, 64 * 64 * 128, 4096 + 256),
    ),
    **MAMBA2,
}  # fmt: skip
