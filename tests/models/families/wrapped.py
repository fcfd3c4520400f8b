"""Tiny configs of models that see, hear or speak around a language model whose family has configs of its own."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import SMALL, Config

TOWER: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT: dict[str, Any] = {**SMALL, "num_hidden_layers": 2}
TURNS: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
SIGLIP: dict[str, Any] = {**TOWER, "model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14}
SIGLIP2: dict[str, Any] = {**TOWER, "model_type": "siglip2_vision_model", "num_patches": 4, "patch_size": 14}
CLIP: dict[str, Any] = {**TOWER, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14}
PIXTRAL: dict[str, Any] = {**TOWER, "model_type": "pixtral", "image_size": 28, "patch_size": 14, "head_dim": 8}
GLM_TOWER: dict[str, Any] = {**TOWER, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "image_size": 28}
QWEN_TOWER: dict[str, Any] = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24}
WHISPER: dict[str, Any] = {
    **{"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "num_mel_bins": 8},
    **{"max_source_positions": 8},
}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 16}
SIGMOID_EXPERTS: dict[str, Any] = {
    **{"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 1},
    **{"routed_scaling_factor": 1.5, "first_k_dense_replace": 1},
}


def wrapped(name: str, text: dict[str, Any], **more: Any) -> Config:
    """A config of transformers' class `name`, with `text` as its text_config."""
    kind = getattr(transformers, name + "Config")

    def made() -> transformers.PretrainedConfig:
        return kind(text_config={**TEXT, **text}, architectures=[name + "ForConditionalGeneration"], **more)

    return made


def of_type(model_type: str, **more: Any) -> dict[str, Any]:
    """A text_config that names its family."""
    return {"model_type": model_type, **more}


APART: dict[str, Any] = {"tie_word_embeddings": False}
MINICPM_TEXT = of_type(
    "qwen3_5_text",
    layer_types=["linear_attention", "full_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=12,
    linear_value_head_dim=8,
    head_dim=24,
)
SMALL_TOWER: dict[str, Any] = {**TOWER, "image_size": 28, "patch_size": 14}
SAM: dict[str, Any] = {
    **{**SMALL_TOWER, "model_type": "sam_vision_model", "output_channels": 8, "mlp_dim": 24},
    **{"global_attn_indexes": [0], "window_size": 2, "num_pos_feats": 4},
}
GRANITE_EARS: dict[str, Any] = {
    "encoder_config": {
        **{"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "dim_head": 8, "input_dim": 8, "output_dim": 8},
        **{"context_size": 8, "conv_kernel_size": 3, "feedforward_mult": 2},
    },
    "projector_config": {**TOWER, "model_type": "blip_2_qformer", "encoder_hidden_size": 16},
}
WRAPPED: dict[str, Config] = {
    "qwen3-vl-moe": wrapped(
        "Qwen3VLMoe",
        {**EXPERTS, "rope_parameters": {**TURNS, "mrope_interleaved": True}, **APART},
        vision_config={**QWEN_TOWER, "out_hidden_size": 64, "deepstack_visual_indexes": []},
        **APART,
    ),
    "glm-4.1v": wrapped(
        "Glm4v",
        {"rope_parameters": {**TURNS, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}},
        vision_config=GLM_TOWER,
        **APART,
    ),
    "glm-ocr": wrapped("GlmOcr", {"rope_parameters": TURNS}, vision_config=GLM_TOWER, **APART),
    "glm-4.5v": wrapped(
        "Glm4vMoe",
        {**SIGMOID_EXPERTS, "rope_parameters": {**TURNS, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}},
        vision_config=GLM_TOWER,
        **APART,
    ),
    "hunyuan-ocr": wrapped(
        "HunYuanVL",
        {
            "head_dim": 16,
            "rope_parameters": {
                **TURNS,
                "mrope_section": [2, 2, 2, 2],
                "rope_type": "dynamic",
                "alpha": 50.0,
                "factor": 1.0,
            },
        },
        vision_config={**TOWER, "out_hidden_size": 64},
    ),
    "paddle-ocr-vl": wrapped(
        "PaddleOCRVL", {"head_dim": 16, "rope_parameters": TURNS}, vision_config={**TOWER, "image_size": 28}
    ),
    "llava-onevision": wrapped("LlavaOnevision", of_type("qwen2"), vision_config=SIGLIP),
    "aya-vision": wrapped(
        "AyaVision", of_type("cohere2", head_dim=24, sliding_window=20, logit_scale=1.0), vision_config=SIGLIP
    ),
    "command-a-vision": wrapped(
        "Cohere2Vision", of_type("cohere2", head_dim=24, sliding_window=20, logit_scale=1.0), vision_config=SIGLIP
    ),
    "lfm2-vl": wrapped(
        "Lfm2Vl",
        of_type("lfm2", layer_types=["conv", "full_attention"], block_multiple_of=16),
        vision_config=SIGLIP2,
        projector_hidden_size=24,
    ),
    "idefics2": wrapped(
        "Idefics2",
        of_type("mistral", sliding_window=20),
        vision_config={**TOWER, "image_size": 28, "patch_size": 14},
        perceiver_config={
            "resampler_n_latents": 2,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 8,
            "num_key_value_heads": 1,
        },
    ),
    "lighton-ocr": wrapped("LightOnOcr", of_type("qwen3", head_dim=16), vision_config=PIXTRAL, **APART),
    "video-llava": wrapped("VideoLlava", of_type("llama"), vision_config=CLIP),
    "vip-llava": wrapped("VipLlava", of_type("llama"), vision_config=CLIP, vision_feature_layers=[-1]),
    "llava-next-video": wrapped("LlavaNextVideo", of_type("llama"), vision_config=CLIP),
    "ovis2": wrapped(
        "Ovis2",
        of_type("qwen2"),
        vision_config={**TOWER, "image_size": 28, "patch_size": 14, "vocab_size": 40},
        **{"hidden_size": 64, "vocab_size": TEXT["vocab_size"]},
    ),
    "got-ocr2": wrapped(
        "GotOcr2",
        of_type("qwen2"),
        vision_config={
            **TOWER,
            "image_size": 28,
            "patch_size": 14,
            "mlp_dim": 24,
            "global_attn_indexes": [],
            "output_channels": 8,
            "window_size": 2,
        },
        **APART,
    ),
    "glm-4.6v": wrapped(
        "Glm46V",
        of_type("glm4v_text", rope_parameters={**TURNS, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}),
        vision_config={**GLM_TOWER, "model_type": "glm4v_vision"},
        **APART,
    ),
    "qianfan-ocr": wrapped(
        "QianfanOCR", of_type("qwen3", head_dim=16), vision_config={**TOWER, "image_size": 28, "patch_size": 14}
    ),
    "video-llama3": wrapped("VideoLlama3", of_type("qwen2"), vision_config={**TOWER, "patch_size": 14}),
    "exaone-4.5": wrapped(
        "Exaone4_5_",
        of_type("exaone4", sliding_window=20, sliding_window_pattern=2, head_dim=24),
        vision_config={**QWEN_TOWER, "out_hidden_size": 64, "num_key_value_heads": 1, "fullatt_block_indexes": [0]},
    ),
    "minicpm-v-4.6": wrapped(
        "MiniCPMV4_6",
        MINICPM_TEXT,
        vision_config={**TOWER, "num_hidden_layers": 2, "image_size": 28, "patch_size": 14},
        insert_layer_id=0,
    ),
    **{
        name: wrapped(kind, MINICPM_TEXT, vision_config={**SMALL_TOWER, "num_hidden_layers": 2}, insert_layer_id=0)
        for name, kind in {"minicpm-v-4.7": "MiniCPMV4_7", "minicpm-ocr": "MiniCPMOcr"}.items()
    },
    "fast-vlm": wrapped("FastVlm", of_type("qwen2"), vision_config=SIGLIP),
    "granite-docling": wrapped(
        "GraniteDocling",
        of_type("granite_docling_text", logits_scaling=1.0),
        vision_config={**SMALL_TOWER, "num_hidden_layers": 2, "out_hidden_size": 64, "deepstack_visual_indexes": []},
    ),
    "deepseek-vl-hybrid": wrapped(
        "DeepseekVLHybrid", of_type("llama"), vision_config=SIGLIP, high_res_vision_config=SAM
    ),
    "deepseek-vl": wrapped("DeepseekVL", of_type("llama"), vision_config=SIGLIP),
    "janus": wrapped(
        "Janus",
        of_type("llama"),
        vision_config={**TOWER, "image_size": 28, "patch_size": 14, "projection_dim": 64},
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 16,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": 64,
            "image_token_embed_dim": 64,
        },
    ),
    "hyperclovax-vision": wrapped(
        "HyperCLOVAXVisionV2",
        of_type("hyperclovax"),
        vision_config={
            **QWEN_TOWER,
            "model_type": "qwen2_5_vl_vision",
            "out_hidden_size": 64,
            "fullatt_block_indexes": [0],
        },
    ),
    "audio-flamingo3": wrapped(
        "AudioFlamingo3", of_type("qwen2"), audio_config={**TOWER, "num_mel_bins": 8, "max_source_positions": 8}
    ),
    "granite-speech": wrapped("GraniteSpeech", of_type("granite"), **GRANITE_EARS),
    "qwen2-audio": wrapped("Qwen2Audio", of_type("qwen2"), audio_config=WHISPER),
    "voxtral": wrapped(
        "Voxtral", of_type("llama", head_dim=16), audio_config={**TOWER, "num_mel_bins": 8, "max_source_positions": 8}
    ),
    "qwen2.5-omni": wrapped(
        "Qwen2_5OmniThinker",
        {"rope_parameters": TURNS},
        vision_config={**QWEN_TOWER, "out_hidden_size": 64, "fullatt_block_indexes": [0]},
        audio_config={**WHISPER, "output_dim": 64},
    ),
    "qwen3-omni": wrapped(
        "Qwen3OmniMoeThinker",
        {**EXPERTS, "rope_parameters": {**TURNS, "mrope_interleaved": True}},
        vision_config={**QWEN_TOWER, "out_hidden_size": 64, "deepstack_visual_indexes": []},
        audio_config={**WHISPER, "output_dim": 64, "downsample_hidden_size": 8},
    ),
    "moss-transcribe": wrapped("MossTranscribeDiarize", of_type("qwen3", head_dim=16), audio_config=WHISPER),
    "minimax-m3": lambda: transformers.MiniMaxM3VLConfig(
        text_config={
            **{**TEXT, "num_hidden_layers": 3, "head_dim": 16, "intermediate_size": 40, "rotary_dim": 8},
            **{"dense_intermediate_size": 56, "shared_intermediate_size": 48, "num_local_experts": 6},
            **{"num_experts_per_tok": 2, "index_n_heads": 2, "index_head_dim": 8, "index_block_size": 16},
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        },
        vision_config={**TOWER, "image_size": 28, "patch_size": 14, "num_attention_heads": 2},
        projector_hidden_size=24,
        architectures=["MiniMaxM3SparseForConditionalGeneration"],
    ),
}
