"""Projectors after towers in whose checkpoints the two elements of a rotary pair are neighbours: Llama 4.

Source: conversion/llama4.py of llama.cpp.
"""

from __future__ import annotations

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import Config, ProjectorKind, Shapes, length, merge_of

SCALE = "projector.scale_factor"


def _llama4(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Llama 4. No key has the most tiles of an image, so the number is the published models'."""
    keys.truth("use_gelu", True)
    side, merge = tower["image_size"], merge_of(keys, SCALE, 2)
    tower["pixel_shuffle_ratio"] = 1 / merge
    for name in ("projector_input_dim", "projector_output_dim", "vision_output_dim"):
        tower[name] = length(shapes, "mm.model.mlp.1.weight", 0)
    return {"model_type": "llama4", "vision_config": tower}, {"size": {"height": side, "width": side}}


KINDS = {
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
