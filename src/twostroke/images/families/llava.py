"""Tiles of LLaVA 1.5: one square tile. It shows the middle of the image, or the whole image stretched to a square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import (
    BICUBIC,
    CLIP,
    ONE_SIZE,
    Colors,
    Cut,
    OfColors,
    Tiling,
    one_tile,
    read_resizing,
    require_side,
    too_narrow,
)
from twostroke.types.spec.fields import Fields

IMAGE = "<image>"
MOST_PIXELS = 1 << 25
"""The most pixels to which an image may be resized before its middle is cut out. An image so narrow that it would have
more is refused."""


class LlavaProcessor(OfColors, Struct, frozen=True):
    """Makes one square tile of each image. side: the side of a tile in pixels. stretched: whether the whole image
    becomes a square, whatever its shape."""

    family: ClassVar[str] = "llava"
    side: int
    stretched: bool
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        side, word = self.side, self.colors.word
        if self.stretched:
            return one_tile(side, side, word)
        shorter = min(width, height)
        wide, high = (side if each == shorter else int(side * each / shorter) for each in (width, height))
        if wide * high > MOST_PIXELS:
            raise too_narrow()
        place = ((wide - side) // 2, (high - side) // 2)
        return Cut((("resize", wide, high, word), ("tile", *place, side, side)), ((side, side),))

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        ((count, columns),) = lines
        return IMAGE * (count * columns)


def read(fields: Fields, tiling: Tiling) -> LlavaProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    size = fields.group("size") or fields.only({"shortest_edge": 224})
    stretched, both = not size.has("shortest_edge"), ("height", "width")
    require_side(fields, size, both if stretched else ("shortest_edge",), tiling.side, 224)
    if not stretched:
        require_side(fields, fields.group("crop_size") or fields.only({}), both, tiling.side, 224)
        if not fields.boolean("do_center_crop", True):
            raise fields.wrong("do_center_crop", ONE_SIZE)
    if fields.boolean("do_pad", False):
        raise fields.wrong("do_pad", "Images are not padded to a square.")
    return LlavaProcessor(tiling.side, stretched, read_resizing(fields, CLIP, BICUBIC, ONE_SIZE))
