"""Shapes of well-known models, as their config.json has them.

Knows: config fields.
Must not know: planner.
"""

from __future__ import annotations

from typing import Any

from twostroke.models.common.registry import read_model
from twostroke.program.model import Model

LLAMA2_7B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}
LLAMA2_13B = {
    **LLAMA2_7B,
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "intermediate_size": 13824,
}
LLAMA3_70B = {
    **LLAMA2_7B,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def spec_of(config: dict[str, Any]) -> Model:
    """As the planner reads it."""
    return read_model(config)
