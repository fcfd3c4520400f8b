"""Tiny configs of the families with states, by the names that tests use.

The sizes hide no mistakes: a group has several heads. Rows and columns of states differ and are no multiples of 16, and
layers of each kind come in more than one order.
"""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import SMALL, Config, small

FEW = {name: value for name, value in SMALL.items() if "heads" not in name and name != "intermediate_size"}


def mamba2(**changes: Any) -> Config:
    heads = {"num_heads": 8, "head_dim": 16, "state_size": 24, "n_groups": 2, "chunk_size": 16}
    return lambda: transformers.Mamba2Config(**{**FEW, **heads, **changes})


DELTA = {
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 20, "linear_value_head_dim": 24},
    **{"num_hidden_layers": 4, "head_dim": 16, "layer_types": ["linear_attention", "full_attention"] * 2},
}
EXPERTS = {
    **{"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40},
    **{"shared_expert_intermediate_size": 48, "mlp_only_layers": [1]},
}
MAMBA = {
    **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_chunk_size": 16},
    **{"num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
}
BLOCKS = ["linear_attention", "full_attention", "full_attention", "linear_attention"]

qwen3_next = small(transformers.Qwen3NextConfig, **DELTA, **EXPERTS)
qwen3_5 = small(transformers.Qwen3_5TextConfig, **DELTA)
lfm2 = small(transformers.Lfm2Config, num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"])
bamba = small(transformers.BambaConfig, **MAMBA)
falcon_h1 = small(transformers.FalconH1Config, **{**MAMBA, "num_hidden_layers": 2, "mamba_d_ssm": 128})
granite = small(
    transformers.GraniteMoeHybridConfig,
    **{**MAMBA, "layer_types": BLOCKS, "num_local_experts": 0, "shared_intermediate_size": 80},
    **{"attention_multiplier": 0.2, "residual_multiplier": 0.4, "embedding_multiplier": 3.0, "logits_scaling": 1.7},
)


def mamba(**changes: Any) -> Config:
    return lambda: transformers.MambaConfig(**{**FEW, "state_size": 12, "time_step_rank": 7, **changes})


def falcon_mamba(**changes: Any) -> Config:
    return lambda: transformers.FalconMambaConfig(**{**FEW, "state_size": 12, **changes})


jamba = small(
    transformers.JambaConfig,
    **{"num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2},
    **{"num_experts": 5, "num_experts_per_tok": 2, "mamba_d_state": 12, "mamba_dt_rank": 6},
)
nemotron_h = small(
    transformers.NemotronHConfig,
    **{"layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"], "head_dim": 24},
    **{"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 24, "n_groups": 2, "chunk_size": 16},
    **{"num_hidden_layers": 4, "time_step_min": 1e-9, "time_step_floor": 1e-3},
)
zamba2 = small(
    transformers.Zamba2Config,
    **{"layers_block_type": ["mamba", "hybrid", "hybrid", "hybrid"], "num_hidden_layers": 4, "num_mem_blocks": 2},
    **{"n_mamba_heads": 8, "mamba_ngroups": 2, "mamba_d_state": 24, "chunk_size": 16, "adapter_rank": 12},
    **{"use_shared_attention_adapter": True, "use_mem_rope": True, "num_key_value_heads": 4, "time_step_min": 0.1},
    initializer_range=0.1,  # with larger weights float32 loses four digits in transformers too
)
zamba = small(
    transformers.ZambaConfig,
    **{"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "num_hidden_layers": 4, "mamba_d_state": 12},
    **{"num_key_value_heads": 4, "mamba_dt_rank": 6, "initializer_range": 0.1},
)
recurrent_gemma = small(
    transformers.RecurrentGemmaConfig,
    **{"lru_width": 96, "attention_window_size": 20, "num_hidden_layers": 4, "logits_soft_cap": 20.0},
)
minimax = small(
    transformers.MiniMaxConfig,
    **{"layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 24, "block_size": 32},
    **{"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 40, "mlp_alpha_factor": 1.6},
    **{"full_attn_alpha_factor": 1.3, "full_attn_beta_factor": 0.8, "linear_attn_alpha_factor": 0.7},
    **{"linear_attn_beta_factor": 1.2, "mlp_beta_factor": 0.9},
)
FACTORS = {
    **{"embedding_multiplier": 1.3, "lm_head_multiplier": 0.7, "key_multiplier": 0.6, "attention_in_multiplier": 1.2},
    **{"attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.1, "ssm_out_multiplier": 0.9},
    **{"ssm_multipliers": [0.7, 1.2, 0.8, 1.4, 0.6], "mlp_multipliers": [0.8, 1.3]},
}


def qwen3_5_with_images() -> transformers.PretrainedConfig:
    """A vision tower of one layer, and a language model."""
    vision = {"hidden_size": 16, "intermediate_size": 24, "depth": 1, "num_heads": 2, "out_hidden_size": 64}
    config = transformers.Qwen3_5Config(text_config=qwen3_5()().to_dict(), vision_config=vision)
    config.architectures = ["Qwen3_5ForConditionalGeneration"]
    return config


STATES: dict[str, Config] = {
    "mamba2": mamba2(),
    "mamba2-tied": mamba2(tie_word_embeddings=True, n_groups=1, use_bias=True, conv_kernel=3),
    "mamba2-odd-sizes": mamba2(
        vocab_size=101, hidden_size=45, num_heads=6, head_dim=15, state_size=17, n_groups=3, time_step_limit=(0.1, 1.0)
    ),
    "lfm2": lfm2(),
    "lfm2-biased": lfm2(conv_bias=True, conv_L_cache=4, tie_word_embeddings=False, block_auto_adjust_ff_dim=False),
    "qwen3-next": qwen3_next(),
    "qwen3-next-dense": qwen3_next(num_experts=0, mlp_only_layers=[], attention_bias=True, tie_word_embeddings=True),
    "qwen3.5": qwen3_5(),
    "qwen3.5-by-interval": qwen3_5(layer_types=None, linear_num_value_heads=2, tie_word_embeddings=True),
    "qwen3.5-with-images": qwen3_5_with_images,
    "mamba": mamba(),
    "mamba-odd-sizes": mamba(hidden_size=45, vocab_size=101, tie_word_embeddings=False, use_bias=True, expand=3),
    "falcon-mamba": falcon_mamba(),
    "jamba": jamba(),
    "jamba-one-expert": jamba(num_experts=1, num_experts_per_tok=1, mamba_proj_bias=True, tie_word_embeddings=True),
    "nemotron-h": nemotron_h(),
    "nemotron-h-biases": nemotron_h(use_bias=True, mlp_bias=True, mlp_hidden_act="gelu", use_conv_bias=False),
    "bamba": bamba(),
    "bamba-biases": bamba(attention_bias=True, mlp_bias=True, mamba_proj_bias=True, mamba_conv_bias=False),
    "falcon-h1": falcon_h1(),
    "falcon-h1-factors": falcon_h1(**FACTORS, mamba_rms_norm=True, mamba_norm_before_gate=False, mlp_bias=True),
    "falcon-h1-norm-first": falcon_h1(**FACTORS, mamba_rms_norm=True, projectors_bias=True),
    "minimax": minimax(),
    "zamba2": zamba2(),
    "zamba2-untied": zamba2(tie_word_embeddings=False),
    "zamba": zamba(),
    "recurrent-gemma": recurrent_gemma(),
    "recurrent-gemma-biases": recurrent_gemma(
        attention_bias=True, lru_width=None, block_types=["attention", "recurrent"]
    ),
    "granite-4-hybrid": granite(),
    "granite-4-hybrid-rope": granite(position_embedding_type="rope", tie_word_embeddings=True),
}
