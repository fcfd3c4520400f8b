"""Tiles of Qwen2-VL to Qwen3.5: the whole image, both sides at multiples of an image row, its area between two bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from twostroke.images.processor import BICUBIC, CLIP, Colors, Cut, Tiling, one_tile, read_colors
from twostroke.types.errors import InvalidRequest
from twostroke.types.spec.fields import Fields

IMAGE = "<|image_pad|>"
MOST_RATIO = 200
LOW_ROWS = 256
"""The most image rows of an image of which little is asked."""
MOST_AREA = 1 << 40


class QwenProcessor(Struct, frozen=True):
    """unit: the side of an image row in pixels. least, most: areas in pixels."""

    unit: int
    least: int
    most: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def settings(self) -> str:
        """See Processor."""
        return f"qwen {self!r}"

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        """See Processor."""
        return self.colors.table

    @property
    def mark(self) -> str:
        """See Processor."""
        return IMAGE

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """See Processor."""
        if max(width, height) / min(width, height) > MOST_RATIO:
            raise InvalidRequest(
                f"The image has {width:,} x {height:,} pixels.",
                param="image",
                why=f"One side may be {MOST_RATIO} times as long as the other.",
                fix="Cut the image into parts.",
            )
        most = min(self.most, LOW_ROWS * self.unit**2) if low else self.most
        height, width = smart_size(height, width, self.unit, min(self.least, most), most)
        return one_tile(width, height, self.colors.word)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        """See Processor."""
        return "".join(IMAGE * (count * columns) for count, columns in lines)


def smart_size(height: int, width: int, unit: int, least: int, most: int) -> tuple[int, int]:
    """Both sides as multiples of unit, with an area between both bounds where that is possible."""
    high, wide = round(height / unit) * unit, round(width / unit) * unit
    if high * wide > most:
        shrink = math.sqrt(height * width / most)
        high = max(unit, math.floor(height / shrink / unit) * unit)
        wide = max(unit, math.floor(width / shrink / unit) * unit)
    elif high * wide < least:
        grow = math.sqrt(least / (height * width))
        high, wide = math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
    return high, wide


def read(fields: Fields, tiling: Tiling) -> QwenProcessor:
    """The processor that a file describes; an image has at most as many rows as tiling says. Raises CorruptModel."""
    patching = tiling.patching
    for name, own in (("patch_size", patching.patch), ("merge_size", patching.merge)):
        if fields.has(name) and fields.integer(name, 1, 4096) != own:
            raise fields.wrong(name, f"The tower has {own}.")
    size = fields.group("size") or fields.only({})
    least = size.integer("shortest_edge", 1, MOST_AREA, default=56 * 56)
    most = size.integer("longest_edge", 1, MOST_AREA, default=28 * 28 * 1280)
    least = fields.optional_integer("min_pixels", 1, MOST_AREA) or least
    most = fields.optional_integer("max_pixels", 1, MOST_AREA) or most
    colors, allowed = read_colors(fields, CLIP, BICUBIC), tiling.most_rows * patching.unit**2
    if not colors.resizes:
        raise fields.wrong("do_resize", "Sides of a tile are multiples of an image row.")
    return QwenProcessor(patching.unit, min(least, allowed), min(most, allowed), colors)
