"""Tiles of Gemma 3: the whole image as one square, whatever its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import (
    BILINEAR,
    HALF,
    ONE_SIZE,
    Colors,
    Cut,
    OfColors,
    Tiling,
    one_tile,
    read_resizing,
    require_side,
)
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, END = "<start_of_image>", "<image_soft_token>", "<end_of_image>"


class Gemma3Processor(OfColors, Struct, frozen=True):
    """Makes one square tile of each image. side: the side of a tile in pixels."""

    family: ClassVar[str] = "gemma3"
    side: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return BEGIN

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        return one_tile(self.side, self.side, self.colors.word)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        ((count, columns),) = lines
        return f"\n\n{BEGIN}{IMAGE * (count * columns)}{END}\n\n"


def read(fields: Fields, tiling: Tiling) -> Gemma3Processor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    size = fields.group("size") or fields.only({})
    require_side(fields, size, ("height", "width"), tiling.side, 224)
    return Gemma3Processor(tiling.side, read_resizing(fields, HALF, BILINEAR, ONE_SIZE))
