"""Projectors of Llama 4 and Kimi. In checkpoints of their towers, the two elements that rotary positions rotate
together are neighbours.

Sources: conversion/{llama4,kimivl}.py of llama.cpp.
"""

from __future__ import annotations

import math

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import VISION, Config, ProjectorKind, Shapes, length, merge_of
from twostroke.weights.gguf.row_orders import axes_in_turn

SCALE = "projector.scale_factor"


def _llama4(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Llama 4. Files have no key for the maximum number of tiles of an image, so the number of
    the published models is used."""
    keys.truth("use_gelu", True)
    side, merge = tower["image_size"], merge_of(keys, SCALE, 2)
    tower["pixel_shuffle_ratio"] = 1 / merge
    for name in ("projector_input_dim", "projector_output_dim", "vision_output_dim"):
        tower[name] = length(shapes, "mm.model.mlp.1.weight", 0)
    return {"model_type": "llama4", "vision_config": tower}, {"size": {"height": side, "width": side}}


def _kimi(keys: Keys, tower: Config, shapes: Shapes) -> Config:
    """Returns the fields that Kimi-VL and Kimi K2.5 have in common. The position embeddings form a square grid, stored
    with one axis of positions or with two."""
    keys.truth("use_gelu", True)
    *places, _ = shapes.get("v.position_embd.weight", (0, 0))
    side = math.isqrt(math.prod(places))
    own = tower | {"pos_emb_height": side, "pos_emb_width": side, "merge_kernel_size": merge_of(keys, SCALE, 2)}
    return {"model_type": "kimi_k25", "vision_config": own}


def _kimi_k25(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Kimi K2.5. The key image_max_pixels limits an image before black is added around it."""
    config, settings = _kimi(keys, tower, shapes), Config()
    config["projection_layer_norm_eps"] = tower["layer_norm_eps"]
    if keys.has(VISION + "image_max_pixels"):
        settings["max_patches"] = int(keys.number(VISION + "image_max_pixels")) // tower["patch_size"] ** 2
    return config, settings


def _kimi_vl(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Kimi-VL. Files have no key for the maximum number of patches, so the number of the first
    published model is used."""
    return _kimi(keys, tower, shapes), {"max_patches": 4096}


KIMI_BLOCK = {
    **{"attn_qkv": "wqkv", "attn_out": "wo", "ln1": "norm0", "ln2": "norm1"},
    **{"ffn_up": "mlp.fc0", "ffn_down": "mlp.fc1"},
}
KIMI_OUTER = {
    **{"v.patch_embd": "patch_embed.proj", "v.position_embd": "patch_embed.pos_emb"},
    **{"v.post_ln": "encoder.final_layernorm", "mm.input_norm": "/mm_projector.pre_norm"},
    **{"mm.1": "/mm_projector.proj.0", "mm.2": "/mm_projector.proj.2"},
}
KINDS = {
    "kimik25": ProjectorKind(
        mark="<|media_pad|>",
        texts=("DeepseekV3ForCausalLM",),
        tower="vision_tower.",
        layers="encoder.blocks.",
        layer=KIMI_BLOCK,
        outer=KIMI_OUTER,
        config=_kimi_k25,
        orders={"attn_qkv": axes_in_turn},
    ),
    "kimivl": ProjectorKind(
        mark="<|media_pad|>",
        texts=("DeepseekV3ForCausalLM",),
        tower="vision_tower.",
        layers="encoder.blocks.",
        layer=KIMI_BLOCK,
        outer=KIMI_OUTER,
        config=_kimi_vl,
        joined="wqkv",
    ),
    "llama4": ProjectorKind(
        mark="<|patch|>",
        texts=("Llama4ForCausalLM",),
        tower="vision_model.",
        layers="model.layers.",
        layer={
            **{f"attn_{each}": f"self_attn.{each}_proj" for each in ("q", "k", "v")},
            **{"attn_out": "self_attn.o_proj", "ln1": "input_layernorm", "ln2": "post_attention_layernorm"},
            "attn_post_norm": "post_attention_layernorm",  # as some versions of the converter call it
            **{"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        },
        outer={
            **{"v.patch_embd": "patch_embedding.linear", "v.class_embd": "class_embedding/"},
            **{"v.position_embd": "positional_embedding_vlm/", "v.pre_ln": "layernorm_pre"},
            **{"v.post_ln": "layernorm_post", "mm.model.mlp.1": "vision_adapter.mlp.fc1"},
            **{"mm.model.mlp.2": "vision_adapter.mlp.fc2", "mm.model.fc": "/multi_modal_projector.linear_1"},
        },
        config=_llama4,
    ),
}
