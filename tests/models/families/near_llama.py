"""Tiny configs of the families that differ from Llama in one thing, by the names that tests use."""

from __future__ import annotations

import transformers

from tests.models.families.dense import Config, small

arcee = small(transformers.ArceeConfig)
jais2 = small(transformers.Jais2Config)
helium = small(transformers.HeliumConfig, head_dim=16)
cwm = small(transformers.CwmConfig, head_dim=24, sliding_window=20, num_hidden_layers=4)
hyperclovax = small(
    transformers.HyperCLOVAXConfig,
    embedding_multiplier=3.0,
    attention_multiplier=0.3,
    residual_multiplier=0.22,
    logits_scaling=0.4,
)
apertus = small(transformers.ApertusConfig)
ministral = small(transformers.MinistralConfig, head_dim=24, sliding_window=20, num_hidden_layers=4)
vaultgemma = small(
    transformers.VaultGemmaConfig, head_dim=24, sliding_window=20, query_pre_attn_scalar=20, num_hidden_layers=4
)
olmo = small(transformers.OlmoConfig)
granite_swa = small(
    transformers.GraniteSWAConfig,
    **{"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 2.0},
    **{"sliding_window": 20, "num_hidden_layers": 4},
)
diffllama = small(transformers.DiffLlamaConfig, head_dim=20, num_attention_heads=8, num_key_value_heads=4)
doge = small(transformers.DogeConfig, head_dim=20, keep_window_size=256)

NEAR: dict[str, Config] = {
    "arcee": arcee(),
    "arcee-biases": arcee(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "jais2": jais2(),
    "helium": helium(),
    "cwm": cwm(),
    "cwm-types": cwm(layer_types=["sliding_attention", "full_attention"] * 2, mlp_bias=False),
    "hyperclovax": hyperclovax(),
    "hyperclovax-plain": hyperclovax(use_post_norm=False, attention_multiplier=None, tie_word_embeddings=True),
    "apertus": apertus(),
    "ministral": ministral(layer_types=["sliding_attention", "full_attention"] * 2),
    "vaultgemma": vaultgemma(),
    "olmo": olmo(clip_qkv=1.0),
    "doge": doge(),
    "doge-biases": doge(attention_bias=True, mlp_bias=True, sliding_window=20, num_key_value_heads=None),
    "diffllama": diffllama(),
    "diffllama-biases": diffllama(attention_bias=True, num_key_value_heads=None, tie_word_embeddings=True),
    "granite-swa": granite_swa(),
    "granite-swa-thetas": granite_swa(layer_rope_theta=[0, 10000.0, 500.0, 0], tie_word_embeddings=False),
}
