"""Tiny folders of models that see images, written as two GGUF files, by the `gguf` package's names: the text model and
mmproj.

The changes of convert_hf_to_gguf.py to values are written once more here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType as Type

from tests.vision.projector_tensors import KEYS, stored_tensors, tower_of
from tests.weights.gguf.converted import add_key, tensors_of
from tests.weights.gguf.export import FLOATS, TypeOf, add_hyperparameters, add_tokenizer, converted, read_tensors

Given = dict[str, Any]
TEXTS = ("model.language_model.", "language_model.model.", "model.text_model.")
PLAIN = ("model.layers.", "model.embed_tokens.", "model.norm.")


def write_text(folder: Path, path: Path, arch: str) -> Path:
    """Writes the language model of a folder, with its tokenizer."""
    return _write_other(folder, path, arch) if arch in OTHER_KEYS else _write_plain(folder, path, arch)


def _write_other(folder: Path, path: Path, arch: str) -> Path:
    """Writes a language model whose tensors the converter changes more."""
    outer = json.loads((folder / "config.json").read_text())
    config = {**outer["text_config"], "tie_word_embeddings": outer.get("tie_word_embeddings", False)}
    writer = gguf.GGUFWriter(path, arch)
    for key, (kind, value) in {**_usual_keys(config), **OTHER_KEYS[arch](config)}.items():
        add_key(writer, f"{arch}.{key}", kind, value)
    _add_tokenizer(writer, folder, path, config)
    tensors = {name: each for name, each in read_tensors(folder).items() if name.startswith(TEXTS) or "lm_head" in name}
    tensors = {name.replace("model.blocks.", "model.layers."): values for name, values in tensors.items()}
    for name, values in tensors_of(arch, config, tensors):
        writer.add_tensor(name, values)
    return _written(writer, path)


def _usual_keys(config: Given) -> Given:
    sizes = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "vocab_size": config["vocab_size"],
    }
    eps = config.get("rms_norm_eps") or config["norm_eps"]
    return {**{key: (4, value) for key, value in sizes.items()}, "attention.layer_norm_rms_epsilon": (6, eps)}


def _lfm2_keys(config: Given) -> Given:
    attends = [kind == "full_attention" for kind in config["layer_types"]]
    return {
        "attention.head_count_kv": (5, [config["num_key_value_heads"] * each for each in attends]),
        "rope.freq_base": (6, config["rope_parameters"]["rope_theta"]),
        "shortconv.l_cache": (4, config["conv_L_cache"]),
    }


def _gemma4_keys(config: Given) -> Given:
    wide = next(each["head_dim"] for each in config["per_layer_config"].values())
    kinds, ropes = config["layer_types"], config["rope_parameters"]
    return {
        "rope.freq_base": (6, ropes["full_attention"]["rope_theta"]),
        "rope.freq_base_swa": (6, ropes["sliding_attention"]["rope_theta"]),
        "attention.sliding_window": (4, config["sliding_window"]),
        "attention.shared_kv_layers": (4, config["num_kv_shared_layers"]),
        "embedding_length_per_layer_input": (4, config["hidden_size_per_layer_input"]),
        "attention.sliding_window_pattern": (7, [kind == "sliding_attention" for kind in kinds]),
        **{f"attention.{part}_length": (4, wide) for part in ("key", "value")},
        **{f"attention.{part}_length_swa": (4, config["head_dim"]) for part in ("key", "value")},
        **{"rope.dimension_count": (4, wide), "rope.dimension_count_swa": (4, config["head_dim"])},
    }


def _glm4_keys(config: Given) -> Given:
    turn, dim = config["rope_parameters"], config["head_dim"]
    return {
        "rope.freq_base": (6, turn["rope_theta"]),
        "rope.dimension_count": (4, int(dim * turn["partial_rotary_factor"])),
        "rope.dimension_sections": (5, [*turn["mrope_section"], 0]),
        **{f"attention.{part}_length": (4, dim) for part in ("key", "value")},
    }


def _qwen35_keys(config: Given) -> Given:
    turn, dim, wide = config["rope_parameters"], config["head_dim"], config["linear_value_head_dim"]
    return {
        "rope.freq_base": (6, turn["rope_theta"]),
        "rope.dimension_count": (4, int(dim * turn["partial_rotary_factor"])),
        "rope.dimension_sections": (5, [*turn["mrope_section"], 0]),
        **{f"attention.{part}_length": (4, dim) for part in ("key", "value")},
        "attention.recurrent_layers": (7, [kind == "linear_attention" for kind in config["layer_types"]]),
        "ssm.conv_kernel": (4, config["linear_conv_kernel_dim"]),
        "ssm.state_size": (4, config["linear_key_head_dim"]),
        "ssm.group_count": (4, config["linear_num_key_heads"]),
        "ssm.time_step_rank": (4, config["linear_num_value_heads"]),
        "ssm.inner_size": (4, config["linear_num_value_heads"] * wide),
    }


def _llama4_keys(config: Given) -> Given:
    return {
        "rope.freq_base": (6, config["rope_parameters"]["rope_theta"]),
        "rope.dimension_count": (4, config["head_dim"]),
        "expert_count": (4, config["num_local_experts"]),
        "expert_used_count": (4, config["num_experts_per_tok"]),
        "expert_feed_forward_length": (4, config["intermediate_size"]),
        "feed_forward_length": (4, config["intermediate_size_mlp"]),
        "interleave_moe_layer_step": (4, config["interleave_moe_layer_step"]),
        **{f"attention.{part}_length": (4, config["head_dim"]) for part in ("key", "value")},
    }


def _deepseek2_keys(config: Given) -> Given:
    latent, turned = config["kv_lora_rank"], config["qk_rope_head_dim"]
    counts = {
        "expert_count": "n_routed_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_group_count": "n_group",
        "expert_group_used_count": "topk_group",
        "expert_shared_count": "n_shared_experts",
        "expert_feed_forward_length": "moe_intermediate_size",
        "leading_dense_block_count": "first_k_dense_replace",
        "attention.q_lora_rank": "q_lora_rank",
        "attention.kv_lora_rank": "kv_lora_rank",
        "attention.value_length_mla": "v_head_dim",
        "rope.dimension_count": "qk_rope_head_dim",
    }
    return {
        **{key: (4, config[name]) for key, name in counts.items()},
        "attention.head_count_kv": (4, 1),
        "attention.key_length": (4, latent + turned),
        "attention.value_length": (4, latent),
        "attention.key_length_mla": (4, config["qk_nope_head_dim"] + turned),
        "expert_weights_scale": (6, config["routed_scaling_factor"]),
        "expert_weights_norm": (7, config["norm_topk_prob"]),
        "rope.freq_base": (6, config["rope_parameters"]["rope_theta"]),
    }


OTHER_KEYS = {
    "deepseek2": _deepseek2_keys,
    "llama4": _llama4_keys,
    "lfm2": _lfm2_keys,
    "gemma4": _gemma4_keys,
    "glm4": _glm4_keys,
    "qwen35": _qwen35_keys,
}


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, path: Path, config: Given) -> None:
    (path.parent / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "chat_template.jinja"):
        (path.parent / name).write_text((folder / name).read_text())
    add_tokenizer(writer, path.parent)
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        (path.parent / name).unlink()


def _write_plain(folder: Path, path: Path, arch: str) -> Path:
    outer = json.loads((folder / "config.json").read_text())
    config = {**outer["text_config"], "tie_word_embeddings": outer.get("tie_word_embeddings", False)}
    writer = gguf.GGUFWriter(path, arch)
    add_hyperparameters(writer, config)
    sections = (config.get("rope_parameters") or {}).get("mrope_section")
    if sections:
        writer.add_rope_dimension_sections([*sections, 0])
    if added := (outer.get("vision_config") or {}).get("deepstack_visual_indexes"):
        writer.add_num_deepstack_layers(len(added))
    _add_tokenizer(writer, folder, path, config)
    kind = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == arch)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, values in read_tensors(folder).items():
        name = f"{TEXTS[0]}{name.removeprefix('model.')}" if name.startswith(PLAIN) else name
        begin = next((each for each in TEXTS if name.startswith(each)), None)
        if begin is None and not name.endswith("lm_head.weight"):
            continue
        plain = "lm_head.weight" if begin is None else "model." + name.removeprefix(begin)
        ours = names.get_name(plain, try_suffixes=(".weight", ".bias"))
        assert ours is not None, plain
        writer.add_tensor(ours, converted(plain, values, arch, config))
    return _written(writer, path)


def write_projector(folder: Path, path: Path, word: str, type_of: TypeOf = FLOATS, **changed: Any) -> Path:
    """Writes the tower and the projector of a folder. changed: keys with other values."""
    outer = json.loads((folder / "config.json").read_text())
    own, settings = tower_of(outer), json.loads((folder / "preprocessor_config.json").read_text())
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(word)
    writer.add_vision_projection_dim(changed.pop("width", outer["text_config"]["hidden_size"]))
    sides = {"image_size": settings["scale_resolution"]} if "scale_resolution" in settings else {}
    _add_sizes(writer, {**own, **sides}, int(word == "mlp"))
    writer.add_vision_image_mean(settings["image_mean"])
    writer.add_vision_image_std(settings["image_std"])
    KEYS[word](writer, outer, own, settings)
    for ours, values in stored_tensors(folder, word, outer).items():
        kind = type_of(ours, values.shape)
        if kind is not Type.F32 and (values.ndim > 2 or values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]):
            kind = Type.F16
        writer.add_tensor(ours, gguf.quants.quantize(values, kind), raw_dtype=kind)
    return _written(writer, path)


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, list) else value)


def _add_sizes(writer: gguf.GGUFWriter, own: Given, left_out: int) -> None:
    """Adds what MmprojModel writes for every tower. left_out: the number of layers that the file does not have."""
    layers, patch = (own.get("num_hidden_layers") or own["depth"]) - left_out, _first(own["patch_size"])
    places = own.get("num_position_embeddings") or own.get("num_patches") or 0
    writer.add_vision_image_size(_first(own.get("image_size") or round(places**0.5) * patch or 224))
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(own.get("embed_dim") or own["hidden_size"])
    writer.add_vision_feed_forward_length(own.get("intermediate_size") or own["hidden_size"])
    writer.add_vision_block_count(layers)
    writer.add_vision_head_count(own.get("num_attention_heads") or own["num_heads"])
    writer.add_vision_attention_layernorm_eps(own.get("layer_norm_eps") or own.get("rms_norm_eps") or 1e-6)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
