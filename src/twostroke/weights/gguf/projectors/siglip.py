"""Projectors after SigLIP and towers like it: Idefics 3, Gemma 3, LFM2-VL, InternVL.

Sources: conversion/{smolvlm,gemma,lfm2,intern_vision}.py of llama.cpp.
"""

from __future__ import annotations

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import (
    VISION,
    Config,
    ProjectorKind,
    Shapes,
    activation_of,
    length,
    merge_of,
)

SCALE = "projector.scale_factor"
SIGLIP = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_out": "self_attn.out_proj", "ln1": "layer_norm1", "ln2": "layer_norm2"},
    **{"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
}
OUTER = {
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.post_ln": "post_layernorm",
}
VIT = {
    **{"attn_q": "attention.q_proj", "attn_k": "attention.k_proj", "attn_v": "attention.v_proj"},
    **{"attn_out": "attention.projection_layer", "ln1": "layernorm_before", "ln2": "layernorm_after"},
    **{"attn_q_norm": "attention.q_norm", "attn_k_norm": "attention.k_norm"},
    **{"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2", "ls1": "lambda_1/", "ls2": "lambda_2/"},
}


def _idefics3(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    side = tower["image_size"]
    longest = int(keys.number(VISION + "preproc_image_size", side))
    merge = merge_of(keys, SCALE, 2)
    config = {"model_type": "idefics3", "scale_factor": merge, "vision_config": tower}
    return config, {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": side}}


def _gemma3(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    side, grid = tower["image_size"], tower["image_size"] // tower["patch_size"]
    merge = merge_of(keys, SCALE, 4)
    config = {"model_type": "gemma3", "mm_tokens_per_image": (grid // merge) ** 2, "vision_config": tower}
    return config, {"size": {"height": side, "width": side}}


def _lfm2(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of LFM2-VL. image_size has no meaning: the images decide the size of tiles."""
    merge = merge_of(keys, SCALE, 2)
    tower["num_patches"] = length(shapes, "v.position_embd.weight", 256)
    config: Config = {
        **{"model_type": "lfm2_vl", "vision_config": tower, "downsample_factor": merge},
        "projector_hidden_size": length(shapes, "mm.1.weight", 2560),
        "projector_bias": "mm.1.bias" in shapes,
        "projector_use_layernorm": "mm.input_norm.weight" in shapes,
    }
    settings: Config = {}
    area = (merge * tower["patch_size"]) ** 2
    for name, key in (("min_image_tokens", "image_min_pixels"), ("max_image_tokens", "image_max_pixels")):
        if keys.has(VISION + key):
            settings[name] = int(keys.number(VISION + key)) // area
    for name in ("min_tiles", "max_tiles"):
        if keys.has(f"{VISION}preproc_{name}"):
            settings[name] = int(keys.number(f"{VISION}preproc_{name}"))
    if keys.has(VISION + "preproc_image_size"):
        settings["tile_size"] = int(keys.number(VISION + "preproc_image_size"))
    return config, settings


def _internvl(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    side, merge = tower["image_size"], merge_of(keys, SCALE, 2)
    tower |= {
        "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in shapes else "rms_norm",
        "use_qk_norm": "v.blk.0.attn_q_norm.weight" in shapes,
        "attention_bias": "v.blk.0.attn_q.bias" in shapes,
        "hidden_act": activation_of(keys, "gelu"),
    }
    settings: Config = {"size": {"height": side, "width": side}}
    for name in ("min", "max"):
        if keys.has(f"{VISION}preproc_{name}_tiles"):
            settings[f"{name}_patches"] = int(keys.number(f"{VISION}preproc_{name}_tiles"))
    return {"model_type": "internvl", "downsample_ratio": 1 / merge, "vision_config": tower}, settings


KINDS = {
    "idefics3": ProjectorKind(
        mark="<image>",
        texts=("LlamaForCausalLM", "GraniteForCausalLM"),
        tower="model.vision_model.",
        layers="encoder.layers.",
        layer=SIGLIP,
        outer={**OUTER, "mm.model.fc": "/model.connector.modality_projection.proj"},
        config=_idefics3,
    ),
    "gemma3": ProjectorKind(
        mark="<image_soft_token>",
        texts=("Gemma3ForCausalLM",),
        tower="model.vision_tower.",
        layers="encoder.layers.",
        layer=SIGLIP,
        outer={
            **OUTER,
            "mm.input_projection": "/model.multi_modal_projector.mm_input_projection_weight/",
            "mm.soft_emb_norm": "/model.multi_modal_projector.mm_soft_emb_norm",
        },
        config=_gemma3,
        less_one=frozenset({"mm.soft_emb_norm"}),
    ),
    "lfm2": ProjectorKind(
        mark="<image>",
        texts=("Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
        tower="model.vision_tower.",
        layers="encoder.layers.",
        layer=SIGLIP,
        outer={
            **OUTER,
            "mm.input_norm": "/model.multi_modal_projector.layer_norm",
            "mm.1": "/model.multi_modal_projector.linear_1",
            "mm.2": "/model.multi_modal_projector.linear_2",
        },
        config=_lfm2,
        colors_last=True,
    ),
    "internvl": ProjectorKind(
        mark="<IMG_CONTEXT>",
        texts=(
            *("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "LlamaForCausalLM"),
            *("InternLM2ForCausalLM", "GptOssForCausalLM"),
        ),
        tower="model.vision_tower.",
        layers="encoder.layer.",
        layer=VIT,
        outer={
            "v.class_embd": "embeddings.cls_token/",
            "v.patch_embd": "embeddings.patch_embeddings.projection",
            "v.position_embd": "embeddings.position_embeddings/",
            "mm.model.mlp.0": "/model.multi_modal_projector.layer_norm",
            "mm.model.mlp.1": "/model.multi_modal_projector.linear_1",
            "mm.model.mlp.3": "/model.multi_modal_projector.linear_2",
        },
        config=_internvl,
    ),
}
