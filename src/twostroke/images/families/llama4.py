"""Tiles of Llama 4: a grid of squares that shows the image in its own proportions, then the whole image as one square.

The part of the grid outside the image is black (Meta 2025).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct

from twostroke.images.processor import (
    BILINEAR,
    HALF,
    ONE_SIZE,
    Colors,
    Cut,
    OfColors,
    Tiling,
    read_resizing,
    require_side,
)
from twostroke.images.tiles import squares
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, WHOLE, END = "<|image_start|>", "<|patch|>", "<|image|>", "<|image_end|>"
AFTER_TILE, AFTER_LINE = "<|tile_x_separator|>", "<|tile_y_separator|>"
MOST_TILES = 16
Scale = float | np.float32
"""The factor by which a side of an image is resized. Some factors are float32, as in transformers: their rounding
decides sizes in pixels."""


class Llama4Processor(OfColors, Struct, frozen=True):
    """Cuts images into square tiles. side: the side of a tile in pixels. most: the most tiles of a grid. enlarges:
    whether every image is enlarged to the largest grid that it fills. rounds: whether each step from a byte to its
    value is rounded to bfloat16."""

    family: ClassVar[str] = "llama4"
    side: int
    most: int
    enlarges: bool
    rounds: bool
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return WHOLE

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        return self._rounded_table() if self.rounds else self.colors.table

    def _rounded_table(self) -> Sequence[tuple[float, float, float]]:
        colors = self.colors
        mean, std = (bf16(np.array(each, np.float32)) for each in (colors.mean, colors.std))
        scaled = bf16(np.arange(256, dtype=np.float32) * np.float32(colors.factor))
        table = bf16(bf16(scaled[:, None] - mean) / std).tolist()
        return tuple((red, green, blue) for red, green, blue in table)

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True for one tile."""
        side, word = self.side, self.colors.word
        columns, rows = self._grid(width, height)
        whole, size = ("whole", side, side, word), (side, side)
        if low and columns * rows > 1:
            return Cut((whole,), (size,))
        shown = self._shown(width, height, columns * side, rows * side)
        steps = (("resize", *shown, word), *squares(columns, rows, side))
        if columns == rows == 1:
            return Cut(steps, (size,))
        return Cut((*steps, ("again",), whole), (size,) * (columns * rows + 1), columns, rows)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        rows = IMAGE * (lines[-1][0] * lines[-1][1])
        grid = (AFTER_TILE.join([rows] * cut.columns) + AFTER_LINE) * cut.rows
        return f"{BEGIN}{grid}{WHOLE}{rows}{END}"

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Returns columns and rows of the grid of tiles for an image. Among the grids that need not reduce the image,
        it is the one that enlarges the image least, or most if `enlarges` is set. Of equal grids, the one with the
        fewest tiles is returned. If every grid reduces the image, it is the one that reduces it least."""
        scales: dict[tuple[int, int], Scale] = {}
        for columns in range(1, self.most + 1):
            for rows in range(1, self.most // columns + 1):
                wide, high = (_single(count * self.side, own) for count, own in ((columns, width), (rows, height)))
                scales[columns, rows] = min(wide, high)
        larger = [scale for scale in scales.values() if scale >= 1]
        chosen = max(scales.values()) if self.enlarges or not larger else min(larger)
        return min((grid for grid, scale in scales.items() if scale == chosen), key=lambda grid: grid[0] * grid[1])

    def _shown(self, width: int, height: int, wide: int, high: int) -> tuple[int, int]:
        """Returns the size to which the image is resized to fit a grid of wide x high pixels. Unless `enlarges` is set,
        a side is enlarged at most to the side of one tile."""
        most_wide, across = self._scale(width, wide)
        most_high, down = self._scale(height, high)
        if _is_less(across, down):
            return most_wide, max(1, min(_floor(height, across), most_high))
        return max(1, min(_floor(width, down), most_wide)), most_high

    def _scale(self, own: int, most: int) -> tuple[int, Scale]:
        """Returns (the length to which a side of `own` pixels is resized at most, that length divided by `own`). most:
        the longest side that the canvas allows."""
        free = max(own, self.side)
        if self.enlarges or most < free:
            return most, _single(most, own)
        return free, free / own


def bf16(values: np.ndarray) -> np.ndarray:
    """Returns float32 numbers that are rounded to the nearest bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(
        np.float32
    )


def _is_less(first: Scale, second: Scale) -> bool:
    """Returns whether `first` is less than `second`. Both are compared as float32 if at least one of them is float32.
    """
    if isinstance(first, np.float32) or isinstance(second, np.float32):
        return bool(np.float32(first) < np.float32(second))
    return first < second


def _single(side: int, own: int) -> np.float32:
    return np.float32(side) / np.float32(own)


def _floor(own: int, scale: Scale) -> int:
    return math.floor(np.float32(own) * scale if isinstance(scale, np.float32) else own * scale)


def read(fields: Fields, tiling: Tiling) -> Llama4Processor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    size = fields.group("size") or fields.only({})
    require_side(fields, size, ("height", "width"), tiling.side, 336)
    colors = read_resizing(fields, HALF, BILINEAR, ONE_SIZE)
    rounds = fields.boolean("do_rescale", True) and fields.boolean("do_normalize", True)
    most = fields.integer("max_patches", 1, 256, default=MOST_TILES)
    return Llama4Processor(tiling.side, most, fields.boolean("resize_to_max_canvas", False), rounds, colors)
