"""Tiny folders of models that see written as two GGUF files, by the `gguf` package's names: the text model and mmproj.

What convert_hf_to_gguf.py does to values is spelled out once more here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from tests.weights.gguf.export import FLOATS, TypeOf, add_hyperparameters, add_tokenizer, converted, read_tensors

TEXTS = ("model.language_model.", "language_model.model.", "model.text_model.")


def write_text(folder: Path, path: Path, arch: str) -> Path:
    """The language model of a folder, with its tokenizer."""
    outer = json.loads((folder / "config.json").read_text())
    config = {**outer["text_config"], "tie_word_embeddings": outer.get("tie_word_embeddings", False)}
    writer = gguf.GGUFWriter(path, arch)
    add_hyperparameters(writer, config)
    sections = (config.get("rope_parameters") or {}).get("mrope_section")
    if sections:
        writer.add_rope_dimension_sections([*sections, 0])
    (path.parent / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "chat_template.jinja"):
        (path.parent / name).write_text((folder / name).read_text())
    add_tokenizer(writer, path.parent)
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        (path.parent / name).unlink()
    kind = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == arch)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, values in read_tensors(folder).items():
        begin = next((each for each in TEXTS if name.startswith(each)), None)
        if begin is None and not name.endswith("lm_head.weight"):
            continue
        plain = "lm_head.weight" if begin is None else "model." + name.removeprefix(begin)
        ours = names.get_name(plain, try_suffixes=(".weight", ".bias"))
        assert ours is not None, plain
        writer.add_tensor(ours, converted(plain, values, arch, config))
    return _written(writer, path)


def write_projector(folder: Path, path: Path, word: str, type_of: TypeOf = FLOATS, **changed: Any) -> Path:
    """The tower and the projector of a folder. changed: keys with other values."""
    outer = json.loads((folder / "config.json").read_text())
    own, settings = outer["vision_config"], json.loads((folder / "preprocessor_config.json").read_text())
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(word)
    writer.add_vision_projection_dim(changed.pop("width", outer["text_config"]["hidden_size"]))
    layers = own.get("num_hidden_layers") or own["depth"]
    side = own.get("image_size") or round(own["num_position_embeddings"] ** 0.5) * own["patch_size"]
    writer.add_vision_image_size(side)
    writer.add_vision_patch_size(own["patch_size"])
    writer.add_vision_embedding_length(own["hidden_size"])
    writer.add_vision_feed_forward_length(own["intermediate_size"])
    writer.add_vision_block_count(layers)
    writer.add_vision_head_count(own.get("num_attention_heads") or own["num_heads"])
    writer.add_vision_image_mean(settings["image_mean"])
    writer.add_vision_image_std(settings["image_std"])
    writer.add_vision_attention_layernorm_eps(own.get("layer_norm_eps", 1e-6))
    writer.add_vision_use_gelu(True)
    if word == "idefics3":
        writer.add_vision_projector_scale_factor(outer["scale_factor"])
        writer.add_vision_preproc_image_size(settings["size"]["longest_edge"])
    if word == "gemma3":
        columns = round(outer["mm_tokens_per_image"] ** 0.5)
        writer.add_vision_projector_scale_factor(side // own["patch_size"] // columns)
    if word == "qwen3vl_merger":
        writer.add_vision_spatial_merge_size(own["spatial_merge_size"])
        deep = own.get("deepstack_visual_indexes") or []
        writer.add_vision_is_deepstack_layers([index in deep for index in range(layers)])
        writer.add_vision_min_pixels(settings["size"]["shortest_edge"])
        writer.add_vision_max_pixels(settings["size"]["longest_edge"])
    for ours, values in _stored(folder, layers, own).items():
        kind = type_of(ours, values.shape)
        if kind is not Type.F32 and (values.ndim > 2 or values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]):
            kind = Type.F16
        writer.add_tensor(ours, gguf.quants.quantize(values, kind), raw_dtype=kind)
    return _written(writer, path)


def _stored(folder: Path, layers: int, own: dict[str, Any]) -> dict[str, np.ndarray]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    found: dict[str, np.ndarray] = {}
    for name, values in read_tensors(folder).items():
        if name.startswith(TEXTS) or name.endswith("lm_head.weight") or ".head." in name:
            continue
        name = name.replace("model.visual.", "visual.").replace("_projection_weight", "_projection.weight")
        if name.startswith("visual.deepstack_merger_list."):
            place, rest = name.split(".", 3)[2:]
            layer = own["deepstack_visual_indexes"][int(place)]
            found[f"v.deepstack.{layer}.{rest.replace('linear_', '')}"] = values
        elif name.startswith("visual.merger."):
            rest = name.removeprefix("visual.merger.")
            swap = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
            found[f"{swap[rest.split('.')[0]]}.{rest.split('.')[1]}"] = values
        elif name == "visual.patch_embed.proj.weight":
            found |= {"v.patch_embd.weight": values[:, :, 0], "v.patch_embd.weight.1": values[:, :, 1]}
        else:
            name = name if not name.startswith("vision_tower.") else name.replace(
                "vision_tower.", "vision_tower.vision_model.", 1
            ).replace("vision_model.vision_model.", "vision_model.")
            ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert ours is not None, name
            found[ours] = values + 1 if "soft_emb_norm" in name else values
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
