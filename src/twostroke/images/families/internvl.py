"""Tiles of InternVL 3 and 3.5: the image is stretched to a grid of squares of a similar shape, and is also shown whole.
"""

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
)
from twostroke.images.tiles import nearest_grid, with_squares
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, END = "<img>", "<IMG_CONTEXT>", "</img>"
MOST_TILES = 12


class InternVLProcessor(OfColors, Struct, frozen=True):
    """Cuts images into square tiles. side: the side of a tile in pixels. least, most: the bounds of the number of tiles
    into which an image is cut."""

    family: ClassVar[str] = "internvl"
    side: int
    least: int
    most: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True for only the whole image."""
        whole = one_tile(self.side, self.side, self.colors.word)
        columns, rows = nearest_grid(width, height, self.side, self.least, self.most)
        if low or columns == rows == 1:
            return whole
        steps = (*with_squares(columns, rows, self.side, self.colors.word), *whole.steps)
        return Cut(steps, whole.sizes * (columns * rows + 1), columns, rows)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        return f"{BEGIN}{IMAGE * sum(count * columns for count, columns in lines)}{END}"


def read(fields: Fields, tiling: Tiling) -> InternVLProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    size = fields.group("size") or fields.only({})
    require_side(fields, size, ("height", "width"), tiling.side, 384)
    colors = read_resizing(fields, CLIP, BICUBIC, ONE_SIZE)
    most = fields.integer("max_patches", 1, 256, default=MOST_TILES)
    return InternVLProcessor(tiling.side, fields.integer("min_patches", 1, most, default=1), most, colors)
