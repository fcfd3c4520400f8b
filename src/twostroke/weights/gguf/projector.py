"""GGUF files of encoders of images (mmproj): their keys become the fields of config.json, their tensors get Hugging
Face names.

Such a file lies next to the file of a language model. Facts that it lacks come from the family. Sources:
conversion/base.py of llama.cpp.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import F32Array, I32Array
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.container import GgufFile
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors import llava, minicpm, paired, siglip, turning
from twostroke.weights.gguf.projectors.kind import VISION, Config, ProjectorKind, length
from twostroke.weights.gguf.tensors import GgufTensor, whole
from twostroke.weights.open_file import check_rows
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource, as_f32

ARCHITECTURE = "clip"
KINDS: Mapping[str, ProjectorKind] = {
    **siglip.KINDS,
    **turning.KINDS,
    **llava.KINDS,
    **minicpm.KINDS,
    **paired.KINDS,
}
"""Value of clip.projector_type -> the type of projector."""
_LAYER = re.compile(r"v\.blk\.(\d{1,5})\.(\w+)\.(weight|bias|(?:in|out)put_(?:min|max))")
_DEEP = re.compile(r"v\.deepstack\.(\d{1,5})\.(norm|fc1|fc2)\.(weight|bias)")
FRAMES = ("v.patch_embd.weight", "v.patch_embd.weight.1")
"""The stored names of the patch convolution's kernel for the first and the second frame of a video. Checkpoints have
both as one tensor."""
PARTS = ("attn_q", "attn_k", "attn_v")


class Projector(Struct, frozen=True):
    """The content of an mmproj file. config: the fields of its config, without the token of images, which the language
    model has. settings: the settings of the processor. width: the number of elements of an image row that the file
    names, 0 where it names none."""

    path: Path
    kind: ProjectorKind
    word: str
    config: Config
    settings: Config
    width: int


def read_projector(path: Path) -> Projector:
    """Reads the keys of an mmproj file. Raises CorruptModel, UnsupportedModel."""
    file = GgufFile.open(path)
    try:
        keys, word, kind = _kind_of(file)
        least = int(bool(kind.layers))
        tower: Config = {
            "hidden_size": _whole(keys, VISION + "embedding_length"),
            "intermediate_size": _whole(keys, VISION + "feed_forward_length", least),
            "num_hidden_layers": _whole(keys, VISION + "block_count", least),
            "num_attention_heads": _whole(keys, VISION + "attention.head_count", least),
            "patch_size": _whole(keys, VISION + "patch_size"),
            "image_size": _whole(keys, VISION + "image_size"),
            "layer_norm_eps": keys.number(VISION + "attention.layer_norm_epsilon"),
            "hidden_act": "gelu_pytorch_tanh",
        }
        shapes = {name: each.shape for name, each in file.tensors.items()}
        config, settings = kind.config(keys, tower, shapes)
        for name in ("image_mean", "image_std"):
            if keys.has(VISION + name):
                settings[name] = keys.floats(VISION + name, 3)
        width = length(shapes, kind.wide, 0) if kind.wide else int(keys.number(VISION + "projection_dim", 0))
        return Projector(path, kind, word, config, settings, width)
    finally:
        file.close()


def open_projector(projector: Projector) -> Checkpoint:
    """Returns the tensors of an mmproj file under Hugging Face names."""
    file = GgufFile.open(projector.path)
    try:
        tensors = dict(_named(file, projector.kind, projector.config["vision_config"]))
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
    word = word or ("mlp" if keys.truth("has_llava_projector", False) else "")
    if word not in KINDS:
        raise UnsupportedModel(
            f"{name}: the projector {word[:40]!r} is not implemented.",
            why=f"clip.projector_type is one of {', '.join(KINDS)} here.",
            fix="Use the model's Hugging Face folder, or start with --images off.",
        )
    return keys, word, KINDS[word]


def _whole(keys: Keys, key: str, least: int = 1) -> int:
    found = keys.number(key)
    if found != int(found) or found < least:
        raise keys.wrong(key, f"It must be a whole number, at least {least}.")
    return int(found)


def _named(file: GgufFile, kind: ProjectorKind, tower: Config) -> Iterator[tuple[str, TensorSource]]:
    swapped, deep = _has_swapped_feeds(file), list(tower.get("deepstack_visual_indexes", ()))
    heads = int(tower.get("num_attention_heads", 0))
    for stored in file.tensors:
        stem, _, ending = stored.rpartition(".")
        layer, rows = _LAYER.fullmatch(stored), _DEEP.fullmatch(stored)
        if stored == FRAMES[1] or stem in kind.unread or stored in kind.unread:
            continue
        if layer is not None:
            yield from _of_layer(file, kind, layer, heads, swapped=swapped)
        elif rows is not None and int(rows[1]) in deep:
            word = {"fc1": "linear_fc1", "fc2": "linear_fc2"}.get(rows[2], rows[2])
            place = deep.index(int(rows[1]))
            yield f"{kind.tower}deepstack_merger_list.{place}.{word}.{rows[3]}", _source(file, stored)
        else:
            stem = stored if stored in kind.outer else stem
            ours = kind.outer.get(stem, stored)
            ours = ours.removeprefix("/") if ours.startswith("/") else kind.tower + ours
            plus = -1.0 if stem in kind.less_one else 0.0
            found: TensorSource = _kernel(file, kind) if stored == FRAMES[0] else _source(file, stored, plus=plus)
            yield (ours.removesuffix("/") if ours.endswith("/") else f"{ours}.{ending}"), found


def _of_layer(
    file: GgufFile, kind: ProjectorKind, found: re.Match[str], heads: int, *, swapped: bool
) -> Iterator[tuple[str, TensorSource]]:
    """Yields what a stored tensor of a layer becomes under its Hugging Face name. If checkpoints have q, k and v as one
    tensor, it is yielded for q; k and v yield nothing.

    heads: the number of heads of q and of k. swapped: True where the file has the names ffn_up and ffn_down exchanged.
    """
    stored, (number, word, ending) = found[0], found.groups()
    word = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}.get(word, word) if swapped else word
    begin = f"{kind.tower}{kind.layers}{number}."
    if kind.joined and word in PARTS:
        if word == PARTS[0]:
            names = [stored.replace(PARTS[0], part) for part in PARTS]
            yield f"{begin}{kind.joined}.{ending}", _joined(file, [name for name in names if name in file.tensors])
        return
    ours = kind.layer.get(word, word)
    if ending not in ("weight", "bias"):  # the tensor is one number, a bound of a product
        yield f"{begin}{ours.removesuffix('.linear')}.{ending}", OneNumber(_source(file, stored))
        return
    rows = file.tensors[stored].shape[0]
    order = kind.orders[word](rows, heads) if word in kind.orders and rows % (2 * heads) == 0 else None
    name = begin + ours.removesuffix("/")
    yield (name if ours.endswith("/") else f"{name}.{ending}"), _source(file, stored, order=order)


def _source(file: GgufFile, stored: str, *, plus: float = 0.0, order: I32Array | None = None) -> GgufTensor:
    shape = file.tensors[stored].shape
    elements = len(shape) > 3 or (order is not None and len(shape) == 1)
    return GgufTensor((whole(file, stored),), shape, order=order, plus=plus, elements=elements)


def _joined(file: GgufFile, names: list[str]) -> GgufTensor:
    shapes = [file.tensors[name].shape for name in names]
    sources = tuple(whole(file, name) for name in names)
    return GgufTensor(sources, (sum(shape[0] for shape in shapes), *shapes[0][1:]))


def _kernel(file: GgufFile, kind: ProjectorKind) -> TensorSource:
    """Returns the kernel of patches; the file has its frames as separate tensors."""
    frames = [_source(file, name) for name in FRAMES if name in file.tensors]
    if kind.colors_last:
        return ColorsLast(frames[0])
    return KernelFrames(tuple(frames)) if len(frames) > 1 else frames[0]


def _has_swapped_feeds(file: GgufFile) -> bool:
    """Returns True for an older file, which calls the first product ffn_down and the second ffn_up."""
    up, down = (file.tensors.get(f"v.blk.0.{name}.weight") for name in ("ffn_up", "ffn_down"))
    return up is not None and down is not None and up.shape[0] < down.shape[0]


class KernelFrames(Struct, frozen=True, eq=False):
    """The convolution kernels (O, C, p, p) of several frames, which a file has apart, as one tensor (O, C, frames, p,
    p). Satisfies `TensorSource`."""

    parts: tuple[GgufTensor, ...]

    @property
    def info(self) -> TensorInfo:
        first = self.parts[0].info
        outputs, colours, *kernel = first.shape
        shape = (outputs, colours, len(self.parts), *kernel)
        return TensorInfo("F32", shape, first.offset, sum(part.info.num_bytes for part in self.parts))

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        check_rows("kernels of frames", first, count, self.info.shape[0])
        found: F32Array = np.stack([as_f32(part.read_rows(first, count)) for part in self.parts], axis=2)
        if out is None:
            return found
        out.reshape(found.shape)[...] = found
        return out


class ColorsLast(Struct, frozen=True, eq=False):
    """Convolution kernels (O, C, p, p) as a matrix (O, p * p * C), in which the red, green and blue of a pixel are
    neighbours. Satisfies `TensorSource`."""

    part: GgufTensor

    @property
    def info(self) -> TensorInfo:
        first = self.part.info
        return TensorInfo("F32", (first.shape[0], math.prod(first.shape[1:])), first.offset, first.num_bytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        kernels = as_f32(self.part.read_rows(first, count)).reshape(count, *self.part.info.shape[1:])
        found = np.ascontiguousarray(kernels.transpose(0, 2, 3, 1)).reshape(count, -1)
        if out is None:
            return found
        out.reshape(found.shape)[...] = found
        return out


class OneNumber(Struct, frozen=True, eq=False):
    """A vector of one number as a tensor without axes. Satisfies `TensorSource`."""

    part: GgufTensor

    @property
    def info(self) -> TensorInfo:
        return TensorInfo("F32", (), self.part.info.offset, self.part.info.num_bytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        check_rows("one number", first, count, 1)
        found: F32Array = as_f32(self.part.read_rows(0, 1))
        if out is None:
            return found
        out.reshape(1)[...] = found
        return out


def refuse_other_model(projector: Projector, architecture: str, width: int, model: str) -> None:
    """Raises CorruptModel where the file belongs to another language model. architecture, width: the architecture and
    row width of the given language model. model: the name of this model."""
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
    """Returns the id of the token `mark`, which stands in the places of image rows. added: added_tokens of
    tokenizer.json."""
    for each in added if isinstance(added, list) else ():
        if isinstance(each, dict) and each.get("content") == mark and isinstance(each.get("id"), int):
            return int(each["id"])
    return None
