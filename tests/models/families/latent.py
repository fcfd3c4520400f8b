"""Tiny configs of the families with latent attention, by the names that tests use.

The sizes hide no mistakes: the part of a head without rotation, the part with rotation and that of V all differ, and
latents are no multiples of 16.
"""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import Config, small

HEADS: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 28,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
MSCALED: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "mscale": 0.7,
    "mscale_all_dim": 1.1,
}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0 + 0.1 * i for i in range(4)],
    "long_factor": [2.0 + 0.3 * i for i in range(4)],
    "original_max_position_embeddings": 256,
    "rope_theta": 10000.0,
}

youtu = small(transformers.YoutuConfig, **HEADS)
minicpm3 = small(transformers.MiniCPM3Config, **HEADS, dim_model_base=24)
EXPERTS: dict[str, Any] = {
    "n_routed_experts": 12,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "routed_scaling_factor": 1.7,
}
GROUPS: dict[str, Any] = {"n_group": 4, "topk_group": 2}
deepseek_v2 = small(transformers.DeepseekV2Config, **HEADS, **EXPERTS, first_k_dense_replace=1)
deepseek_v3 = small(transformers.DeepseekV3Config, **HEADS, **EXPERTS, **GROUPS, first_k_dense_replace=1)
glm4_moe_lite = small(transformers.Glm4MoeLiteConfig, **HEADS, **EXPERTS)
deepseek_v32 = small(
    transformers.DeepseekV32Config,
    **{**HEADS, **EXPERTS, **GROUPS, "first_k_dense_replace": 1},
    head_dim=8,
    pad_token_id=None,  # otherwise its embedding would be zeros, all scores equal, and the judge's choice arbitrary
    index_topk=12,
    index_head_dim=20,
    index_n_heads=9,
)
glm_moe_dsa = small(
    transformers.GlmMoeDsaConfig,
    **{**HEADS, **EXPERTS, "pad_token_id": None, "index_topk": 12, "index_head_dim": 20, "index_n_heads": 9},
    mlp_layer_types=["dense", "sparse", "sparse"],
    indexer_types=["full", "shared", "full"],
)
V4_LAYERS = ["heavily_compressed_attention", "compressed_sparse_attention", "sliding_attention"]
deepseek_v4 = small(
    transformers.DeepseekV4Config,
    **{**EXPERTS, "n_shared_experts": 1, "pad_token_id": None, "num_key_value_heads": 1, "q_lora_rank": 28},
    **{"head_dim": 40, "qk_rope_head_dim": 8, "sliding_window": 20, "o_groups": 2, "o_lora_rank": 12},
    **{"index_topk": 6, "index_head_dim": 20, "index_n_heads": 9, "layer_types": V4_LAYERS, "swiglu_limit": 0.4},
    mlp_layer_types=["hash_moe", "moe", "hash_moe"],
    compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 24},
)
V4_YARN: dict[str, Any] = {**MSCALED, "rope_theta": 16000.0}
V4_YARN = {name: value for name, value in V4_YARN.items() if not name.startswith("mscale")}
mistral4 = small(
    transformers.Mistral4Config, **HEADS, **EXPERTS, first_k_dense_replace=1, architectures=["Mistral4ForCausalLM"]
)
GROWING: dict[str, Any] = {**MSCALED, "original_max_position_embeddings": 24, "llama_4_scaling_beta": 0.4}
kimi_linear = small(
    transformers.KimiLinearConfig,
    **{**HEADS, "q_lora_rank": None, "num_local_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2},
    **{"moe_intermediate_size": 24, "linear_head_dim": 20, "linear_num_heads": 3, "routed_scaling_factor": 1.7},
    layer_types=["linear_attention", "full_attention", "linear_attention"],
)


def kimi_k25() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and DeepSeek-V3 as the language model."""
    vision = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "pos_emb_height": 4,
        "pos_emb_width": 4,
        "pos_emb_time": 1,
    }
    return transformers.Kimi_K25Config(
        text_config=deepseek_v3()().to_dict(),
        vision_config=vision,
        projection_hidden_size=16,
        tie_word_embeddings=False,
        architectures=["Kimi_K25ForConditionalGeneration"],
    )


LATENT: dict[str, Config] = {
    "youtu": youtu(),
    "youtu-apart-biases": youtu(rope_interleave=False, attention_bias=True, tie_word_embeddings=False),
    "youtu-yarn-direct-queries": youtu(rope_parameters=MSCALED, q_lora_rank=None, kv_lora_rank=48),
    "minicpm3": minicpm3(),
    "minicpm3-longrope": minicpm3(rope_parameters=LONGROPE, v_head_dim=None, scale_depth=None, mlp_bias=True),
    "deepseek-v2-lite": deepseek_v2(q_lora_rank=None),
    "deepseek-v2-norm-topk": deepseek_v2(norm_topk_prob=True, routed_scaling_factor=1.7),
    "deepseek-v2-groups": deepseek_v2(
        **GROUPS, topk_method="group_limited_greedy", rope_parameters=MSCALED, attention_bias=True, mlp_bias=True
    ),
    "deepseek-v3": deepseek_v3(),
    "deepseek-v3-kimi-k2": deepseek_v3(
        n_group=1, topk_group=1, n_shared_experts=1, rope_parameters=MSCALED, norm_topk_prob=False
    ),
    "deepseek-v3.2": deepseek_v32(),
    "deepseek-v3.2-all-seen": deepseek_v32(index_topk=300, rope_parameters=MSCALED),
    "deepseek-v4": deepseek_v4(),
    "deepseek-v4-yarn-all-seen": deepseek_v4(
        **{
            "index_topk": 300,
            "hc_mult": 3,
            "rope_parameters": V4_YARN,
            "compress_rates": None,
            "scoring_func": "sigmoid",
        },
        **{"layer_types": None, "compress_ratios": [4, 0, 4], "num_hash_layers": 1, "mlp_layer_types": None},
    ),
    "kimi-k2.5": kimi_k25,
    "kimi-linear": kimi_linear(),
    "glm-5": glm_moe_dsa(),
    "mistral4": mistral4(rope_parameters=GROWING),
    "mistral4-direct-queries": mistral4(
        rope_parameters=GROWING, q_lora_rank=None, norm_topk_prob=False, rope_interleave=False
    ),
    "glm-4.7-flash": glm4_moe_lite(),
    "glm-4.7-flash-layers": glm4_moe_lite(
        mlp_layer_types=["dense", "sparse", "dense"], rope_interleave=False, attention_bias=True
    ),
}
