"""Projectors of image towers with 2D rotary positions (the line and the column of a patch): Qwen2-VL to Qwen3.5,
GLM-4.xV, Pixtral, Gemma 4.

Sources: conversion/{qwenvl,qwen3vl,llava,gemma}.py of llama.cpp.
"""

from __future__ import annotations

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import (
    VISION,
    Config,
    ProjectorKind,
    Shapes,
    activation_of,
    bounds_of_area,
    length,
    merge_of,
)
from twostroke.weights.gguf.row_orders import halves_of_pairs

BLOCK = {
    **{"attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ln1": "norm1", "ln2": "norm2"},
    **{"ffn_up": "mlp.up_proj", "ffn_gate": "mlp.gate_proj", "ffn_down": "mlp.down_proj"},
}
QWEN3 = {**BLOCK, "ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"}
QWEN2 = {**BLOCK, "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
MERGER = {
    "v.patch_embd": "patch_embed.proj",
    **{"v.post_ln": "merger.ln_q", "mm.0": "merger.mlp.0", "mm.2": "merger.mlp.2"},
}
FRAMES = 2
"""The number of frames of a patch, all with the same pixels. A file has a kernel for each frame."""
QWEN_TEXTS = ("Qwen2ForCausalLM",)


def _square(keys: Keys, tower: Config) -> Config:
    """Returns the fields of `tower`, and adds the field names of towers that merge squares of patches: depth,
    num_heads, spatial_merge_size, temporal_patch_size."""
    return {
        **tower,
        **{"depth": tower["num_hidden_layers"], "num_heads": tower["num_attention_heads"]},
        **{"spatial_merge_size": merge_of(keys, "spatial_merge_size", 2), "temporal_patch_size": FRAMES},
    }


def _qwen3_vl(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    marks = keys.each(VISION + "is_deepstack_layers", tower["num_hidden_layers"])
    deep = [index for index, mark in enumerate(marks) if mark]
    own = _square(keys, tower) | {"deepstack_visual_indexes": deep}
    own["num_position_embeddings"] = length(shapes, "v.position_embd.weight", 0)
    settings = {"size": bounds_of_area(keys, 65_536, 16_777_216)}
    return {"model_type": "qwen3_vl" if deep else "qwen3_5", "vision_config": own}, settings


def _qwen2_vl(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Qwen2-VL. The key feed_forward_length does not give the tower's inner size, so a tensor's
    shape gives it."""
    wide = tower["hidden_size"]
    inner = max(shapes.get("v.blk.0.ffn_up.weight", (wide, wide)))
    own = _square(keys, tower) | {"embed_dim": wide, "mlp_ratio": inner / wide}
    own["hidden_size"] = length(shapes, "mm.2.weight", wide)
    own["hidden_act"] = activation_of(keys, "gelu")
    return {"model_type": "qwen2_vl", "vision_config": own}, {"size": bounds_of_area(keys, 3136, 12_845_056)}


def _qwen2_5_vl(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Qwen2.5-VL. Every n_wa_pattern-th layer sees the whole tile."""
    layers, every = tower["num_hidden_layers"], int(keys.number(VISION + "n_wa_pattern", 8))
    own = _square(keys, tower) | {
        **{"hidden_act": activation_of(keys, "gelu"), "window_size": int(keys.number(VISION + "window_size", 112))},
        "fullatt_block_indexes": list(range(every - 1, layers, every)) if every > 0 else list(range(layers)),
        "out_hidden_size": length(shapes, "mm.2.weight", 0),
    }
    return {"model_type": "qwen2_5_vl", "vision_config": own}, {"size": bounds_of_area(keys, 3136, 12_845_056)}


def _glm4v(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    own = _square(keys, tower) | {
        **{"rms_norm_eps": tower["layer_norm_eps"], "hidden_act": activation_of(keys, "gelu")},
        **{"attention_bias": "v.blk.0.attn_qkv.bias" in shapes or "v.blk.0.attn_q.bias" in shapes},
        "out_hidden_size": length(shapes, "mm.model.fc.weight", 0),
        "intermediate_size": length(shapes, "mm.gate.weight", tower["intermediate_size"]),
    }
    return {"model_type": "glm4v", "vision_config": own}, {"size": bounds_of_area(keys, 12_544, 9_633_792)}


def _pixtral(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Mistral 3, or of Pixtral, which merges no patches and has a config like LLaVA's."""
    merges = "mm.patch_merger.weight" in shapes
    own = tower | {"hidden_act": activation_of(keys, "gelu"), "model_type": "pixtral"}
    if keys.has("rope.freq_base"):
        own["rope_parameters"] = {"rope_theta": keys.number("rope.freq_base")}
    config: Config = {
        **{"model_type": "mistral3" if merges else "llava", "vision_config": own},
        "multimodal_projector_bias": "mm.1.bias" in shapes,
    }
    if merges:
        config["spatial_merge_size"] = merge_of(keys, "spatial_merge_size", 2)
    return config, {"size": {"longest_edge": tower["image_size"]}}


def _gemma4(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of Gemma 4. image_size has no meaning: the images decide the size of tiles."""
    merge = merge_of(keys, "projector.scale_factor", 3)
    own = tower | {
        **{"rms_norm_eps": tower["layer_norm_eps"], "num_key_value_heads": tower["num_attention_heads"]},
        **{"head_dim": length(shapes, "v.blk.0.attn_q_norm.weight", 64), "pooling_kernel_size": merge},
        "position_embedding_size": length(shapes, "v.position_embd.weight", 1, axis=1),
        "use_clipped_linears": "v.blk.0.attn_q.input_min" in shapes,
        "standardize": "v.std_bias" in shapes,
    }
    return {"model_type": "gemma4", "vision_config": own}, _gemma4_settings(keys, tower, merge)


def _gemma4_settings(keys: Keys, tower: Config, merge: int) -> Config:
    settings: Config = {"do_normalize": keys.has(VISION + "image_mean")}
    if keys.has(VISION + "image_max_pixels"):
        area = (merge * tower["patch_size"]) ** 2
        settings["max_soft_tokens"] = int(keys.number(VISION + "image_max_pixels")) // area
    return settings


def _gemma4_unified(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of the Gemma 4 models without a tower. The field `planes` marks the layout of GGUF files: the
    pixels of a patch one colour after the other, and the position embeddings one axis after the other."""
    merge = merge_of(keys, "projector.scale_factor", 3)
    own: Config = {
        **{"patch_size": tower["patch_size"], "pooling_kernel_size": merge, "mm_embed_dim": tower["hidden_size"]},
        **{"mm_posemb_size": length(shapes, "v.position_embd.weight", 1, axis=1), "planes": True},
        "rms_norm_eps": tower["layer_norm_eps"],
    }
    settings = {**_gemma4_settings(keys, tower, merge), "patch_size": tower["patch_size"]}
    return {"model_type": "gemma4_unified", "vision_config": own}, {**settings, "pooling_kernel_size": merge}


def _gemma4_text(text: Config) -> Config:
    """Returns the field that lets rows of an image see each other in both directions. Models with per-layer embeddings
    do not get this field."""
    return {} if text.get("hidden_size_per_layer_input") else {"use_bidirectional_attention": "vision"}


KINDS = {
    "qwen3vl_merger": ProjectorKind(
        mark="<|image_pad|>",
        texts=("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
        tower="model.visual.",
        layers="blocks.",
        layer=QWEN3,
        outer={
            **{"v.patch_embd": "patch_embed.proj", "v.position_embd": "pos_embed", "v.post_ln": "merger.norm"},
            **{"mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"},
        },
        config=_qwen3_vl,
    ),
    "qwen2vl_merger": ProjectorKind(
        mark="<|image_pad|>",
        texts=QWEN_TEXTS,
        tower="model.visual.",
        layers="blocks.",
        layer=QWEN2,
        outer=MERGER,
        config=_qwen2_vl,
        joined="attn.qkv",
    ),
    "qwen2.5vl_merger": ProjectorKind(
        mark="<|image_pad|>",
        texts=QWEN_TEXTS,
        tower="model.visual.",
        layers="blocks.",
        layer=BLOCK,
        outer=MERGER,
        config=_qwen2_5_vl,
        joined="attn.qkv",
    ),
    "glm4v": ProjectorKind(
        mark="<|image|>",
        texts=("Glm4ForCausalLM", "Glm4MoeForCausalLM"),
        tower="model.visual.",
        layers="blocks.",
        layer=BLOCK,
        outer={
            **{"v.patch_embd": "patch_embed.proj", "v.position_embd": "embeddings.position_embedding"},
            **{"v.norm_embd": "post_conv_layernorm", "v.post_ln": "post_layernorm", "mm.patch_merger": "downsample"},
            **{"mm.model.fc": "merger.proj", "mm.post_norm": "merger.post_projection_norm"},
            **{"mm.up": "merger.up_proj", "mm.gate": "merger.gate_proj", "mm.down": "merger.down_proj"},
        },
        config=_glm4v,
        joined="attn.qkv",
    ),
    "pixtral": ProjectorKind(
        mark="[IMG]",
        texts=("LlamaForCausalLM", "MistralForCausalLM", "Ministral3ForCausalLM"),
        tower="model.vision_tower.",
        layers="transformer.layers.",
        layer={
            **{"attn_q": "attention.q_proj", "attn_k": "attention.k_proj", "attn_v": "attention.v_proj"},
            **{"attn_out": "attention.o_proj", "ln1": "attention_norm", "ln2": "ffn_norm"},
            **{f"ffn_{each}": f"feed_forward.{each}_proj" for each in ("gate", "up", "down")},
        },
        outer={
            **{"v.patch_embd": "patch_conv", "v.pre_ln": "ln_pre"},
            "mm.input_norm": "/model.multi_modal_projector.norm",
            "mm.patch_merger": "/model.multi_modal_projector.patch_merger.merging_layer",
            "mm.1": "/model.multi_modal_projector.linear_1",
            "mm.2": "/model.multi_modal_projector.linear_2",
        },
        config=_pixtral,
        unread=frozenset({"v.token_embd.img_break"}),
        orders={"attn_q": halves_of_pairs, "attn_k": halves_of_pairs},
    ),
    "gemma4v": ProjectorKind(
        mark="<|image|>",
        texts=("Gemma4ForCausalLM",),
        tower="model.vision_tower.",
        layers="encoder.layers.",
        layer={
            **{f"attn_{each}": f"self_attn.{each}_proj.linear" for each in ("q", "k", "v")},
            **{"attn_out": "self_attn.o_proj.linear", "ln1": "input_layernorm", "ln2": "pre_feedforward_layernorm"},
            **{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
            **{"attn_post_norm": "post_attention_layernorm", "ffn_post_norm": "post_feedforward_layernorm"},
            **{f"ffn_{each}": f"mlp.{each}_proj.linear" for each in ("gate", "up", "down")},
        },
        outer={
            "v.patch_embd": "patch_embedder.input_proj",
            "v.position_embd": "patch_embedder.position_embedding_table/",
            **{"v.std_bias": "std_bias/", "v.std_scale": "std_scale/"},
            "mm.input_projection": "/model.embed_vision.embedding_projection",
        },
        config=_gemma4,
        more=_gemma4_text,
        colors_last=True,
    ),
    "gemma4uv": ProjectorKind(
        mark="<|image|>",
        texts=("Gemma4ForCausalLM",),
        tower="model.vision_embedder.",
        layers="",
        layer={},
        outer={
            **{"v.patch_norm.1": "patch_ln1", "v.patch_embd": "patch_dense", "v.patch_norm.2": "patch_ln2"},
            **{"v.position_embd": "pos_embedding/", "v.patch_norm.3": "pos_norm"},
            "mm.input_projection": "/model.embed_vision.embedding_projection",
        },
        config=_gemma4_unified,
        more=_gemma4_text,
    ),
}
