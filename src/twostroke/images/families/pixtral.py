"""Tiles of Pixtral and Mistral 3: the whole image, reduced to a longest side. Both sides are then stretched to
multiples of the square of pixels that becomes one embedding (image row)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import (
    BICUBIC,
    CLIP,
    MULTIPLES,
    Colors,
    Cut,
    OfColors,
    Tiling,
    one_tile,
    read_resizing,
    too_narrow,
)
from twostroke.types.spec.fields import Fields

IMAGE, BREAK, END = "[IMG]", "[IMG_BREAK]", "[IMG_END]"
LOW_LINES = 16
"""The most lines and columns of image rows (embeddings) of an image that a request asks for in low detail."""


class PixtralProcessor(OfColors, Struct, frozen=True):
    """Makes one tile of each image. unit: the side in pixels of the square that becomes one image row (an embedding).
    most: the longest height and width before both are stretched. mark: the text of an image row. breaks_lines: whether
    a break stands between lines, and an end after the last line."""

    family: ClassVar[str] = "pixtral"
    unit: int
    most: tuple[int, int]
    colors: Colors
    mark: str = IMAGE
    breaks_lines: bool = True

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        most = [min(side, LOW_LINES * self.unit) if low else side for side in self.most]
        ratio = max(height / most[0], width / most[1])
        if ratio > 1:
            height, width = math.floor(height / ratio), math.floor(width / ratio)
        if not (width and height):
            raise too_narrow()
        height, width = (-(-side // self.unit) * self.unit for side in (height, width))
        return one_tile(width, height, self.colors.word)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        ((count, columns),) = lines
        return BREAK.join([self.mark * columns] * count) + END if self.breaks_lines else self.mark * (count * columns)


def read(fields: Fields, tiling: Tiling) -> PixtralProcessor:
    """Returns the processor that a preprocessor_config.json describes; an image has at most `tiling.most_rows` rows.
    Raises CorruptModel."""
    patching = tiling.patching
    size = fields.group("size") or fields.only({"longest_edge": 1024})
    longest = size.optional_integer("longest_edge", 1, 1 << 16)
    most = (longest, longest) if longest else tuple(size.integer(name, 1, 1 << 16) for name in ("height", "width"))
    allowed = math.isqrt(tiling.most_rows) * patching.unit
    colors = read_resizing(fields, CLIP, BICUBIC, MULTIPLES)
    return PixtralProcessor(patching.unit, (min(most[0], allowed), min(most[1], allowed)), colors)
