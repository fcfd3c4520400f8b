"""The output of llama.cpp's converter for each tower: keys of its own, names by the `gguf` package, changed values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.weights.gguf.export import interleaved, read_tensors

Given = dict[str, Any]
Writer = gguf.GGUFWriter
ENDINGS = (".weight", ".bias", ".input_max", ".input_min", ".output_max", ".output_min")
SEEN = (
    *("visual.", "model.visual.", "model.vision", "model.multi_modal", "model.embed_vision", "model.connector"),
    *("vision_model.", "mm_projector.", "model.mm_projector.", "model.merger."),
)
WHOLE = ("vision_tower.", "multi_modal_projector.", "embed_vision.")


def tower_of(outer: Given) -> Given:
    """The vision_config; for the model without a tower it is as the converter has it."""
    own: Given = outer["vision_config"]
    none = {"intermediate_size": 0, "depth": 0, "num_heads": 0, "hidden_size": own.get("mm_embed_dim")}
    return {**own, **none} if outer["model_type"] == "gemma4_unified" else own


def stored_tensors(folder: Path, word: str, outer: Given) -> dict[str, np.ndarray]:
    """All tensors of an mmproj file."""
    own = tower_of(outer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(4, own.get("num_hidden_layers") or own["depth"]))
    found: dict[str, np.ndarray] = {}
    tensors = read_tensors(folder)
    for name, values in tensors.items():
        if not name.startswith((*SEEN, *WHOLE, "image_newline", "model.image_")) or ".head." in name:
            continue
        for each, changed in _changed(word, name, values, own):
            own_name = each.startswith(("v.", "mm.", "model.image_"))
            ours = each if own_name else names.get_name(each, try_suffixes=ENDINGS)
            assert ours is not None, each
            found[ours] = changed
    if word == "pixtral":
        table = next(values for name, values in tensors.items() if name.endswith("embed_tokens.weight"))
        found["v.token_embd.img_break"] = table[3]
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def _changed(word: str, name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """(name that the package knows or that a file has, values) for each tensor that one tensor becomes."""
    if word in ("gemma4v", "internvl") and name.startswith(WHOLE):
        name = f"model.{name}"
    if name.startswith(("visual.", "model.visual.")):
        yield from _visual(word, name.removeprefix("model."), values, own)
    elif word == "gemma4v":
        yield _gemma4(name, values)
    elif word == "gemma4uv":
        yield _gemma4_unified(name, values, own)
    elif word == "internvl":
        yield _internvl(name, values)
    elif word in ("idefics3", "newest"):
        yield name, values
    elif word in CHANGES:
        yield from CHANGES[word](word, name, values, own)
    elif word == "mlp":
        yield from _llava(name.removeprefix("model."), values, own)
    else:
        name = name.removeprefix("model.").replace("_projection_weight", "_projection.weight")
        if word == "pixtral" and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = interleaved(values, own["num_attention_heads"])
        if word == "lfm2" and name.endswith("patch_embedding.weight"):
            side = own["patch_size"]
            values = values.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
        if word in ("gemma3", "lfm2") and name.startswith("vision_tower."):
            name = "vision_tower.vision_model." + name.removeprefix("vision_tower.").removeprefix("vision_model.")
        yield name, values + 1 if "soft_emb_norm" in name else values


def _llava(name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """The tower without its last layer."""
    if name == "image_newline":
        yield "model.image_newline", values
    elif name.startswith("multi_modal_projector."):
        yield name.replace("multi_modal_projector.linear_1", "mm.0").replace(f"{WHOLE[1]}linear_2", "mm.2"), values
    elif f".layers.{own['num_hidden_layers'] - 1}." not in name:
        name = name.replace("vision_tower.", "vision_tower.vision_model.")
        swap = {"class_embedding": "v.class_embd", "pre_layrnorm": "v.pre_ln", "post_layernorm": "v.post_ln"}
        word = next((word for word in swap if word in name), "")
        ending = name.rpartition(".")[2]
        yield (swap[word] + f".{ending}" * (word != "class_embedding") if word else name), values


def _llama4(word: str, name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """The package's map has another name for the second norm than the files of Llama 4."""
    words = name.split(".")
    if name.startswith("multi_modal_projector."):
        name = "mm.model.fc.weight"
    elif "post_attention_layernorm" in name:
        name = f"v.blk.{words[3]}.ln2.{words[-1]}"
    yield name + ".weight" * name.endswith("positional_embedding_vlm"), values


def _kimi(word: str, name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """Kimi K2.5 with the pairs of each axis together, Kimi-VL with q, k and v and one axis of places."""
    name = name.removeprefix("model.").replace("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")
    for place, stored in (("proj.0", "mm.1"), ("proj.2", "mm.2"), ("pre_norm", "mm.input_norm")):
        name = name.replace(f"mm_projector.{place}", stored)
    if "wqkv" not in name:
        yield name, values.reshape(-1, values.shape[-1]) if word == "kimivl" and "pos_emb" in name else values
        return
    parts = np.split(values, 3)
    if word == "kimivl":
        yield from ((name.replace("wqkv", f"w{part}"), each) for part, each in zip("qkv", parts, strict=True))
        return
    for place in (0, 1):
        rows = parts[place].reshape(own["num_attention_heads"], -1, 2, 2, *values.shape[1:])
        parts[place] = np.swapaxes(rows, 1, 2).reshape(parts[place].shape)
    yield name, np.concatenate(parts)


def _visual(word: str, name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """The towers of Qwen and GLM."""
    rest = name.removeprefix("visual.merger.")
    if name.startswith("visual.deepstack_merger_list."):
        place, part = name.split(".", 3)[2:]
        yield f"v.deepstack.{own['deepstack_visual_indexes'][int(place)]}.{part.replace('linear_', '')}", values
    elif word == "qwen3vl_merger" and rest != name:
        swap = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
        yield f"{swap[rest.split('.')[0]]}.{rest.split('.')[1]}", values
    elif name == "visual.patch_embed.proj.weight":
        yield from (("v.patch_embd.weight", values[:, :, 0]), ("v.patch_embd.weight.1", values[:, :, 1]))
    elif word.startswith("qwen2") and ".qkv." in name:
        for part, own_rows in zip("qkv", np.split(values, 3), strict=True):
            yield name.replace("qkv", part), own_rows
    else:
        yield name, values


def _gemma4(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    name = name.replace("model.vision_tower.encoder.", "vision_model.model.").replace(".linear.weight", ".weight")
    if name.endswith("position_embedding_table"):
        name += ".weight"
    if name.endswith("input_proj.weight"):
        side = round((values.shape[1] // 3) ** 0.5)
        values = values.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
    return name, values.reshape(1) if values.ndim == 0 else values


def _gemma4_unified(name: str, values: np.ndarray, own: Given) -> tuple[str, np.ndarray]:
    """The names are those of newer versions of the package."""
    stem, _, ending = name.rpartition(".")
    word, side = stem.rpartition(".")[2], own["patch_size"] * own["pooling_kernel_size"]
    if ending == "pos_embedding":
        return "v.position_embd.weight", values.transpose(1, 0, 2)
    if word in ("patch_ln1", "patch_dense") and values.shape[-1] == 3 * side**2:
        values = np.moveaxis(values.reshape(-1, side * side, 3), 2, 1).reshape(values.shape)
    norms = {"patch_ln1": "v.patch_norm.1", "patch_ln2": "v.patch_norm.2", "pos_norm": "v.patch_norm.3"}
    rest = {"patch_dense": "v.patch_embd", "embedding_projection": "mm.input_projection"}
    return f"{(norms | rest)[word]}.{ending}", values


def _internvl(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    for ours, stored in (("layer_norm", 0), ("linear_1", 1), ("linear_2", 3)):
        name = name.replace(f"model.multi_modal_projector.{ours}.", f"mm.model.mlp.{stored}.")
    return name + ".weight" * (".lambda_" in name or "position_embedding" in name), values


MINICPM = {
    **{"layer_norm1": "ln1", "self_attn.out_proj": "attn_out", "pre_norm": "ds_ln"},
    **{"linear_1": "ds_ffn_up", "linear_2": "ds_ffn_down"},
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
}


def _minicpm(word: str, name: str, values: np.ndarray, own: Given) -> Iterator[tuple[str, np.ndarray]]:
    """The names of the mergers are those of newer versions of the package."""
    stem, _, ending = name.rpartition(".")
    _, merger, inner = stem.partition(".vit_merger.")
    if merger:
        name = f"v.vit_merger.{MINICPM[inner]}.{ending}"
    elif stem.startswith("model.merger.mlp.0."):
        last = {"pre_norm": "input_norm", "linear_1": "up", "linear_2": "down"}
        name = f"mm.{last[stem.rpartition('.')[2]]}.{ending}"
    yield name.replace("model.vision_tower.", "vision_tower.vision_model."), values


CHANGES = {"kimik25": _kimi, "kimivl": _kimi, "llama4": _llama4, "minicpmv4_6": _minicpm}
"""How tensors of a projector's type are named and stored, by the type."""


def _idefics3_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(outer["scale_factor"])
    writer.add_vision_preproc_image_size(settings["size"]["longest_edge"])


def _gemma3_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    columns = round(outer["mm_tokens_per_image"] ** 0.5)
    writer.add_vision_projector_scale_factor(own["image_size"] // own["patch_size"] // columns)


def _bounds(writer: Writer, settings: Given) -> None:
    writer.add_vision_min_pixels(settings["size"]["shortest_edge"])
    writer.add_vision_max_pixels(settings["size"]["longest_edge"])


def _qwen3_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    writer.add_vision_spatial_merge_size(own["spatial_merge_size"])
    deep = own.get("deepstack_visual_indexes") or []
    writer.add_vision_is_deepstack_layers([index in deep for index in range(own["depth"])])
    _bounds(writer, settings)


def _qwen2_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """No key names an activation, so it is quick_gelu."""
    _bounds(writer, settings)


def _qwen2_5_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_silu(True)
    writer.add_vision_n_wa_pattern(own["fullatt_block_indexes"][0] + 1)
    writer.add_uint32("clip.vision.window_size", own["window_size"])
    _bounds(writer, settings)


def _glm_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_silu(True)
    _bounds(writer, settings)


def _pixtral_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_silu(True)
    if "spatial_merge_size" in outer:
        writer.add_vision_spatial_merge_size(outer["spatial_merge_size"])


def _lfm2_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """The processor's settings are too small for real files, which leave them out."""
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(outer["downsample_factor"])
    area = (outer["downsample_factor"] * own["patch_size"]) ** 2
    writer.add_vision_min_pixels(settings["min_image_tokens"] * area)
    writer.add_vision_max_pixels(settings["max_image_tokens"] * area)
    writer.add_vision_preproc_max_tiles(settings["max_tiles"])
    writer.add_vision_preproc_image_size(settings["tile_size"])


def _internvl_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(int(1 / outer["downsample_ratio"]))
    writer.add_vision_preproc_max_tiles(settings["max_patches"])


def _gemma4_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """The keys as for LFM2-VL."""
    writer.add_vision_max_pixels(settings["max_soft_tokens"] * (3 * own["patch_size"]) ** 2)


def _unified_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """The keys as for Gemma 4."""
    writer.add_vision_projector_scale_factor(own["pooling_kernel_size"])
    _gemma4_keys(writer, outer, own, settings)


def _minicpm_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """The side of a slice takes the place of the tower's."""
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(2 if outer["downsample_mode"] == "4x" else 4)
    writer.add_vision_wa_layer_indexes([outer["insert_layer_id"]])


def _llava_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    """The keys as old scripts write them: the width is that of CLIP's own projection."""
    writer.add_bool("clip.use_gelu", own["model_type"] == "siglip_vision_model")
    if grids := outer.get("image_grid_pinpoints"):
        turned = [side for high, wide in grids for side in (wide, high)]
        writer.add_array("clip.vision.image_grid_pinpoints", turned)


def _llama4_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(int(1 / own["pixel_shuffle_ratio"]))


def _kimi_k25_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_uint32("vision.pos_emb_height", own["pos_emb_height"])
    writer.add_vision_min_pixels(8 * own["patch_size"] ** 2)
    writer.add_vision_max_pixels(settings["max_patches"] * own["patch_size"] ** 2)
    _kimi_vl_keys(writer, outer, own, settings)


def _kimi_vl_keys(writer: Writer, outer: Given, own: Given, settings: Given) -> None:
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(own["merge_kernel_size"][0])


KEYS = {
    **{"idefics3": _idefics3_keys, "gemma3": _gemma3_keys, "qwen3vl_merger": _qwen3_keys, "glm4v": _glm_keys},
    **{"qwen2vl_merger": _qwen2_keys, "qwen2.5vl_merger": _qwen2_5_keys, "pixtral": _pixtral_keys},
    "mlp": _llava_keys,
    **{"lfm2": _lfm2_keys, "internvl": _internvl_keys, "gemma4v": _gemma4_keys, "newest": _idefics3_keys},
    **{"gemma4uv": _unified_keys, "minicpmv4_6": _minicpm_keys, "llama4": _llama4_keys},
    **{"kimik25": _kimi_k25_keys, "kimivl": _kimi_vl_keys},
}
