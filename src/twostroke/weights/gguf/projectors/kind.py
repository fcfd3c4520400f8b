"""The description of a type of projector: names of tensors, orders of their rows, fields of config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.keys import Keys

VISION = "vision."
Config = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
FieldsOf = Callable[[Keys, Config, Shapes], tuple[Config, Config]]
"""of(keys, tower, shapes): returns the fields of config.json, and the fields of the processor's file. tower: the fields
that all files have, which become vision_config. shapes: the shapes of the stored tensors."""


def nothing_more(text: Config) -> Config:
    """Returns no fields: the language model's own fields are complete."""
    return {}


class ProjectorKind(Struct, frozen=True, kw_only=True):
    """A type of projector in an mmproj file. mark: the token that stands in the places of image rows. texts: the
    architectures of the language models to which it belongs. tower: the beginning of the checkpoint's names of the
    tower's tensors. layers: the same for the tower's layers; empty where there are none.

    layer, outer: stored name without ending -> the checkpoint's name, for tensors in and outside the layers. A name in
    `outer` that begins with "/" does not get `tower` in front. A name that ends with "/" gets no ".weight" or ".bias".
    config: see FieldsOf. more(text): returns fields of the language model that its own file does not have. less_one:
    stored names whose values are 1 more than a checkpoint's. unread: stored names of tensors that are not needed.

    joined: the name of the one tensor that checkpoints have for q, k and v, where files may have three. orders: stored
    name -> a function that returns, from the numbers of rows and of heads, the order in which the tensor's rows are
    stored. colors_last: True where the kernels of patches are matrices with the red, green and blue of a pixel next to
    each other. wide: the tensor whose number of rows is the width of an image row; "" where the key projection_dim
    gives this width.
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
    orders: Mapping[str, Callable[[int, int], I32Array]] = {}
    colors_last: bool = False
    wide: str = ""


def bounds_of_area(keys: Keys, least: int, most: int) -> Config:
    """Returns the least and the most pixels of an image, in the form of processors of Qwen. least, most: the family's
    values."""
    found = {"shortest_edge": least, "longest_edge": most}
    for name, key in (("shortest_edge", "image_min_pixels"), ("longest_edge", "image_max_pixels")):
        found[name] = int(keys.number(VISION + key, found[name]))
    return found


def activation_of(keys: Keys, gelu: str) -> str:
    """Returns the activation of the tower. gelu: the activation that a file means by the word gelu."""
    if keys.truth("use_silu", False):
        return "silu"
    return gelu if keys.truth("use_gelu", False) else "quick_gelu"


def length(shapes: Shapes, name: str, usual: int, axis: int = 0) -> int:
    """Returns the length of an axis of a stored tensor. usual: the length where there is no such tensor."""
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else usual


def merge_of(keys: Keys, key: str, usual: int) -> int:
    """Returns the number of patches along one side that become an image row. Raises CorruptModel below 1."""
    found = int(keys.number(VISION + key, usual))
    if found < 1:
        raise keys.wrong(VISION + key, "It must be above 0.")
    return found
