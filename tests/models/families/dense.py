"""Tiny configs of the dense families, by the names that tests use.

The sizes hide no mistakes: the head size is not hidden size / heads, there are fewer KV heads than heads. Windows are
shorter than the sequences, and sizes are no multiples of 16 or 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers

Config = Callable[[], transformers.PretrainedConfig]

SIZES: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
SMALL: dict[str, Any] = {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def small(of: type[transformers.PretrainedConfig], **usual: Any) -> Callable[..., Config]:
    """Returns a function that makes such configs with changes."""
    return lambda **changes: lambda: of(**{**SMALL, **usual, **changes})


gemma = small(transformers.GemmaConfig, head_dim=24)
gemma2 = small(transformers.Gemma2Config, head_dim=24, sliding_window=20, query_pre_attn_scalar=20, num_hidden_layers=4)
gemma3 = small(
    transformers.Gemma3TextConfig, head_dim=24, sliding_window=20, query_pre_attn_scalar=20, num_hidden_layers=4
)
LINEAR_AT_FULL = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}


def gemma3_with_images() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and a language model whose config leaves usual fields out."""
    vision = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = gemma3(sliding_window_pattern=2)().to_dict()
    return transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)


LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
    "long_factor": [2.0 + 0.3 * i for i in range(6)],
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
}
YARN_AT_FULL = {
    "full_attention": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 5e5,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
}

phi3 = small(transformers.Phi3Config)
olmo2 = small(transformers.Olmo2Config)
olmo3 = small(transformers.Olmo3Config, sliding_window=20, num_hidden_layers=4)
smollm3 = small(transformers.SmolLM3Config, num_hidden_layers=4)
granite = small(
    transformers.GraniteConfig,
    embedding_multiplier=12.0,
    attention_multiplier=0.3,
    residual_multiplier=0.22,
    logits_scaling=8.0,
)
exaone4 = small(transformers.Exaone4Config, head_dim=24, sliding_window=20, num_hidden_layers=4)
cohere = small(transformers.CohereConfig, logit_scale=0.3)
cohere2 = small(transformers.Cohere2Config, logit_scale=0.3, sliding_window=20, num_hidden_layers=4)
glm = small(transformers.GlmConfig, head_dim=24)
glm4 = small(transformers.Glm4Config, head_dim=24)
seed_oss = small(transformers.SeedOssConfig, head_dim=24)
ministral3 = small(transformers.Ministral3Config, head_dim=24)
GROWING = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}
ernie4_5 = small(transformers.Ernie4_5Config, head_dim=24)
FOUR = ["sliding_attention", "full_attention"] * 2
gemma4 = small(
    transformers.Gemma4TextConfig,
    **{"head_dim": 24, "global_head_dim": 32, "sliding_window": 20, "num_hidden_layers": 4, "layer_types": FOUR},
    **{"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 199},
)
GEMMA4_EXPERTS = {
    **{"enable_moe_block": True, "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 40},
    **{"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
}

gemma3n = small(
    transformers.Gemma3nTextConfig,
    **{"head_dim": 24, "sliding_window": 20, "num_hidden_layers": 4, "layer_types": FOUR, "laurel_rank": 10},
    **{"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 199, "num_kv_shared_layers": 2},
    **{"intermediate_size": [112, 80, 112, 96], "activation_sparsity_pattern": [0.95, 0.6, 0.0, 0.0]},
)


def gemma3n_with_images() -> transformers.PretrainedConfig:
    """The language model has the names and the config of a checkpoint that also takes images and sound."""
    config = transformers.Gemma3nConfig(text_config=gemma3n()().to_dict())
    config.architectures = ["Gemma3nForConditionalGeneration"]
    return config


def gemma4_with_images() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and a language model."""
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision["head_dim"] = 8
    config = transformers.Gemma4Config(text_config=gemma4()().to_dict(), vision_config=vision, audio_config=None)
    config.architectures = ["Gemma4ForConditionalGeneration"]
    return config


DENSE: dict[str, Config] = {
    "gemma": gemma(),
    "gemma-odd-sizes": gemma(hidden_size=72, num_attention_heads=3, num_key_value_heads=1, hidden_act="gelu"),
    "gemma2": gemma2(),
    "gemma2-narrow-caps": gemma2(attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=True),
    "gemma2-no-caps": gemma2(attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma3": gemma3(sliding_window_pattern=3, rope_parameters=LINEAR_AT_FULL),
    "gemma3-capped": gemma3(layer_types=["full_attention", "sliding_attention"] * 2, final_logit_softcapping=2.0),
    "gemma3-with-images": gemma3_with_images,
    "gemma3n": gemma3n(),
    "gemma3n-three-streams": gemma3n(
        **{"altup_num_inputs": 3, "altup_active_idx": 1, "num_kv_shared_layers": 0, "altup_correct_scale": False},
        **{"attention_bias": True},
    ),
    "gemma3n-with-images": gemma3n_with_images,
    "gemma4": gemma4(num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=3.0),
    "gemma4-experts": gemma4(**GEMMA4_EXPERTS),
    "gemma4-fewer-kv-heads": gemma4(attention_k_eq_v=True, num_global_key_value_heads=2, num_key_value_heads=4),
    "gemma4-with-images": gemma4_with_images,
    "phi3": phi3(sliding_window=20),
    "phi3-longrope-short": phi3(
        rope_parameters=LONGROPE, original_max_position_embeddings=256, max_position_embeddings=1024
    ),
    "phi3-longrope-long": phi3(rope_parameters=LONGROPE, original_max_position_embeddings=64, tie_word_embeddings=True),
    "olmo2": olmo2(),
    "olmo2-odd-sizes": olmo2(hidden_size=60, num_attention_heads=3, num_key_value_heads=1, attention_bias=True),
    "olmo3": olmo3(rope_parameters=YARN_AT_FULL),
    "olmo3-types": olmo3(layer_types=["full_attention", "sliding_attention"] * 2),
    "smollm3": smollm3(),
    "smollm3-window": smollm3(
        use_sliding_window=True, sliding_window=20, no_rope_layers=[0, 1, 1, 0], attention_bias=True, mlp_bias=True
    ),
    "granite": granite(),
    "granite-biases": granite(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, num_key_value_heads=1),
    "exaone4": exaone4(),
    "exaone4-all-full": exaone4(sliding_window=None, layer_types=["full_attention"] * 4, tie_word_embeddings=True),
    "cohere": cohere(),
    "cohere-odd-sizes": cohere(
        hidden_size=60, num_attention_heads=6, num_key_value_heads=3, attention_bias=True, use_qk_norm=True
    ),
    "cohere2": cohere2(),
    "cohere2-pattern": cohere2(sliding_window_pattern=2, tie_word_embeddings=False),
    "glm": glm(partial_rotary_factor=0.5),
    "glm4": glm4(partial_rotary_factor=0.5),
    "glm4-three-quarters": glm4(
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75}
    ),
    "seed-oss": seed_oss(),
    "seed-oss-biases": seed_oss(attention_bias=False, attention_out_bias=True, mlp_bias=True),
    "ministral3": ministral3(rope_parameters=GROWING),
    "ministral3-window": ministral3(rope_parameters=GROWING, sliding_window=20, tie_word_embeddings=True),
    "ernie4-5": ernie4_5(),
    "ernie4-5-biases": ernie4_5(use_bias=True, tie_word_embeddings=False),
}
