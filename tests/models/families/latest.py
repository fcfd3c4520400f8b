"""Tiny configs of families from the autumn of 2026, by the names that tests use."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import SMALL, Config, small
from tests.models.families.experts import nemotron_h_moe
from tests.models.families.latent import EXPERTS, HEADS
from tests.models.families.states import DELTA, FEW
from tests.models.families.wrapped import (
    CLIP,
    GLM_TOWER,
    GRANITE_EARS,
    QWEN_TOWER,
    SIGLIP,
    TEXT,
    TOWER,
    of_type,
    wrapped,
)

STEP: dict[str, Any] = {
    **{**SMALL, "num_hidden_layers": 4, "head_dim": 24, "sliding_window": 20, "num_sliding_attention_heads": 6},
    **{"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "share_expert_dim": 48},
    **{"layer_types": ["full_attention", "sliding_attention"] * 2, "moe_router_scaling_factor": 1.5},
    **{"mlp_layer_types": ["dense", "sparse", "sparse", "dense"], "swiglu_limits": [0.0, 0.5, None, 0.0]},
    "swiglu_limits_shared": [0.0, 0.0, 0.7, 0.9],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
SCALED_AT_FULL = {
    "full_attention": {
        **{"rope_type": "llama3", "rope_theta": 500000.0, "partial_rotary_factor": 0.5, "factor": 4.0},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
STEP_TOWER: dict[str, Any] = {**TOWER, "image_size": 28, "patch_size": 14, "max_position_embeddings": 4}
bailing_hybrid = small(
    transformers.BailingHybridConfig,
    **{"num_hidden_layers": 4, "layer_group_size": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4},
    **{"num_local_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 24},
    **{"kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 16, "head_dim": 20},
    **{"pad_token_id": None, "routed_scaling_factor": 1.7},
)

kolibri = small(
    transformers.Kolibri1Config,
    **{"head_dim": 24, "num_hidden_layers": 3, "sliding_window": 20, "num_experts": 8, "num_experts_per_tok": 3},
    **{"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "norm_topk_prob": True},
    **{"moe_intermediate_size": 40, "shared_expert_intermediate_size": 48},
)
axk2 = small(
    transformers.AXK2Config,
    **{
        **HEADS,
        **EXPERTS,
        "pad_token_id": None,
        "gated_norm_rank": 6,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    **{"index_topk": 12, "index_head_dim": 20, "index_n_heads": 9},
)
hy_v4 = small(
    transformers.HYV4Config,
    **{**HEADS, **EXPERTS, "pad_token_id": None, "swiglu_limit": 0.4, "hc_mult": 3, "num_hidden_layers": 4},
    **{"index_topk": 12, "index_head_dim": 20, "index_n_heads": 9},
)
GLM_NEXT: dict[str, Any] = {
    **{**HEADS, **EXPERTS, "qk_rope_head_dim": 0, "pad_token_id": None, "num_hidden_layers": 4, "hc_mult": 3},
    **{"index_topk": 256, "index_kpool": 8, "index_head_dim": 20, "index_n_heads": 9, "swiglu_limit": 0.4},
    **{"linear_num_heads": 3, "linear_head_dim": 12, "mlp_layer_types": ["dense", "sparse", "sparse", "dense"]},
    "layer_types": ["linear_attention", "indexed_attention", "indexed_attention", "linear_attention"],
    "indexer_types": ["full", "full", "shared", "full"],
}
beam = small(
    transformers.BeamConfig,
    **{"head_dim": 24, "num_hidden_layers": 4, "sliding_window": 20, "num_experts": 8, "num_experts_per_tok": 3},
    **{"n_group": 4, "topk_group": 2, "moe_intermediate_size": 40, "final_logit_softcapping": 1.5},
    **{"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
)
COMPASS: dict[str, Any] = {
    **{"head_dim": 24, "sliding_window": 20, "num_hidden_layers": 3, "logit_scale": 0.7, "tie_word_embeddings": False},
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
SECTIONED = {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [4, 4, 4]}


def step(**changes: Any) -> Config:
    return wrapped("Step3p7", {**STEP, **changes}, vision_config=STEP_TOWER)


def molmo2(**changes: Any) -> Config:
    adapter = {"hidden_size": 16, "intermediate_size": 24, "text_hidden_size": 64, "num_attention_heads": 2}
    return wrapped(
        "Molmo2",
        {"head_dim": 24, "additional_vocab_size": 199, **changes},
        vision_config={**TOWER, "image_size": [28, 28], "patch_size": 14, "head_dim": 8, "num_key_value_heads": 2},
        adapter_config={**adapter, "vision_feature_layer": [0], "num_key_value_heads": 2, "head_dim": 8},
    )


def nemotron_omni() -> transformers.PretrainedConfig:
    """The class has a name of its own kind, as in published files."""
    tower = {**TOWER, "model_type": "radio", "video_temporal_patch_size": 2, "patch_size": 14, "image_size": 28}
    return transformers.NemotronH_Omni_Reasoning_V3_Config(
        text_config=nemotron_h_moe()().to_dict(),
        vision_config={**tower, "max_img_size": 28},
        **{"vision_hidden_size": 16, "projector_hidden_size": 24},
        architectures=["NemotronH_Omni_Reasoning_V3"],
    )


hrm = small(transformers.HrmTextConfig, head_dim=16, num_hidden_layers=2, prefix_lm=False, L_cycles=2)
zaya = small(
    transformers.ZayaConfig,
    **{"num_attention_heads": 6, "head_dim": 12, "num_experts": 6, "moe_intermediate_size": 40},
    **{"router_hidden_size": 20, "num_experts_per_tok": 1},
)
QWEN4: dict[str, Any] = {
    **{**DELTA, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40},
    **{"hc_count": 3, "hc_lowrank": 20},
    **{"shared_expert_intermediate_size": 48, "indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 20},
    **{"indexer_budget": 256, "indexer_compress_ratio": 8},
}
qwen4 = small(transformers.Qwen4ExpTextConfig, **QWEN4)


def rwkv4(**changes: Any) -> Config:
    return lambda: transformers.RwkvConfig(**{**FEW, "num_hidden_layers": 4, "rescale_every": 2, **changes})


DOTS: dict[str, Any] = {
    **{**HEADS, **EXPERTS, "pad_token_id": None, "num_hidden_layers": 4, "sliding_window": 20},
    **{"index_topk": 12, "index_head_dim": 20, "index_n_heads": 9, "shared_experts_intermediate_size": 28},
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    **{"swa_num_attention_heads": 6, "swa_num_key_value_heads": 6, "swa_q_lora_rank": 20, "swa_kv_lora_rank": 40},
    **{"swa_head_dim": 28, "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 20},
}
dots3 = small(transformers.Dots3NoteTextConfig, **DOTS)
DOTS_EYES: dict[str, Any] = {
    **{"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14},
    **{"mlp_layer_types": ["dense", "sparse"], "num_local_experts": 4, "moe_intermediate_size": 12},
    **{"adapter_in_dim": 16, "adapter_out_dim": 64},
}
DOTS_EARS: dict[str, Any] = {
    **{"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "feature_size": 8},
    **{"downsample_hidden_size": 6, "adapter_input_size": 16, "adapter_out_dim": 64, "max_position_embeddings": 8},
}
LARGE4: dict[str, Any] = {
    **{name: value for name, value in {**HEADS, **EXPERTS}.items() if name not in ("q_lora_rank", "norm_topk_prob")},
    **{"num_hidden_layers": 6, "index_topk": 12, "index_head_dim": 20, "index_n_heads": 9},
    **{"n_group": 1, "topk_group": 1},
    "pad_token_id": None,  # otherwise its row would be zeros, and all scores of the index equal
    **{"no_rope_layers": [1, 0, 1, 1, 0, 1], "kv_source_layers": [0, 1, 2, 2, 1, 5]},
    **{"indexer_types": ["full", "full", "shared", "full", "shared", "full"], "final_logit_softcapping": 3.0},
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse", "sparse"],
}


def large4(**changes: Any) -> Config:
    tower = {**TOWER, "model_type": "pixtral", "image_size": 28, "patch_size": 14}
    return wrapped("MistralLarge4", {**LARGE4, **changes}, vision_config=tower)


def xlstm(**changes: Any) -> Config:
    """The judge runs without a cache, because transformers rounds the cache's sizes up to multiples of 64, and not the
    layers'."""
    sizes = {"num_heads": 4, "autocast_kernel_dtype": "float32", "chunk_size": 16, "gate_soft_cap": 1.5}
    sizes |= {"use_cache": False, "ffn_round_up_to_multiple_of": 8}
    return lambda: transformers.xLSTMConfig(**{**FEW, **sizes, **changes})


LATEST: dict[str, Config] = {
    "hrm-text": hrm(),
    "qwen4-exp": qwen4(),
    "qwen4-exp-with-images": wrapped(
        "Qwen4Exp",
        {
            **{**QWEN4, "output_gate_type": "sigmoid"},
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.5},
        },
        vision_config=QWEN_TOWER,
        tie_word_embeddings=False,
    ),
    "rwkv4": rwkv4(),
    "rwkv4-plain": rwkv4(intermediate_size=72, rescale_every=0, tie_word_embeddings=True),
    "dots3": dots3(),
    "dots3-with-images": wrapped("Dots3Note", DOTS, vision_config=DOTS_EYES, audio_config=DOTS_EARS),
    "dots3-open": dots3(use_dsa=False, n_group=4, topk_group=2, mlp_layer_types=["dense", "sparse"] * 2),
    "mistral-large-4": large4(),
    "mistral-large-4-silent": large4(
        **dict.fromkeys(("no_rope_layers", "kv_source_layers", "indexer_types", "mlp_layer_types")), num_hidden_layers=4
    ),
    "xlstm": xlstm(),
    "xlstm-wide-keys": xlstm(qk_dim_factor=0.75, output_logit_soft_cap=2.0),
    "zaya": zaya(),
    "zaya-windows": zaya(
        **{"layer_types": ["hybrid", "hybrid_sliding", "hybrid"], "sliding_window": 20, "cca_time0": 4},
        tie_word_embeddings=False,
    ),
    "hrm-text-scaled": hrm(H_cycles=1, embedding_scale=3.0, tie_word_embeddings=True),
    "step-3.7": step(),
    "step-3.7-plain": step(
        **{"swiglu_limits": None, "swiglu_limits_shared": None, "num_sliding_attention_heads": None},
        **{"attention_bias": True, "query_pre_attn_scalar": 20, "moe_router_scaling_factor": 1.0},
    ),
    "ling-3": bailing_hybrid(),
    "ling-3-open-gate": bailing_hybrid(
        kda_safe_gate=False, layer_types=["full_attention", "linear_attention"] * 2, norm_topk_prob=False
    ),
    "kolibri-1": kolibri(),
    "axk2": axk2(),
    "axk2-groups": axk2(n_group=4, topk_group=2, attention_bias=True),
    "hy-v4": hy_v4(),
    "hy-v4-plain": hy_v4(hc_magnitude=1.3, indexer_types=["full", "shared", "shared", "full"]),
    "glm-5.3-flash": wrapped("Glm5Next", GLM_NEXT, vision_config=GLM_TOWER),
    "beam": beam(),
    "beam-turning": beam(
        rope_parameters=dict.fromkeys(
            ("full_attention", "sliding_attention"), {"rope_type": "default", "rope_theta": 5e4}
        ),
        **{"final_logit_softcapping": None, "attention_bias": True, "n_group": 1, "topk_group": 1},
    ),
    "emu3-with-images": lambda: transformers.Emu3Config(
        text_config=TEXT,
        vq_config={"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "codebook_size": 16},
        vocabulary_map={"<image>": 7},
        architectures=["Emu3ForConditionalGeneration"],
    ),
    "cohere-compass": small(transformers.CohereCompassTextConfig)(
        **COMPASS, rope_parameters=dict.fromkeys(("full_attention", "sliding_attention"), SECTIONED)
    ),
    "cohere-compass-with-images": wrapped(
        "CohereCompass",
        {**COMPASS, "rope_parameters": {"full_attention": None, "sliding_attention": SECTIONED}},
        vision_config={**QWEN_TOWER, "out_hidden_size": 64, "deepstack_visual_indexes": []},
        tie_word_embeddings=False,
    ),
    "molmo2": molmo2(),
    "molmo2-olmo": molmo2(
        **{"qk_norm_type": "olmo", "norm_after": True, "attention_bias": True, "rope_scaling_layers": [1]},
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    ),
    "nemotron-omni": nemotron_omni,
    "granite-4-vision": wrapped(
        "Granite4Vision",
        {"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22},
        vision_config={**SIGLIP, "hidden_size": 64, "patch_size": 7},
        qformer_config={"num_hidden_layers": 1, "intermediate_size": 24},
        **{"downsample_rate": "1/2", "deepstack_layer_map": [[0, 0]], "spatial_target_layers": [0, 1, 1, 1]},
    ),
    "granite-speech-plus": wrapped("GraniteSpeechPlus", of_type("granite"), **GRANITE_EARS),
    "music-flamingo": wrapped(
        "MusicFlamingo",
        of_type("qwen2"),
        audio_config={**TOWER, "model_type": "audioflamingo3_encoder", "num_mel_bins": 8, "max_source_positions": 8},
    ),
    "perception-lm": wrapped("PerceptionLM", of_type("llama"), vision_config={**CLIP, "model_args": {"embed_dim": 16}}),
}
