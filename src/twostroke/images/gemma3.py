"""Tiles of Gemma 3: the whole image as one square, whatever its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import BILINEAR, HALF, Colors, Cut, OfColors, Tiling, one_tile, read_colors
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, END = "<start_of_image>", "<image_soft_token>", "<end_of_image>"


class Gemma3Processor(OfColors, Struct, frozen=True):
    """side: the side of a tile."""

    family: ClassVar[str] = "gemma3"
    side: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        """See Processor."""
        return BEGIN

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """See Processor."""
        return one_tile(self.side, self.side, self.colors.word)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        """See Processor."""
        ((count, columns),) = lines
        return f"\n\n{BEGIN}{IMAGE * (count * columns)}{END}\n\n"


def read(fields: Fields, tiling: Tiling) -> Gemma3Processor:
    """The processor that a file describes. Raises CorruptModel."""
    size = fields.group("size") or fields.only({})
    for name in ("height", "width"):
        if size.integer(name, 1, 1 << 16, default=224) != tiling.side:
            raise fields.wrong("size", f"The tower reads tiles of {tiling.side} pixels a side.")
    colors = read_colors(fields, HALF, BILINEAR)
    if not colors.resizes:
        raise fields.wrong("do_resize", "All tiles have one size.")
    return Gemma3Processor(tiling.side, colors)
