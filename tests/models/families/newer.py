"""Tiny configs of families that came late to the registry, new and old ones, by the names that tests use."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import Config, small
from tests.models.families.wrapped import TEXT, TOWER, wrapped

FOUR: dict[str, Any] = {"num_hidden_layers": 4, "sliding_window": 20}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
GPT: dict[str, Any] = {
    **{"vocab_size": 199, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "initializer_range": 0.2},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
ONE_IN_FOUR = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
ROPES = {
    "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}

bitnet = small(transformers.BitNetConfig)
nanochat = small(transformers.NanoChatConfig, rms_norm_eps=1e-6)
mellum = small(transformers.MellumConfig, head_dim=24, **FOUR, **EXPERTS, layer_types=ONE_IN_FOUR)
mimo = small(
    transformers.MiMoV2FlashConfig,
    **{"head_dim": 24, "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3},
    **{"moe_intermediate_size": 40, "layer_types": ONE_IN_FOUR, **FOUR},
)
cohere2_moe = small(transformers.Cohere2MoeConfig, head_dim=24, num_experts=8, num_experts_per_tok=3, **FOUR)
granite_moe_swa = small(
    transformers.GraniteMoeSWAConfig,
    **{"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 2.0},
    **{"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 40, **FOUR},
)
axk1 = small(
    transformers.AXK1Config,
    **{"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_group": 2, "topk_group": 1},
    **{"kv_lora_rank": 24, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 16},
    num_key_value_heads=4,
)
biogpt = small(transformers.BioGptConfig)
olmo_hybrid = small(
    transformers.OlmoHybridConfig,
    **{"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "num_key_value_heads": 4},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 12},
)  # transformers cuts its one convolution into three equal parts when it saves, so all are 48 wide
modernbert_decoder = small(transformers.ModernBertDecoderConfig, num_hidden_layers=4, local_attention=20)
aria = small(
    transformers.AriaTextConfig,
    **{"intermediate_size": 40, "moe_num_experts": 8, "moe_topk": 3, "moe_num_shared_experts": 2},
)

flint = small(transformers.FlintConfig, head_dim=24, shared_expert_intermediate_size=48, **FOUR, **EXPERTS)
lfm3 = small(transformers.Lfm3Config, head_dim=24, sliding_window=20, num_hidden_layers=5)
laguna = small(
    transformers.LagunaConfig,
    **{**FOUR, **EXPERTS, "head_dim": 24, "shared_expert_intermediate_size": 48, "layer_types": ONE_IN_FOUR},
    num_attention_heads_per_layer=[4, 6, 2, 4],
)


def phi4_multimodal() -> transformers.PretrainedConfig:
    """The config has towers of one block, and the sizes from which its class computes positions of images."""
    tower = {**TOWER, "image_size": 28, "patch_size": 14, "crop_size": 28}
    sound = {**TOWER, "num_blocks": 1, "num_attention_heads": 2, "intermediate_size": 24, "nemo_conv_channels": 8}
    return transformers.Phi4MultimodalConfig(
        **TEXT,
        vision_config=tower,
        audio_config={**sound, "ext_pw_out_channel": 16, "depthwise_separable_out_channel": 16, "input_size": 8},
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    )


NEWER: dict[str, Config] = {
    "nanochat": nanochat(),
    "nanochat-no-cap": nanochat(final_logit_softcapping=None, attention_bias=True, tie_word_embeddings=True),
    "muse-glimmer": wrapped(
        "MuseGlimmer",
        {"head_dim": 16, **FOUR, "output_multiplier": 0.9},
        vision_config={"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2},
        out_hidden_size=64,
        projector_hidden_size=24,
    ),
    "emu3": lambda: transformers.Emu3TextConfig(**TEXT, mlp_bias=True, architectures=["Emu3ForCausalLM"]),
    "mllama": wrapped(
        "Mllama",
        {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]},
        vision_config={
            **{"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_global_layers": 1},
            **{"attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_output_dim": 32},
            "intermediate_layers_indices": [0],
        },
    ),
    "gpt-bigcode-many-heads": lambda: transformers.GPTBigCodeConfig(
        **GPT, multi_query=False, n_inner=112, tie_word_embeddings=False
    ),
    "gpt-bigcode": lambda: transformers.GPTBigCodeConfig(**GPT),
    "codegen": lambda: transformers.CodeGenConfig(**{**GPT, "n_head": 8, "rotary_dim": 6}),
    "codegen-whole-heads": lambda: transformers.CodeGenConfig(**{**GPT, "rotary_dim": 16, "n_inner": 112}),
    "gpt-neo": lambda: transformers.GPTNeoConfig(
        **{"vocab_size": 199, "hidden_size": 64, "num_layers": 4, "num_heads": 4, "max_position_embeddings": 256},
        **{"window_size": 20, "attention_types": [[["global", "local"], 2]], "initializer_range": 0.2},
        **{"bos_token_id": 1, "eos_token_id": 2},
    ),
    "biogpt": biogpt(),
    "biogpt-unscaled": biogpt(scale_embedding=False, tie_word_embeddings=False),
    "mellum": mellum(),
    "mellum-dense-layers": mellum(
        mlp_layer_types=["dense", "sparse", "dense", "sparse"], norm_topk_prob=False, rope_parameters=ROPES
    ),
    "mimo-v2-flash": mimo(),
    "mimo-v2-flash-plain": mimo(
        attention_value_scale=None, attention_bias=True, mlp_layer_types=["dense", "sparse", "dense", "sparse"]
    ),
    "cohere2-moe": cohere2_moe(),
    "cohere2-moe-sigmoid": cohere2_moe(
        **{"expert_selection_fn": "sigmoid", "num_shared_experts": 2, "first_k_dense_replace": 1},
        **{"prefix_dense_intermediate_size": 72, "rms_norm_eps": 1e-6, "attention_bias": True},
    ),
    "cohere2-moe-sum": cohere2_moe(num_shared_experts=1, shared_expert_combination_strategy="sum"),
    "granite-moe-swa": granite_moe_swa(),
    "granite-moe-swa-shared": granite_moe_swa(
        shared_intermediate_size=56, layer_rope_theta=[0, 10000.0, 500.0, 0], tie_word_embeddings=True
    ),
    "axk1": axk1(),
    "laguna": laguna(),
    "laguna-per-element": laguna(
        **{"gating": "per-element", "moe_routed_scaling_factor": 1.7, "moe_router_logit_softcapping": 3.0},
        **{"rope_parameters": ROPES, "attention_bias": True, "num_attention_heads_per_layer": None},
    ),
    "ernie-4.5-vl": wrapped(
        "Ernie4_5_VLMoe",
        {
            **{"moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": [40, 24], "num_hidden_layers": 3},
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]},
        },
        vision_config={**TOWER, "depth": 1, "num_heads": 2},
    ),
    "flint": flint(),
    "flint-typed": flint(
        **{"layer_types": ["sliding_attention", "full_attention"] * 2, "mlp_only_layers": [2], "norm_topk_prob": False},
        **{"attention_bias": True, "tie_word_embeddings": True},
    ),
    "lfm3": lfm3(),
    "lfm3-plain": lfm3(
        **{"use_sandwich_norm": False, "use_attention_gate": False, "conv_bias": True, "attention_bias": True},
        **{"conv_L_cache": 4, "tie_word_embeddings": False, "rope_parameters": ROPES},
    ),
    "lfm3-vl": wrapped(
        "Lfm3Vl",
        {"model_type": "lfm3", "head_dim": 24, "sliding_window": 20, "num_hidden_layers": 3},
        vision_config={**TOWER, "patch_size": 14, "image_size": 28},
        projector_hidden_size=24,
    ),
    "olmo-hybrid": olmo_hybrid(),
    "olmo-hybrid-no-rope": olmo_hybrid(
        rope_parameters={"rope_type": "default", "rope_theta": None}, linear_allow_neg_eigval=False
    ),
    "modernbert-decoder": modernbert_decoder(),
    "modernbert-decoder-biases": modernbert_decoder(
        **{"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True},
        **{"decoder_bias": False, "tie_word_embeddings": False, "global_attn_every_n_layers": 2},
    ),
    "aria-text": aria(),
    "aria": wrapped(
        "Aria",
        {"intermediate_size": 40, "moe_num_experts": 8, "moe_topk": 3, "mlp_bias": True},
        vision_config={**TOWER, "model_type": "idefics3_vision", "image_size": 28, "patch_size": 14},
        projector_patch_to_query_dict={4: 2},
    ),
    "bitnet": bitnet(),
    "bitnet-tied": bitnet(attention_bias=False, tie_word_embeddings=True, num_key_value_heads=4),
    "phi4-multimodal": phi4_multimodal,
}
