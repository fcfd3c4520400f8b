"""Published config.json files of models with experts: the fields that matter, and the figures of the models' pages.

Counts are in thousands of millions: all parameters, and those that a token uses (None where the page gives no figure).
Many pages give rough figures. Some count the embedding among the parameters that a token uses, and some do not.
"""

from __future__ import annotations

from typing import Any

from tests.models.published.dense import sizes
from tests.models.published.states import GRANITE_LAYERS, mamba, states_bytes

TIED = {"tie_word_embeddings": True}
GRANITE = {**TIED, "num_experts_per_tok": 8}


def experts(count: int, chosen: int, inner: int, **more: Any) -> dict[str, Any]:
    """Fields of mixtures under their usual names."""
    return {"num_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": inner, **more}


def glm(**more: Any) -> dict[str, Any]:
    """The fields that GLM-4.5 models share."""
    usual = {"head_dim": 128, "partial_rotary_factor": 0.5, "n_shared_experts": 1, "norm_topk_prob": True}
    return {**usual, "attention_bias": True, **more}


def gpt_oss(layers: int, count: int) -> dict[str, Any]:
    """gpt-oss, whose sizes differ in two numbers."""
    more = {"head_dim": 64, "num_local_experts": count, "num_experts_per_tok": 4, "sliding_window": 128}
    return sizes("GptOssForCausalLM", 201_088, 2880, 2880, layers, 64, 8, **more)


LONG = {
    **{"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64},
    **{"short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122},
}
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
LFM2 = ["full_attention" if index in (2, 6, 10, 14, 18, 21) else "conv" for index in range(24)]

PUBLISHED: dict[str, tuple[dict[str, Any], float, float | None, int, int]] = {
    "openai/gpt-oss-20b": (gpt_oss(24, 32), 20.91, 3.61, 24 * 2 * 8 * 64 * 2, 0),
    "openai/gpt-oss-120b": (gpt_oss(36, 128), 116.83, 5.13, 36 * 2 * 8 * 64 * 2, 0),
    "databricks/dbrx-instruct": (  # its page: 132B, of which a token uses 36B
        {
            **{"architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "torch_dtype": "bfloat16"},
            **{"vocab_size": 100_352, "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32_768},
            "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000},
            "ffn_config": {"ffn_hidden_size": 10_752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        132.0, 36.0, 40 * 2 * 8 * 128 * 2, 0,
    ),
    "jetmoe/jetmoe-8b": (  # its page: 8.5B, of which a token uses 2.2B
        {
            **{"architectures": ["JetMoeForCausalLM"], "model_type": "jetmoe", "torch_dtype": "bfloat16"},
            **{"vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 24, "intermediate_size": 5632},
            **{"num_key_value_heads": 16, "kv_channels": 128, "num_local_experts": 8, "num_experts_per_tok": 2},
            **TIED,
        },
        8.52, 2.2, 24 * 2 * 16 * 128 * 2, 0,
    ),
    "zai-org/GLM-4.5-Air": (
        sizes(
            "Glm4MoeForCausalLM", 151_552, 4096, 10_944, 46, 96, 8,
            **experts(128, 8, 1408), **glm(first_k_dense_replace=1, routed_scaling_factor=1.0),
        ),
        106.0, 12.0, 46 * 2 * 8 * 128 * 2, 0,
    ),
    "ibm-granite/granite-3.1-1b-a400m-instruct": (
        sizes("GraniteMoeForCausalLM", 49_155, 1024, 512, 24, 16, 8, **GRANITE, num_local_experts=32),
        1.3, 0.4, 24 * 2 * 8 * 64 * 2, 0,
    ),
    "ibm-granite/granite-3.1-3b-a800m-instruct": (
        sizes("GraniteMoeForCausalLM", 49_155, 1536, 512, 32, 24, 8, **GRANITE, num_local_experts=40),
        3.3, 0.8, 32 * 2 * 8 * 64 * 2, 0,
    ),
    "ibm-granite/granite-4.0-h-tiny": (
        sizes(
            "GraniteMoeHybridForCausalLM", 100_352, 1536, 512, 40, 12, 4, num_local_experts=64, num_experts_per_tok=6,
            shared_intermediate_size=1024, layer_types=GRANITE_LAYERS, **TIED, **mamba(48, 64, 128),
        ),
        6.94, 1.0, 4 * 2 * 4 * 128 * 2, states_bytes(36, 48 * 64 * 128, 3072 + 256),
    ),
    "ibm-granite/granite-4.0-h-small": (
        sizes(
            "GraniteMoeHybridForCausalLM", 100_352, 4096, 768, 40, 32, 8, num_local_experts=72, num_experts_per_tok=10,
            shared_intermediate_size=1536, layer_types=GRANITE_LAYERS, **TIED, **mamba(128, 64, 128),
        ),
        32.2, 9.0, 4 * 2 * 8 * 128 * 2, states_bytes(36, 128 * 64 * 128, 8192 + 256),
    ),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (
        sizes(
            "NemotronHForCausalLM", 131_072, 2688, 1856, 52, 32, 2, head_dim=128, hybrid_override_pattern=NANO,
            mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128, n_groups=8, n_routed_experts=128,
            num_experts_per_tok=6, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
            n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True,
        ),
        31.6, 3.6, 6 * 2 * 2 * 128 * 2, states_bytes(23, 64 * 64 * 128, 4096 + 2 * 8 * 128),
    ),
    "Qwen/Qwen3.5-35B-A3B": (
        sizes(
            "Qwen3_5MoeForCausalLM", 248_320, 2048, 0, 40, 16, 2, **experts(256, 8, 512),
            shared_expert_intermediate_size=512,
        ),
        35.0, 3.0, 10 * 2 * 2 * 256 * 2, states_bytes(30, 32 * 128 * 128, (2 * 16 + 32) * 128),
    ),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        sizes(
            "Qwen2MoeForCausalLM", 151_936, 2048, 5632, 24, 16, 16, **experts(60, 4, 1408),
            shared_expert_intermediate_size=5632,
        ),
        14.3, 2.7, 24 * 2 * 16 * 128 * 2, 0,
    ),
    "Qwen/Qwen2-57B-A14B": (
        sizes(
            "Qwen2MoeForCausalLM", 151_936, 3584, 18_944, 28, 28, 4, **experts(64, 8, 2560),
            shared_expert_intermediate_size=20_480,
        ),
        57.4, 14.0, 28 * 2 * 4 * 128 * 2, 0,
    ),
    "allenai/OLMoE-1B-7B-0924": (
        sizes("OlmoeForCausalLM", 50_304, 2048, 1024, 16, 16, 16, num_experts=64, num_experts_per_tok=8),
        6.92, 1.28, 16 * 2 * 16 * 128 * 2, 0,
    ),
    "allenai/FlexOlmo-7x7B-1T": (
        sizes("FlexOlmoForCausalLM", 100_352, 4096, 11_008, 32, 32, 32, num_experts=7, num_experts_per_tok=5),
        33.0, None, 32 * 2 * 32 * 128 * 2, 0,
    ),
    "MiniMaxAI/MiniMax-M2": (
        sizes(
            "MiniMaxM2ForCausalLM", 200_064, 3072, 1536, 62, 48, 8, head_dim=128, rotary_dim=64,
            num_local_experts=256, num_experts_per_tok=8, scoring_func="sigmoid", use_qk_norm=True,
        ),
        229.0, 10.0, 62 * 2 * 8 * 128 * 2, 0,
    ),
    "baidu/ERNIE-4.5-21B-A3B-PT": (
        sizes(
            "Ernie4_5_MoeForCausalLM", 103_424, 2560, 12_288, 28, 20, 4, moe_num_experts=64, moe_k=6,
            moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1, **TIED,
        ),
        22.0, 3.0, 28 * 2 * 4 * 128 * 2, 0,
    ),
    "tencent/Hunyuan-A13B-Instruct": (
        sizes(
            "HunYuanMoEV1ForCausalLM", 128_167, 4096, 3072, 32, 32, 8, head_dim=128, num_experts=64,
            moe_topk=[8] * 32, num_shared_expert=[1] * 32, moe_intermediate_size=[3072] * 32, **TIED,
        ),
        80.0, 13.0, 32 * 2 * 8 * 128 * 2, 0,
    ),
    "rednote-hilab/dots.llm1.inst": (
        sizes(
            "Dots1ForCausalLM", 152_064, 4096, 10_944, 62, 32, 32, n_routed_experts=128, num_experts_per_tok=6,
            moe_intermediate_size=1408, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True,
        ),
        143.0, 14.0, 62 * 2 * 32 * 128 * 2, 0,
    ),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (
        {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text", "vocab_size": 202_048, "hidden_size": 5120, "intermediate_size": 8192,
                "intermediate_size_mlp": 16_384, "num_hidden_layers": 48, "num_attention_heads": 40,
                "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "no_rope_layers": [],
                "attn_temperature_tuning": 4, "use_qk_norm": True, "max_position_embeddings": 10_485_760,
            },
            "vision_config": {"hidden_size": 1408}, "vocab_size": 202_048, "hidden_size": 5120,
        },
        109.0, 17.0, 48 * 2 * 8 * 128 * 2, 0,
    ),
    "microsoft/Phi-3.5-MoE-instruct": (
        sizes(
            "PhiMoEForCausalLM", 32_064, 4096, 6400, 32, 32, 8, num_local_experts=16, num_experts_per_tok=2,
            attention_bias=True, lm_head_bias=True, max_position_embeddings=131_072, rope_scaling=LONG,
            original_max_position_embeddings=4096,
        ),
        41.9, 6.6, 32 * 2 * 8 * 128 * 2, 0,
    ),
    "hpcai-tech/grok-1": (
        sizes(
            "Grok1ModelForCausalLM", 131_072, 6144, 32_768, 64, 48, 8, num_experts=8, num_experts_per_tok=2,
            attn_output_multiplier=0.08838834764831845, embedding_multiplier_scale=78.38367176906169,
            output_multiplier_scale=0.5773502691896257, max_attn_value=30.0, model_type="grok-1", **TIED,
        ),
        314.0, None, 64 * 2 * 8 * 128 * 2, 0,
    ),
    "LiquidAI/LFM2-8B-A1B": (
        sizes(
            "Lfm2MoeForCausalLM", 65_536, 2048, 7168, 24, 32, 8, **experts(32, 4, 1792), num_dense_layers=2,
            layer_types=LFM2,
        ),
        8.3, 1.5, 6 * 2 * 8 * 64 * 2, 18 * 2 * 2048 * 4,
    ),
    "XiaomiMiMo/MiMo-V2-Flash": (
        sizes(
            "MiMoV2FlashForCausalLM", 152_576, 4096, 16_384, 48, 64, 4, head_dim=192, v_head_dim=128,
            n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, sliding_window_size=128,
        ),
        309.0, 15.0, (9 * 4 + 39 * 8) * (192 + 128) * 2, 0,
    ),
    "rhymes-ai/Aria": (
        {
            "architectures": ["AriaForConditionalGeneration"], "model_type": "aria",
            "text_config": sizes(
                "AriaTextForCausalLM", 100_352, 2560, 1664, 28, 20, 20, moe_num_experts=64, moe_topk=6,
                moe_num_shared_experts=2, model_type="aria_text",
            ),
            "vocab_size": 100_352, "hidden_size": 2560,
        },
        24.9, None, 28 * 2 * 20 * 128 * 2, 0,
    ),
    "zai-org/GLM-4.5V": (
        {
            "architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe",
            "text_config": sizes(
                "Glm4vMoeForConditionalGeneration", 151_552, 4096, 10_944, 46, 96, 8, n_routed_experts=128,
                num_experts_per_tok=8, moe_intermediate_size=1408, first_k_dense_replace=1, **glm(),
            ),
            "vocab_size": 151_552, "hidden_size": 4096,
        },
        106.0, 12.0, 46 * 2 * 8 * 128 * 2, 0,
    ),
}  # fmt: skip

ROUGHLY = {
    "allenai/FlexOlmo-7x7B-1T": 1.0,
    "zai-org/GLM-4.5-Air": 1.0,
    "zai-org/GLM-4.5V": 1.0,  # its language model is GLM-4.5-Air
    "ibm-granite/granite-3.1-1b-a400m-instruct": 0.1,
    "Qwen/Qwen3.5-35B-A3B": 1.0,
    "baidu/ERNIE-4.5-21B-A3B-PT": 1.0,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 2.0,  # its page counts the tower for images too
    "hpcai-tech/grok-1": 2.0,
}
"""Models whose pages give the number of parameters too roughly for an error of half a percent, and how rough the figure
is. All but the first are counted by hand below. The program agrees with that arithmetic; the pages round, or count
other parameters."""


def attention(width: int, heads: int, kv: int, dim: int) -> int:
    """The parameters of q, k, v and the output, without biases."""
    return 2 * width * heads * dim + 2 * width * kv * dim


DELTA = 2048 * (2 * 16 + 32 + 32) * 128 + 2 * 2048 * 32 + 4 * (2 * 16 + 32) * 128 + 32 + 32 + 128 + 32 * 128 * 2048
GATED = attention(2048, 16, 2, 256) + 2048 * 16 * 256 + 2 * 256
"""The parameters of two kinds of layers of Qwen3.5. One has the delta rule (qkv and z, two numbers for each head, a
convolution, A, dt, a norm, the output). The other has attention, whose queries bring gates."""
BY_HAND = {
    # layers x (attention with biases, two norms), a dense layer, 45 of 129 experts and a router with a bias, two tables
    "zai-org/GLM-4.5-Air": 46 * (attention(4096, 96, 8, 128) + (96 + 16) * 128 + 2 * 4096)
    + 3 * 4096 * 10_944
    + 45 * (129 * 3 * 4096 * 1408 + 128 * 4096 + 128)
    + 2 * 151_552 * 4096
    + 4096,
    "ibm-granite/granite-3.1-1b-a400m-instruct": 24
    * (attention(1024, 16, 8, 64) + 2 * 1024 + 32 * 3 * 1024 * 512 + 32 * 1024)
    + 49_155 * 1024
    + 1024,
    "Qwen/Qwen3.5-35B-A3B": 30 * DELTA
    + 10 * GATED
    + 40 * (2 * 2048 + 257 * 3 * 2048 * 512 + 257 * 2048)
    + 2 * 248_320 * 2048
    + 2048,
    "baidu/ERNIE-4.5-21B-A3B-PT": 28 * (attention(2560, 20, 4, 128) + 2 * 2560)
    + 3 * 2560 * 12_288
    + 27 * (66 * 3 * 2560 * 1536 + 64 * 2560 + 64)
    + 103_424 * 2560
    + 2560,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 48
    * (attention(5120, 40, 8, 128) + 2 * 5120 + 17 * 3 * 5120 * 8192 + 16 * 5120)
    + 2 * 202_048 * 5120
    + 5120,
    "hpcai-tech/grok-1": 64 * (attention(6144, 48, 8, 128) + 4 * 6144 + 8 * 3 * 6144 * 32_768 + 8 * 6144)
    + 131_072 * 6144
    + 6144,
}
