"""Published config.json files of models with latent attention: the fields that matter.

After each come three figures. The first is the parameters that the model's page names, in thousands of millions,
without the layers that predict further tokens. The second is those that a token uses by that page, or None where it
gives none or only one figure. The third is the bytes in the cache for one position in bfloat16.
"""

from __future__ import annotations

from typing import Any

from tests.models.published.dense import sizes

LATENT_BYTES = 2 * (512 + 64)
"""The bytes of one position in one layer, for all models here except MiniCPM3 and Mistral Small 4."""
HEADS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
V3_ROUTER = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "n_shared_experts": 1}


def yarn(mscale: float, factor: float = 40) -> dict[str, Any]:
    """The rope_scaling of DeepSeek."""
    said = {"beta_fast": 32, "beta_slow": 1, "mscale": mscale, "mscale_all_dim": mscale, "type": "yarn"}
    return {**said, "factor": factor, "original_max_position_embeddings": 4096}


def experts(count: int, chosen: int, inner: int, dense: int, scaling: float, **more: Any) -> dict[str, Any]:
    """Fields of DeepSeek's experts. dense: the number of layers without experts."""
    usual = {"n_routed_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": inner}
    return {**HEADS, **usual, "first_k_dense_replace": dense, "routed_scaling_factor": scaling, **more}


LITE = {"q_lora_rank": None, "n_shared_experts": 2, "topk_method": "greedy", "n_group": 1, "topk_group": 1}
V2 = {"q_lora_rank": 1536, "n_shared_experts": 2, "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3}
V3 = {"q_lora_rank": 1536, "n_group": 8, "topk_group": 4, "num_nextn_predict_layers": 1, **V3_ROUTER}
K2 = {"q_lora_rank": 1536, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0, **V3_ROUTER}
FLASH = {
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "q_lora_rank": 768,
    "n_group": 1,
    "topk_group": 1,
    "num_nextn_predict_layers": 1,
    "topk_method": "noaux_tc",
    "n_shared_experts": 1,
}
V4_YARN = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65_536}
V4_FLASH = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "vocab_size": 129_280,
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_hash_layers": 3,
    "qk_rope_head_dim": 64,
    "rope_scaling": V4_YARN,
    "torch_dtype": "bfloat16",
}
SMALL_4 = {"kv_lora_rank": 256, "qk_nope_head_dim": 64, "q_lora_rank": 1024, "n_shared_experts": 1}

PUBLISHED: dict[str, tuple[dict[str, Any], float, float | None, int]] = {
    "openbmb/MiniCPM3-4B": (
        sizes(
            "MiniCPM3ForCausalLM",
            *(73_448, 2560, 6400, 62, 40, 40),
            q_lora_rank=768,
            kv_lora_rank=256,
            qk_nope_head_dim=64,
            qk_rope_head_dim=32,
            scale_emb=12,
            scale_depth=1.4,
            dim_model_base=256,
        ),
        4.07,
        None,
        62 * 2 * (256 + 32),
    ),
    "tencent/Youtu-LLM-2B": (
        sizes("YoutuForCausalLM", 128_256, 2048, 6144, 32, 16, 16, q_lora_rank=1536, **HEADS),
        1.96,
        None,
        32 * LATENT_BYTES,
    ),
    "deepseek-ai/DeepSeek-V2-Lite": (
        sizes(
            "DeepseekV2ForCausalLM",
            *(102_400, 2048, 10_944, 27, 16, 16),
            **experts(64, 6, 1408, 1, 1.0, rope_scaling=yarn(0.707), **LITE),
        ),
        15.7,
        2.4,
        27 * LATENT_BYTES,
    ),
    "deepseek-ai/DeepSeek-V2": (
        sizes(
            "DeepseekV2ForCausalLM",
            *(102_400, 5120, 12_288, 60, 128, 128),
            **experts(160, 6, 1536, 1, 16.0, rope_scaling=yarn(1.0), **V2),
        ),
        236.0,
        21.0,
        60 * LATENT_BYTES,
    ),
    "deepseek-ai/DeepSeek-V3": (
        sizes(
            "DeepseekV3ForCausalLM",
            *(129_280, 7168, 18_432, 61, 128, 128),
            **experts(256, 8, 2048, 3, 2.5, rope_scaling=yarn(1.0), **V3),
        ),
        671.0,
        37.0,
        61 * LATENT_BYTES,
    ),
    "deepseek-ai/DeepSeek-V3.2": (
        sizes(
            "DeepseekV32ForCausalLM",
            *(129_280, 7168, 18_432, 61, 128, 128),
            **experts(256, 8, 2048, 3, 2.5, rope_scaling=yarn(1.0), **V3),
            index_head_dim=128,
            index_n_heads=64,
            index_topk=2048,
        ),
        671.0,
        37.0,
        61 * (LATENT_BYTES + 2 * 128),
    ),
    # The bytes of a window in each layer, of an entry of 512 numbers and one of 128 for 4 positions, and of one of 512
    # in each page.
    "deepseek-ai/DeepSeek-V4-Flash": (
        *(V4_FLASH, 284.0, 13.0),
        43 * 512 * 2 + 21 * (512 + 128) * 2 // 4 + 20 * 512 * 2 // 16,
    ),
    "moonshotai/Kimi-K2-Instruct": (
        sizes(
            "DeepseekV3ForCausalLM",
            *(163_840, 7168, 18_432, 61, 64, 64),
            model_type="kimi_k2",
            **experts(384, 8, 2048, 1, 2.827, rope_scaling=yarn(1.0, 32), **K2),
        ),
        1026.0,
        32.0,
        61 * LATENT_BYTES,
    ),
    "mistralai/Mistral-Small-4-119B": (
        sizes(
            "Mistral4ForCausalLM",
            *(131_072, 4096, 12_288, 36, 32, 32),
            **{**experts(128, 4, 2048, 0, 1.0), **SMALL_4},
        ),
        119.0,
        None,
        36 * 2 * (256 + 64),
    ),
    "meituan-longcat/LongCat-Flash-Chat": (  # its page: 560B; a token uses 18.6B to 31.3B
        {
            **{"architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash", "torch_dtype": "bfloat16"},
            **{"vocab_size": 131_072, "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, **HEADS},
            **{"q_lora_rank": 1536, "ffn_hidden_size": 12_288, "expert_ffn_hidden_size": 2048, "moe_topk": 12},
            **{"n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity"},
            **{"routed_scaling_factor": 6.0, "rope_theta": 1e7, "rms_norm_eps": 1e-5, "attention_method": "MLA"},
            **{"mla_scale_q_lora": True, "mla_scale_kv_lora": True, "max_position_embeddings": 131_072},
        },
        560.0,
        None,
        56 * LATENT_BYTES,
    ),
    "zai-org/GLM-4.7-Flash": (
        sizes(
            "Glm4MoeLiteForCausalLM",
            *(154_880, 2048, 10_240, 47, 20, 20),
            **{**experts(64, 4, 1536, 1, 1.8), **FLASH},
        ),
        30.0,
        None,
        47 * LATENT_BYTES,
    ),
    "zai-org/GLM-5": (
        sizes(
            "GlmMoeDsaForCausalLM",
            *(154_880, 6144, 12_288, 78, 64, 64),
            **{**experts(256, 8, 2048, 3, 2.5), **FLASH, "q_lora_rank": 2048},
            index_head_dim=128,
            index_n_heads=32,
            index_topk=2048,
        ),
        744.0,
        40.0,
        78 * (LATENT_BYTES + 2 * 128),
    ),
}
