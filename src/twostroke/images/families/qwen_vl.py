"""Tiles of Qwen2-VL to Qwen3.5: the whole image, with an area between two bounds. Both sides are multiples of the
square of pixels that becomes one embedding (image row)."""

from __future__ import annotations

import enum
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
    require_tower,
)
from twostroke.types.errors import InvalidRequest
from twostroke.types.spec.fields import Fields

IMAGE = "<|image_pad|>"
MOST_RATIO = 200
LOW_ROWS = 256
"""The most image rows (embeddings) of an image that a request asks for in low detail."""
MOST_AREA = 1 << 40


class Lift(enum.Enum):
    """How an image is enlarged first if a side is shorter than the square of pixels that becomes one image row (an
    embedding). EACH: one side after the other, rounded. BOTH: both by one factor, rounded down."""

    NONE = enum.auto()
    EACH = enum.auto()
    BOTH = enum.auto()


class QwenProcessor(OfColors, Struct, frozen=True):
    """Makes one tile of each image. unit: the side in pixels of the square that becomes one image row (an embedding).
    least, most: the bounds of the area in pixels. mark: the text that the template writes for one image, and that the
    processor writes for each image row. lift: whether and how an image with a side shorter than `unit` is enlarged in
    proportion."""

    family: ClassVar[str] = "qwen"
    unit: int
    least: float
    most: float
    colors: Colors
    mark: str = IMAGE
    lift: Lift = Lift.NONE
    breaks_lines: bool = False

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        given = f"{width:,} x {height:,}"
        width, height = self._lifted(width, height)
        if max(width, height) / min(width, height) > MOST_RATIO:
            raise InvalidRequest(
                f"The image has {given} pixels.",
                param="image",
                why=f"One side may be at most {MOST_RATIO} times as long as the other.",
                fix="Cut the image into parts.",
            )
        most = min(self.most, LOW_ROWS * self.unit**2) if low else self.most
        height, width = smart_size(height, width, self.unit, min(self.least, most), most)
        return one_tile(width, height, self.colors.word)

    def _lifted(self, width: int, height: int) -> tuple[int, int]:
        if self.lift is Lift.EACH and height < self.unit:
            width, height = round(width * self.unit / height), self.unit
        if self.lift is Lift.EACH and width < self.unit:
            width, height = self.unit, round(height * self.unit / width)
        if self.lift is Lift.BOTH and min(width, height) < self.unit:
            scale = max(self.unit / height, self.unit / width)
            width, height = int(width * scale), int(height * scale)
        return width, height

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        return "".join(self.mark * (count * columns) for count, columns in lines)


def smart_size(
    height: int, width: int, unit: int, least: float, most: float, shortest: int = 0
) -> tuple[int, int]:
    """Returns height and width as multiples of unit, with an area between both bounds where that is possible. shortest:
    the least length to which a side is rounded."""
    high, wide = (max(shortest, round(side / unit) * unit) for side in (height, width))
    if high * wide > most:
        shrink = math.sqrt(height * width / most)
        high = max(unit, math.floor(height / shrink / unit) * unit)
        wide = max(unit, math.floor(width / shrink / unit) * unit)
    elif high * wide < least:
        grow = math.sqrt(least / (height * width))
        high, wide = math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
    return high, wide


def read(fields: Fields, tiling: Tiling) -> QwenProcessor:
    """Returns the processor that a preprocessor_config.json describes; an image has at most `tiling.most_rows` rows.
    Raises CorruptModel."""
    return read_bounded(fields, tiling, 56 * 56, 28 * 28 * 1280)


def read_bounded(fields: Fields, tiling: Tiling, least_usual: int, most_usual: int) -> QwenProcessor:
    """Returns the processor that a preprocessor_config.json describes. least_usual, most_usual: the bounds of an
    image's area in pixels, where the file has none. Raises CorruptModel."""
    patching = tiling.patching
    require_tower(fields, ("patch_size", "merge_size"), patching)
    size = fields.group("size") or fields.only({})
    least = size.integer("shortest_edge", 1, MOST_AREA, default=least_usual)
    most = size.integer("longest_edge", 1, MOST_AREA, default=most_usual)
    least = fields.optional_integer("min_pixels", 1, MOST_AREA) or least
    most = fields.optional_integer("max_pixels", 1, MOST_AREA) or most
    colors, allowed = read_resizing(fields, CLIP, BICUBIC, MULTIPLES), tiling.most_rows * patching.unit**2
    return QwenProcessor(patching.unit, min(least, allowed), min(most, allowed), colors)
