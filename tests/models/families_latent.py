"""Tiny configs of the families with latent attention, by the names that tests call them.

Sizes that hide no mistakes: the parts of a head without a rotation, with one, and of V all differ; latents are no
multiples of 16.

Knows: transformers configs.
Must not know: Twostroke.
"""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families_dense import Config, small

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

LATENT: dict[str, Config] = {
    "youtu": youtu(),
    "youtu-apart-biases": youtu(rope_interleave=False, attention_bias=True, tie_word_embeddings=False),
    "youtu-yarn-direct-queries": youtu(rope_parameters=MSCALED, q_lora_rank=None, kv_lora_rank=48),
    "minicpm3": minicpm3(),
    "minicpm3-longrope": minicpm3(rope_parameters=LONGROPE, v_head_dim=None, scale_depth=None, mlp_bias=True),
}
