"""The published sizes of the families that are measured next to llama.cpp, as fields of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """config: the fields of config.json. mix: the types of its GGUF file, as in the file's name. source: where the
    fields are published. long_context: whether decode at LONG tokens is measured, too."""

    config: Mapping[str, Any]
    source: str
    mix: str = "Q4_K_M"
    long_context: bool = False


SHORT, LONG = 512, 32_768
"""The two lengths of context that are measured, in tokens."""

LINEAR_BY_8 = {"rope_type": "linear", "factor": 8.0}
YARN_OF_DEEPSEEK = {
    **{"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096},
    **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707},
}
YARN_OF_GPT_OSS = {
    **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    "original_max_position_embeddings": 4096,
}

ROPE_OF_LLAMA = {
    **{"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 8192,
}
LLAMA_1B = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048},
    **{"intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"head_dim": 64, "max_position_embeddings": 131_072, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5},
    **{"rope_scaling": {**ROPE_OF_LLAMA, "factor": 32.0}, "tie_word_embeddings": True},
}
LLAMA_8B = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096},
    **{"intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"head_dim": 128, "max_position_embeddings": 131_072, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5},
    **{"rope_scaling": {**ROPE_OF_LLAMA, "factor": 8.0}, "tie_word_embeddings": False},
}
MAMBA2 = {
    **{"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "vocab_size": 50_288, "hidden_size": 2048},
    **{"num_hidden_layers": 48, "num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4},
    **{"expand": 2, "tie_word_embeddings": True, "layer_norm_epsilon": 1e-5},
}
GEMMA3 = {
    **{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262_208},
    **{"hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34, "num_attention_heads": 8},
    **{"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024, "max_position_embeddings": 131_072},
    **{"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "rope_scaling": LINEAR_BY_8},
    **{"rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"},
    # No key of a GGUF file has the factor of embeddings. The engine reads it as bfloat16 rounds it.
    **{"torch_dtype": "bfloat16", "tie_word_embeddings": True},
}
QWEN3_5 = {
    **{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": 248_320},
    **{"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 32, "num_attention_heads": 16},
    **{"num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25, "full_attention_interval": 4},
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "rope_theta": 10_000_000.0, "rms_norm_eps": 1e-6},
    **{"max_position_embeddings": 262_144, "tie_word_embeddings": False},
}
DEEPSEEK_V2_LITE = {
    **{"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "vocab_size": 102_400},
    **{"hidden_size": 2048, "intermediate_size": 10_944, "num_hidden_layers": 27, "num_attention_heads": 16},
    **{"num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128},
    **{"qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6},
    **{"moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1},
    **{"routed_scaling_factor": 1.0, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": False},
    **{"max_position_embeddings": 163_840, "rope_theta": 10_000.0, "rope_scaling": YARN_OF_DEEPSEEK},
    **{"rms_norm_eps": 1e-6, "tie_word_embeddings": False},
}
GPT_OSS = {
    **{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 201_088, "hidden_size": 2880},
    **{"intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8},
    **{"head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128},
    **{"max_position_embeddings": 131_072, "rope_theta": 150_000.0, "rope_scaling": YARN_OF_GPT_OSS},
    **{"rms_norm_eps": 1e-5, "attention_bias": True, "tie_word_embeddings": False},
}
QWEN3_MOE = {
    **{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151_936},
    **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32},
    **{"num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8},
    **{"moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    **{"max_position_embeddings": 40_960, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
}

SHAPES: Mapping[str, Shape] = {
    "llama-1b": Shape(LLAMA_1B, "meta-llama/Llama-3.2-1B"),
    "mamba2-1.3b": Shape(MAMBA2, "state-spaces/mamba2-1.3b", long_context=True),
    "gemma3-4b": Shape(GEMMA3, "text_config of google/gemma-3-4b-it", long_context=True),
    "llama-8b": Shape(LLAMA_8B, "meta-llama/Llama-3.1-8B"),
    "qwen3.5-9b": Shape(QWEN3_5, "text_config of Qwen/Qwen3.5-9B", long_context=True),
    "deepseek-v2-lite": Shape(DEEPSEEK_V2_LITE, "deepseek-ai/DeepSeek-V2-Lite"),
    "gpt-oss-20b": Shape(GPT_OSS, "openai/gpt-oss-20b", mix="MXFP4"),
    "qwen3-30b-a3b": Shape(QWEN3_MOE, "Qwen/Qwen3-30B-A3B"),
}
"""The shapes by name, from the smallest file to the largest."""
