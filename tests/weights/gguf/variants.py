"""Tiny configs of which a GGUF file can say everything: some fields of the usual ones have no key.

Tests take them by name from tests/models/families/stored.py, which imports no judge.

A change may be a field that llama.cpp has as a constant (experts' limits, factors of published models). It may be a
field that no converter writes (windows of Mistral), or a size that converters compute from others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers

from tests.models.families.classic import starcoder2
from tests.models.families.dense import LINEAR_AT_FULL, gemma3
from tests.models.families.experts import gpt_oss
from tests.models.families.latent import deepseek_v4
from tests.models.families.latest import SCALED_AT_FULL, step
from tests.models.families.remote import bailing_moe, block, nemotron_nas
from tests.models.families.whole import FAMILIES, LINEAR

Make = Callable[[], transformers.PretrainedConfig]


def changed(family: str, **fields: Any) -> Make:
    """The family's tiny config with other fields."""

    def made() -> transformers.PretrainedConfig:
        config = FAMILIES[family]()
        said = {**config.to_dict(), **fields}
        for name in [name for name, value in fields.items() if value is ...]:
            said.pop(name)
        return type(config).from_dict(said)

    return made


EQUAL_SCALES = {
    **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.1, "mscale_all_dim": 1.1},
    "original_max_position_embeddings": 64,
}
GROWING = {
    **EQUAL_SCALES,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 24,
    "llama_4_scaling_beta": 0.4,
}
SPARSE = {"mlp_only_layers": [], "decoder_sparse_step": 1}

VARIANTS: dict[str, Make] = {
    "step-3.7-scaled": step(rope_parameters=SCALED_AT_FULL),
    "gemma3-sixth": gemma3(sliding_window_pattern=6, num_hidden_layers=7, rope_parameters=LINEAR_AT_FULL),
    "starcoder2-no-window": starcoder2(sliding_window=None),
    "mistral-linear": changed("mistral-no-window", rope_parameters=LINEAR),
    "qwen2-moe-sparse": changed("qwen2-moe", **SPARSE),
    "qwen3-next-sparse": changed("qwen3-next", **SPARSE),
    "afmoe-fourth": changed("afmoe", global_attn_every_n_layers=4, layer_types=..., mup_enabled=True),
    "dots1-no-window": changed("dots1", sliding_window=None, layer_types=["full_attention"] * 3),
    "dots1-unnormed-no-window": changed(
        "dots1-unnormed-weights", sliding_window=None, layer_types=["full_attention"] * 3
    ),
    "gpt-oss-usual-limit": changed("gpt-oss", swiglu_limit=7.0),
    "gpt-oss-plain-usual-limit": changed("gpt-oss-plain-rope", swiglu_limit=7.0),
    "gpt2-new-gelu": changed("gpt2-inner", activation_function="gelu_new"),
    "gpt2-untied-new-gelu": changed("gpt2-untied", activation_function="gelu_new"),
    "lfm2-moe-unscaled": changed("lfm2-moe", routed_scaling_factor=1.0),
    "llama4-usual": changed(
        "llama4", attention_chunk_size=8192, attn_scale=0.1, floor_scale=8192, attn_temperature_tuning=True
    ),
    "minicpm3-usual": changed("minicpm3", dim_model_base=256),
    "nemotron-quarter": changed("nemotron", head_dim=16),
    "nemotron-biases-quarter": changed("nemotron-biases", head_dim=16),
    # published configs say how experts are scored, transformers' own do not; llama.cpp takes a softmax without the key
    "deepseek-v3-equal-scales": changed("deepseek-v3-kimi-k2", rope_parameters=EQUAL_SCALES, scoring_func="sigmoid"),
    "deepseek-v3.2-equal-scales": changed("deepseek-v3.2-all-seen", rope_parameters=EQUAL_SCALES),
    "deepseek-v2-equal-scales": changed("deepseek-v2-groups", rope_parameters=EQUAL_SCALES),
    "youtu-equal-scales": changed("youtu-yarn-direct-queries", rope_parameters=EQUAL_SCALES),
    "glm-usual": changed("glm", head_dim=16, rms_norm_eps=1e-5, max_position_embeddings=64),
    "modernbert-one-epsilon": changed("modernbert", layer_norm_eps=1e-5),
    "eurobert-mean": changed("eurobert", classifier_pooling="mean"),
    "embedding-gemma-sixth": changed("embedding-gemma", layer_types=..., num_hidden_layers=7),
    "phimoe-usual": changed("phimoe", original_max_position_embeddings=256, router_jitter_noise=0.01),
    "mistral4-growing": changed("mistral4", rope_parameters={**GROWING}),
    "mistral4-plain": changed(
        "mistral4",
        q_lora_rank=None,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0, "llama_4_scaling_beta": 0.0},
    ),
    "rwkv6-rescaled": changed("rwkv6", rescale_every=1, hidden_size=64, head_size=16, intermediate_size=128),
    "apertus-plain-rope": changed("apertus", rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "deepseek-v4-first-by-token": changed("deepseek-v4", mlp_layer_types=["hash_moe", "moe", "moe"]),
    "deepseek-v4-yarn-rates": changed(
        "deepseek-v4-yarn-all-seen", scoring_func="sqrtsoftplus", mlp_layer_types=["hash_moe", "moe", "moe"]
    ),
    "nemotron-nas-without-products": nemotron_nas(
        num_hidden_layers=5,
        block_configs=[block(2, 5.0), block(None, 5.0), block(4, None), block(1, 5.0), block(None, None)],
    ),
    "bailing-moe-sparse": bailing_moe(first_k_dense_replace=0),
    "gemma2-by-heads": changed("gemma2", query_pre_attn_scalar=24),
    "wide": changed("deepseek-v3", kv_lora_rank=64, qk_nope_head_dim=32, qk_head_dim=40),
    "gpt-oss-96": gpt_oss(intermediate_size=96),
    "gpt-oss-small": gpt_oss(intermediate_size=96, num_hidden_layers=2),
    "deepseek-v4-wide-heads": deepseek_v4(head_dim=1040),
    "gemma3n-fewer-words-per-layer": changed("gemma3n", vocab_size_per_layer_input=150),
}
