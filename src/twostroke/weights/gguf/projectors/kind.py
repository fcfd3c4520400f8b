"""What a type of projector says: names of tensors, orders of their rows, fields of config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from twostroke.weights.gguf.keys import Keys

VISION = "vision."
Config = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
FieldsOf = Callable[[Keys, Config, Shapes], tuple[Config, Config]]
"""of(keys, tower, shapes): the fields of config.json, and those of the processor's file. tower: the fields that all
files have, which become vision_config. shapes: those of stored tensors."""


def nothing_more(text: Config) -> Config:
    """The language model's fields say all."""
    return {}


class ProjectorKind(Struct, frozen=True, kw_only=True):
    """A type of projector. mark: the token that stands where image rows go. texts: architectures of the language models
    that it belongs to. tower: what names of the tower begin with. layers: the same for its layers; empty without any.

    layer, outer: our names by the stems of stored ones. In `outer` a name after "/" is whole. A name before a last "/"
    has no ending. config: see FieldsOf. more(text): fields of the language model that its own file does not have.
    less_one: stems whose stored values are 1 more than a checkpoint's. unread: stems of tensors that are not needed.

    joined: the name of the tensor that checkpoints have for q, k and v, where files may have three. paired: rows of q
    and k lie as pairs that turn together. colors_last: kernels of patches are matrices of pixels whose colours are
    neighbours. wide: the tensor that has a row for each element of an image row, where no key says their number.
    """

    mark: str
    texts: tuple[str, ...]
    tower: str
    layers: str
    layer: Mapping[str, str]
    outer: Mapping[str, str]
    config: FieldsOf
    more: Callable[[Config], Config] = nothing_more
    less_one: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    joined: str = ""
    paired: bool = False
    colors_last: bool = False
    wide: str = ""


def bounds_of_area(keys: Keys, least: int, most: int) -> Config:
    """The least and the most pixels of an image, as processors of Qwen have them. least, most: the family's."""
    found = {"shortest_edge": least, "longest_edge": most}
    for name, key in (("shortest_edge", "image_min_pixels"), ("longest_edge", "image_max_pixels")):
        found[name] = int(keys.number(VISION + key, found[name]))
    return found


def activation_of(keys: Keys, gelu: str) -> str:
    """The activation of the tower. gelu: which one a file means by that word."""
    if keys.truth("use_silu", False):
        return "silu"
    return gelu if keys.truth("use_gelu", False) else "quick_gelu"


def length(shapes: Shapes, name: str, usual: int, axis: int = 0) -> int:
    """The length of an axis of a stored tensor. usual: where there is no such tensor."""
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else usual


def merge_of(keys: Keys, key: str, usual: int) -> int:
    """How many patches of one side become an image row. Raises CorruptModel below 1."""
    found = int(keys.number(VISION + key, usual))
    if found < 1:
        raise keys.wrong(VISION + key, "It must be above 0.")
    return found
