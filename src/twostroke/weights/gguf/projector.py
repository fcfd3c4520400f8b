"""GGUF files of encoders of images (mmproj): their keys as the fields of config.json, their tensors under our names.

Such a file lies next to that of a language model. What it does not say comes from the family.
Sources: conversion/{base,smolvlm,gemma,qwen3vl}.py of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import F32Array, bf16_to_f32
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.container import GgufFile
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.tensors import GgufTensor, whole
from twostroke.weights.open_file import check_rows
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource

ARCHITECTURE = "clip"
VISION = "vision."
_LAYER = re.compile(r"v\.blk\.(\d{1,5})\.(\w+)\.(weight|bias)")
_DEEP = re.compile(r"v\.deepstack\.(\d{1,5})\.(norm|fc1|fc2)\.(weight|bias)")
SIGLIP = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_out": "self_attn.out_proj", "ln1": "layer_norm1", "ln2": "layer_norm2"},
    **{"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
}
QWEN = {
    **{"attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ln1": "norm1", "ln2": "norm2"},
    **{"ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"},
}
EMBEDDINGS = {"v.patch_embd": "embeddings.patch_embedding", "v.position_embd": "embeddings.position_embedding"}
FRAMES = ("v.patch_embd.weight", "v.patch_embd.weight.1")
"""The kernels of two frames, which checkpoints have as one tensor."""

Config = dict[str, Any]


class ProjectorKind(Struct, frozen=True):
    """A type of projector. mark: the token that stands where image rows go. texts: architectures of the language models
    that it belongs to. tower: what names of the tower begin with. layers: the same for its layers. layer, outer: our
    names by the stems of stored ones. config: the fields of config.json and of the processor's file. less_one: stems
    whose stored values are 1 more than a checkpoint's.
    """

    mark: str
    texts: tuple[str, ...]
    tower: str
    layers: str
    layer: Mapping[str, str]
    outer: Mapping[str, str]
    config: Callable[[Keys, Config, Mapping[str, tuple[int, ...]]], tuple[Config, Config]]
    less_one: frozenset[str] = frozenset()


def _idefics3(keys: Keys, tower: Config, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Config, Config]:
    side = tower["image_size"]
    longest = int(keys.number(VISION + "preproc_image_size", side))
    merge = int(keys.number(VISION + "projector.scale_factor", 2))
    config = {"model_type": "idefics3", "scale_factor": merge, "vision_config": tower}
    return config, {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": side}}


def _gemma3(keys: Keys, tower: Config, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Config, Config]:
    side, grid = tower["image_size"], tower["image_size"] // tower["patch_size"]
    merge = int(keys.number(VISION + "projector.scale_factor", 4))
    config = {"model_type": "gemma3", "mm_tokens_per_image": (grid // max(1, merge)) ** 2, "vision_config": tower}
    return config, {"size": {"height": side, "width": side}}


def _qwen3_vl(keys: Keys, tower: Config, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Config, Config]:
    marks = keys.each(VISION + "is_deepstack_layers", tower["num_hidden_layers"])
    deep = [index for index, mark in enumerate(marks) if mark]
    merge = int(keys.number(VISION + "spatial_merge_size", 2))
    tower |= {"depth": tower["num_hidden_layers"], "num_heads": tower["num_attention_heads"]}
    tower |= {"deepstack_visual_indexes": deep, "spatial_merge_size": merge, "temporal_patch_size": len(FRAMES)}
    tower["num_position_embeddings"] = shapes.get("v.position_embd.weight", (0,))[0]
    bounds = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
    for name, key in (("shortest_edge", "image_min_pixels"), ("longest_edge", "image_max_pixels")):
        bounds[name] = int(keys.number(VISION + key, bounds[name]))
    return {"model_type": "qwen3_vl" if deep else "qwen3_5", "vision_config": tower}, {"size": bounds}


_SIGLIP_OUTER = {**EMBEDDINGS, "v.post_ln": "post_layernorm"}
KINDS: Mapping[str, ProjectorKind] = {
    "idefics3": ProjectorKind(
        "<image>",
        ("LlamaForCausalLM", "GraniteForCausalLM"),
        *("model.vision_model.", "encoder.layers.", SIGLIP),
        {**_SIGLIP_OUTER, "mm.model.fc": "/model.connector.modality_projection.proj"},
        _idefics3,
    ),
    "gemma3": ProjectorKind(
        "<image_soft_token>",
        ("Gemma3ForCausalLM",),
        *("model.vision_tower.", "encoder.layers.", SIGLIP),
        {
            **_SIGLIP_OUTER,
            "mm.input_projection": "/model.multi_modal_projector.mm_input_projection_weight/",
            "mm.soft_emb_norm": "/model.multi_modal_projector.mm_soft_emb_norm",
        },
        _gemma3,
        frozenset({"mm.soft_emb_norm"}),
    ),
    "qwen3vl_merger": ProjectorKind(
        "<|image_pad|>",
        ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
        *("model.visual.", "blocks.", QWEN),
        {
            **{"v.patch_embd": "patch_embed.proj", "v.position_embd": "pos_embed", "v.post_ln": "merger.norm"},
            **{"mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"},
        },
        _qwen3_vl,
    ),
}
"""clip.projector_type -> what it means. In `outer`, a name after "/" is whole; one before a last "/" has no ending."""


class Projector(Struct, frozen=True):
    """What an mmproj file says. config: its fields, without the token of images, which the language model has.
    settings: those of the processor. width: elements of an image row that the file names, 0 where it names none."""

    path: Path
    kind: ProjectorKind
    word: str
    config: Config
    settings: Config
    width: int


def read_projector(path: Path) -> Projector:
    """The keys of an mmproj file. Raises CorruptModel, UnsupportedModel."""
    file = GgufFile.open(path)
    try:
        keys, word, kind = _kind_of(file)
        tower: Config = {
            "hidden_size": _whole(keys, VISION + "embedding_length"),
            "intermediate_size": _whole(keys, VISION + "feed_forward_length"),
            "num_hidden_layers": _whole(keys, VISION + "block_count"),
            "num_attention_heads": _whole(keys, VISION + "attention.head_count"),
            "patch_size": _whole(keys, VISION + "patch_size"),
            "image_size": _whole(keys, VISION + "image_size"),
            "layer_norm_eps": keys.number(VISION + "attention.layer_norm_epsilon"),
            "hidden_act": "gelu_pytorch_tanh",
        }
        config, settings = kind.config(keys, tower, {name: each.shape for name, each in file.tensors.items()})
        for name in ("image_mean", "image_std"):
            if keys.has(VISION + name):
                settings[name] = keys.floats(VISION + name, 3)
        width = int(keys.number(VISION + "projection_dim", 0))
        return Projector(path, kind, word, config, settings, width)
    finally:
        file.close()


def open_projector(projector: Projector) -> Checkpoint:
    """The file's tensors under our names."""
    file = GgufFile.open(projector.path)
    try:
        deep = projector.config["vision_config"].get("deepstack_visual_indexes", ())
        tensors = dict(_named(file, projector.kind, list(deep)))
    except BaseException:
        file.close()
        raise
    return Checkpoint(projector.path.parent, {projector.path.name: file}, tensors)


def _kind_of(file: GgufFile) -> tuple[Keys, str, ProjectorKind]:
    values, name = file.values, file.path.name
    if values.get("general.architecture") != ARCHITECTURE:
        raise UnsupportedModel(
            f"{name} is no encoder of images.",
            why=f"general.architecture is {str(values.get('general.architecture'))[:40]!r}, not {ARCHITECTURE!r}.",
            fix="Give the mmproj file of the model.",
        )
    keys = Keys(values, ARCHITECTURE, name, file.tensors)
    word = keys.text(VISION + "projector_type", "") or keys.text("projector_type", "")
    if word not in KINDS:
        raise UnsupportedModel(
            f"{name}: the projector {word[:40]!r} is not implemented.",
            why=f"clip.projector_type is one of {', '.join(KINDS)} here.",
            fix="Use the model's Hugging Face folder, or start with --images off.",
        )
    return keys, word, KINDS[word]


def _whole(keys: Keys, key: str) -> int:
    found = keys.number(key)
    if found != int(found) or found < 1:
        raise keys.wrong(key, "It must be a whole number above 0.")
    return int(found)


def _named(file: GgufFile, kind: ProjectorKind, deep: list[int]) -> Iterator[tuple[str, TensorSource]]:
    swapped = _has_swapped_feeds(file)
    for stored, tensor in file.tensors.items():
        stem, _, ending = stored.rpartition(".")
        plus = -1.0 if stem in kind.less_one else 0.0
        source = GgufTensor((whole(file, stored),), tensor.shape, plus=plus, elements=len(tensor.shape) > 3)
        layer, rows = _LAYER.fullmatch(stored), _DEEP.fullmatch(stored)
        if stored == FRAMES[1]:
            continue
        if layer is not None:
            word = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}.get(layer[2], layer[2]) if swapped else layer[2]
            name = f"{kind.tower}{kind.layers}{layer[1]}.{kind.layer.get(word, word)}.{layer[3]}"
            yield name, source
        elif rows is not None and int(rows[1]) in deep:
            word = {"fc1": "linear_fc1", "fc2": "linear_fc2"}.get(rows[2], rows[2])
            yield f"{kind.tower}deepstack_merger_list.{deep.index(int(rows[1]))}.{word}.{rows[3]}", source
        else:
            ours = kind.outer.get(stem, stored)
            ours = ours.removeprefix("/") if ours.startswith("/") else kind.tower + ours
            both = stored == FRAMES[0] and FRAMES[1] in file.tensors
            found: TensorSource = source
            if both:
                found = KernelFrames((source, GgufTensor((whole(file, FRAMES[1]),), tensor.shape, elements=True)))
            yield (ours.removesuffix("/") if ours.endswith("/") else f"{ours}.{ending}"), found


def _has_swapped_feeds(file: GgufFile) -> bool:
    """Older files call the first product ffn_down and the second ffn_up."""
    up, down = (file.tensors.get(f"v.blk.0.{name}.weight") for name in ("ffn_up", "ffn_down"))
    return up is not None and down is not None and up.shape[0] < down.shape[0]


class KernelFrames(Struct, frozen=True, eq=False):
    """Kernels (O, C, p, p) of several frames as one tensor (O, C, frames, p, p). Satisfies `TensorSource`."""

    parts: tuple[GgufTensor, ...]

    @property
    def info(self) -> TensorInfo:
        """A tensor of float32."""
        first = self.parts[0].info
        outputs, colours, *kernel = first.shape
        shape = (outputs, colours, len(self.parts), *kernel)
        return TensorInfo("F32", shape, first.offset, sum(part.info.num_bytes for part in self.parts))

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """See SafetensorsFile.read_rows. Raises IndexError."""
        check_rows("kernels of frames", first, count, self.info.shape[0])
        found: F32Array = np.stack([_floats(part.read_rows(first, count)) for part in self.parts], axis=2)
        if out is None:
            return found
        out.reshape(found.shape)[...] = found
        return out


def _floats(values: SourceArray) -> F32Array:
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)


def refuse_other_model(projector: Projector, architecture: str, width: int, model: str) -> None:
    """Raises CorruptModel where the file belongs to another language model. architecture, width: those of the given
    one. model: its name."""
    if architecture not in projector.kind.texts:
        texts = " or ".join(projector.kind.texts)
        why = f"A projector of type {projector.word} belongs to {texts}, not {architecture}."
    elif projector.width not in (0, width):
        why = f"It makes rows of {projector.width:,} elements, those of the model have {width:,}."
    else:
        return
    raise CorruptModel(
        f"{projector.path.name} belongs to another model than {model}.",
        why=why,
        fix="Give the mmproj file that was published with the model (--mmproj FILE), or --images off.",
    )


def token_of_mark(added: object, mark: str) -> int | None:
    """The id of the token that stands where image rows go. added: added_tokens of tokenizer.json."""
    for each in added if isinstance(added, list) else ():
        if isinstance(each, dict) and each.get("content") == mark and isinstance(each.get("id"), int):
            return int(each["id"])
    return None


