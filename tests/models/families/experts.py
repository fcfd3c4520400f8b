"""Tiny configs of the families with experts, by the names that tests use.

The sizes hide no mistakes: the number of experts is no power of two. Experts are narrower than the dense layers, and
dense layers come before the first layer with experts.
"""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import Config, small
from tests.models.families.states import BLOCKS, DELTA, MAMBA, granite
from tests.models.grok1 import Grok1Config

FEW = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
SIGMOID = {
    **{"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1},
    **{"first_k_dense_replace": 1, "routed_scaling_factor": 1.7, "head_dim": 24, "norm_topk_prob": True},
}
YARN = {
    **{"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    **{"original_max_position_embeddings": 64, "rope_theta": 150_000.0},
}
FACTORS = {
    **{"attention_multiplier": 0.2, "residual_multiplier": 0.4, "embedding_multiplier": 3.0, "logits_scaling": 1.7},
}

gpt_oss = small(
    transformers.GptOssConfig,
    **{"num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 20},
    **{"rope_parameters": YARN, "swiglu_limit": 1.5},
)
qwen2_moe = small(
    transformers.Qwen2MoeConfig, **FEW, num_experts=6, shared_expert_intermediate_size=48, mlp_only_layers=[1]
)
qwen3_5_moe = small(
    transformers.Qwen3_5MoeTextConfig, **DELTA, **FEW, num_experts=6, shared_expert_intermediate_size=48
)
olmoe = small(transformers.OlmoeConfig, num_experts=6, num_experts_per_tok=3, intermediate_size=40)
flex_olmo = small(transformers.FlexOlmoConfig, num_experts=6, num_experts_per_tok=3, intermediate_size=40)
glm4_moe = small(transformers.Glm4MoeConfig, **SIGMOID)
dots1 = small(transformers.Dots1Config, **SIGMOID, sliding_window=20, max_window_layers=2)
granite_moe = small(
    transformers.GraniteMoeConfig, **FACTORS, num_local_experts=6, num_experts_per_tok=3, intermediate_size=40
)
granite_moe_shared = small(
    transformers.GraniteMoeSharedConfig,
    **{**FACTORS, "num_local_experts": 6, "intermediate_size": 40, "shared_intermediate_size": 48},
)
nemotron_h_moe = small(
    transformers.NemotronHConfig,
    **{"layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "head_dim": 24},
    **{"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 24, "n_groups": 2, "chunk_size": 16},
    **{"num_hidden_layers": 4, "time_step_min": 1e-9, "time_step_floor": 1e-3},
    **{"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "routed_scaling_factor": 2.5},
    **{"moe_shared_expert_intermediate_size": 56},
)

minimax_m2 = small(
    transformers.MiniMaxM2Config,
    **{"num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 40, "head_dim": 24},
    rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
)
ernie4_5_moe = small(
    transformers.Ernie4_5_MoeConfig,
    **{"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 40, "moe_num_shared_experts": 1},
)
hunyuan_moe = small(transformers.HunYuanMoEV1Config, num_experts=6, moe_topk=2, intermediate_size=40, head_dim=24)
lfm2_moe = small(
    transformers.Lfm2MoeConfig,
    **{"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "num_dense_layers": 1},
    **{**FEW, "num_experts": 6, "routed_scaling_factor": 1.3},
)
exaone_moe = small(
    transformers.ExaoneMoeConfig,
    **{"num_hidden_layers": 4, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40},
    **{"sliding_window": 20, "head_dim": 24},
)
hy_v3 = small(transformers.HYV3Config, **FEW, num_experts=6, head_dim=24)
solar_open = small(transformers.SolarOpenConfig, **{**SIGMOID, "first_k_dense_replace": 0})
afmoe = small(
    transformers.AfmoeConfig,
    **{**FEW, "num_experts": 6, "num_shared_experts": 1, "num_hidden_layers": 4, "sliding_window": 20, "head_dim": 24},
    **{"mup_enabled": True, "route_scale": 1.4, "global_attn_every_n_layers": 2},
)

llama4 = small(
    transformers.Llama4TextConfig,
    **{"num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 6, "intermediate_size": 40, "floor_scale": 8},
    **{"intermediate_size_mlp": 72, "interleave_moe_layer_step": 2, "attention_chunk_size": 20, "attn_scale": 0.3},
    **{"moe_layers": None, "no_rope_layers": None},
)
LONGROPE = {
    **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 256, "factor": 4.0},
    **{"short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [2.0 + 0.3 * i for i in range(8)]},
    **{"short_mscale": 1.2, "long_mscale": 1.2},
}
phimoe = small(transformers.PhimoeConfig, num_local_experts=6, intermediate_size=40, router_jitter_noise=0.3)

grok1 = small(Grok1Config, num_experts=6, intermediate_size=40, tie_word_embeddings=True)


def llama4_with_images() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and a language model."""
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16, "image_size": 28}
    config = transformers.Llama4Config(text_config=llama4()().to_dict(), vision_config={**vision, "patch_size": 14})
    config.architectures = ["Llama4ForConditionalGeneration"]
    return config


def qwen3_5_moe_with_images() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and a language model."""
    vision = {"hidden_size": 16, "intermediate_size": 24, "depth": 1, "num_heads": 2, "out_hidden_size": 64}
    config = transformers.Qwen3_5MoeConfig(text_config=qwen3_5_moe()().to_dict(), vision_config=vision)
    config.architectures = ["Qwen3_5MoeForConditionalGeneration"]
    return config


def in_groups(**more: Any) -> dict[str, Any]:
    """Eight experts in four groups; a token may use two groups."""
    return {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, **more}


EXPERTS: dict[str, Config] = {
    "gpt-oss": gpt_oss(),
    "gpt-oss-plain-rope": gpt_oss(
        attention_bias=False, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    ),
    "qwen2-moe": qwen2_moe(),
    "qwen2-moe-window": qwen2_moe(
        use_sliding_window=True, sliding_window=20, max_window_layers=2, norm_topk_prob=True, decoder_sparse_step=2
    ),
    "qwen3.5-moe": qwen3_5_moe(),
    "qwen3.5-moe-with-images": qwen3_5_moe_with_images,
    "olmoe": olmoe(),
    "olmoe-grouped": olmoe(num_key_value_heads=2, norm_topk_prob=True, attention_bias=True, clip_qkv=1.0),
    "flex-olmo": flex_olmo(),
    "glm-4.5": glm4_moe(use_qk_norm=True, attention_bias=True),
    "glm-4.5-groups": glm4_moe(**in_groups(n_shared_experts=2, first_k_dense_replace=0)),
    "dots1": dots1(),
    "dots1-unnormed-weights": dots1(**in_groups(norm_topk_prob=False, attention_bias=True)),
    "granite-moe": granite_moe(),
    "granite-moe-shared": granite_moe_shared(tie_word_embeddings=True),
    "granite-4-hybrid-moe": granite(**{**MAMBA, "layer_types": BLOCKS}, num_local_experts=6, intermediate_size=40),
    "minimax-m2": minimax_m2(),
    "ernie-4.5-moe": ernie4_5_moe(),
    "ernie-4.5-moe-interval": ernie4_5_moe(
        num_hidden_layers=4,
        moe_layer_interval=2,
        moe_layer_end_index=2,
        moe_num_shared_experts=0,
        tie_word_embeddings=False,
    ),
    "hunyuan-moe": hunyuan_moe(),
    "lfm2-moe": lfm2_moe(),
    "lfm2-moe-without-bias": lfm2_moe(use_expert_bias=False, norm_topk_prob=False, tie_word_embeddings=False),
    "exaone-moe": exaone_moe(),
    "hy-v3": hy_v3(),
    "solar-open": solar_open(),
    "afmoe": afmoe(),
    "llama4": llama4(),
    "llama4-without-norms": llama4(
        use_qk_norm=False, attn_temperature_tuning=False, interleave_moe_layer_step=1, num_experts_per_tok=2
    ),
    "llama4-with-images": llama4_with_images,
    "grok-1": grok1(),
    "grok-1-low-cap": grok1(max_attn_value=2.0, num_experts_per_tok=3, num_hidden_layers=2),
    "phimoe": phimoe(attention_bias=True, lm_head_bias=True),
    "phimoe-longrope": phimoe(rope_parameters=LONGROPE, max_position_embeddings=256, sliding_window=30),
    "nemotron-h-moe": nemotron_h_moe(),
    "nemotron-h-moe-latent": nemotron_h_moe(moe_latent_size=32, mlp_bias=True),
}
