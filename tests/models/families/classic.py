"""Tiny configs of the families with layer norms, by the names that tests use, as in dense.py."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import Config, small

stablelm = small(transformers.StableLmConfig)
starcoder2 = small(transformers.Starcoder2Config)
nemotron = small(transformers.NemotronConfig, head_dim=24)
phi = small(transformers.PhiConfig)
gpt_neox = small(transformers.GPTNeoXConfig)
hunyuan = small(transformers.HunYuanDenseV1Config, head_dim=24)

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HUNYUAN_ALPHA = {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}


def gptj(**changes: Any) -> Config:
    usual = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "rotary_dim": 12, "n_inner": 112}
    return lambda: transformers.GPTJConfig(
        **{"vocab_size": 199, **usual, "initializer_range": 0.2, **IDS, "tie_word_embeddings": False, **changes}
    )


def falcon(**changes: Any) -> Config:
    usual = {"vocab_size": 199, "hidden_size": 72, "num_hidden_layers": 3, "num_attention_heads": 6}
    return lambda: transformers.FalconConfig(
        **{**usual, "max_position_embeddings": 256, "initializer_range": 0.2, **IDS, **changes}
    )


def bloom(**changes: Any) -> Config:
    usual = {"vocab_size": 199, "hidden_size": 60, "n_layer": 3, "n_head": 6, "initializer_range": 0.2}
    return lambda: transformers.BloomConfig(**{**usual, **IDS, **changes})


def mpt(**changes: Any) -> Config:
    usual = {"vocab_size": 199, "d_model": 60, "n_layers": 3, "n_heads": 6, "max_seq_len": 256}
    return lambda: transformers.MptConfig(**{**usual, "initializer_range": 0.2, **IDS, **changes})


def opt(**changes: Any) -> Config:
    usual = {"vocab_size": 199, "hidden_size": 60, "ffn_dim": 112, "num_hidden_layers": 3, "num_attention_heads": 4}
    return lambda: transformers.OPTConfig(
        **{**usual, "max_position_embeddings": 256, "init_std": 0.2, **IDS, "pad_token_id": 1, **changes}
    )


XGLM: dict[str, Any] = {
    **{"vocab_size": 199, "d_model": 64, "num_layers": 3, "attention_heads": 4, "ffn_dim": 112, "init_std": 0.2},
    **{"max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
}
CLASSIC: dict[str, Config] = {
    "stablelm": stablelm(),
    "stablelm-parallel": stablelm(use_parallel_residual=True, use_qkv_bias=True, tie_word_embeddings=True),
    "stablelm-head-norms": stablelm(qk_layernorm=True, num_hidden_layers=2),
    "starcoder2": starcoder2(sliding_window=20),
    "starcoder2-no-biases": starcoder2(use_bias=False, tie_word_embeddings=False, num_key_value_heads=1),
    "nemotron": nemotron(),
    "nemotron-biases": nemotron(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "phi": phi(),
    "xglm": lambda: transformers.XGLMConfig(**XGLM),
    "ctrl": lambda: transformers.CTRLConfig(
        **{"vocab_size": 199, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "dff": 112},
        **{"initializer_range": 0.2, "layer_norm_epsilon": 1e-3, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "phi-norms-of-heads": phi(qk_layernorm=True, num_key_value_heads=2),
    "phi-odd-sizes": phi(hidden_size=60, num_attention_heads=3, num_key_value_heads=1, partial_rotary_factor=0.4),
    "gpt-neox": gpt_neox(),
    "gpt-neox-sequential": gpt_neox(use_parallel_residual=False, attention_bias=False),
    "gptj": gptj(),
    "gptj-odd-sizes": gptj(n_inner=None, n_embd=60, n_head=3, rotary_dim=20),
    "falcon-old-heads": falcon(multi_query=False, parallel_attn=False, bias=True, tie_word_embeddings=False),
    "falcon-groups": falcon(new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=112),
    "falcon-groups-one-norm": falcon(
        new_decoder_architecture=True, num_kv_heads=3, num_ln_in_parallel_attn=1, bias=True
    ),
    "falcon-one-kv-head": falcon(),
    "bloom": bloom(),
    "bloom-odd-sizes": bloom(n_head=5, tie_word_embeddings=False, layer_norm_epsilon=0.01),
    "mpt": mpt(),
    "mpt-scaled": mpt(n_heads=4, attn_config={"softmax_scale": 0.2, "clip_qkv": 1.0}),
    "opt": opt(),
    "opt-no-biases": opt(enable_bias=False, tie_word_embeddings=False, activation_function="gelu"),
    "opt-narrow-embedding": opt(word_embed_proj_dim=32, do_layer_norm_before=False),
    "opt-plain-norms": opt(layer_norm_elementwise_affine=False, _remove_final_layer_norm=True, word_embed_proj_dim=72),
    "hunyuan": hunyuan(),
    "hunyuan-alpha": hunyuan(rope_parameters=HUNYUAN_ALPHA, attention_bias=True, tie_word_embeddings=True),
    "openai-gpt": lambda: transformers.OpenAIGPTConfig(
        **{"vocab_size": 199, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "initializer_range": 0.2}
    ),
}
