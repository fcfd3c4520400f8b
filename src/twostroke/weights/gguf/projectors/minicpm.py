"""The projector of MiniCPM-V 4.6. Its tower merges patches in the middle of its layers, and two linear layers follow
the tower.

Sources: conversion/minicpm.py and tools/mtmd/clip.cpp of llama.cpp.
"""

from __future__ import annotations

import math

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import VISION, Config, ProjectorKind, Shapes, length, merge_of
from twostroke.weights.gguf.projectors.siglip import OUTER, SCALE, SIGLIP

LAYERS = "wa_layer_indexes"
MODES = {2: "4x", 4: "16x"}
"""Number of patches on each side of the square that becomes one image row -> the value of `downsample_mode` in
config.json."""


def _minicpm(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of MiniCPM-V. image_size is the side of a slice in pixels. The size that the tower was trained
    with follows from the number of its position embeddings."""
    merge, side, patch = merge_of(keys, SCALE, 4), tower["image_size"], tower["patch_size"]
    if merge not in MODES:
        raise keys.wrong(VISION + SCALE, f"It is {' or '.join(map(str, MODES))}.")
    tower["image_size"] = patch * math.isqrt(length(shapes, "v.position_embd.weight", 4900))
    found = keys.integers(VISION + LAYERS) if keys.has(VISION + LAYERS) else []
    config: Config = {
        **{"model_type": "minicpmv4_6", "vision_config": tower, "downsample_mode": MODES[merge]},
        "insert_layer_id": found[0] if found else 6,
    }
    return config, {"scale_resolution": side, "patch_size": patch, "downsample_mode": MODES[merge]}


KINDS = {
    "minicpmv4_6": ProjectorKind(
        mark="<|image_pad|>",
        texts=("Qwen3_5ForCausalLM",),
        tower="model.vision_tower.",
        layers="encoder.layers.",
        layer=SIGLIP,
        outer={
            **OUTER,
            **{f"v.vit_merger.attn_{each}": f"vit_merger.self_attn.{each}_proj" for each in ("q", "k", "v")},
            **{"v.vit_merger.attn_out": "vit_merger.self_attn.out_proj", "v.vit_merger.ln1": "vit_merger.layer_norm1"},
            **{"v.vit_merger.ds_ln": "vit_merger.pre_norm", "v.vit_merger.ds_ffn_up": "vit_merger.linear_1"},
            "v.vit_merger.ds_ffn_down": "vit_merger.linear_2",
            "mm.input_norm": "/model.merger.mlp.0.pre_norm",
            "mm.up": "/model.merger.mlp.0.linear_1",
            "mm.down": "/model.merger.mlp.0.linear_2",
        },
        config=_minicpm,
    ),
}
