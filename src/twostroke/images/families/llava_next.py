"""Tiles of LLaVA-NeXT and LLaVA-OneVision: the whole image as one square, then a grid of squares that shows it larger.

Among all grids that the model knows, the grid that loses least of the image is used. The part of the grid outside the
image is black, and the model gets no embeddings of it (Liu et al. 2024; Li et al. 2024).
"""

from __future__ import annotations

import math
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
    read_resizing,
    require_side,
)
from twostroke.types.errors import CorruptModel
from twostroke.types.images import Sheet
from twostroke.types.spec.fields import Fields

IMAGE = "<image>"
MOST_TILES = 64
SHRINKS_FROM = 1.1
"""Where a grid has too many image rows (embeddings), its numbers of lines and columns are divided by a common factor.
Factors up to SHRINKS_FROM are ignored: the grid then stays as it is."""
Grids = tuple[tuple[int, int], ...]
NEXT_GRIDS: Grids = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
"""Heights and widths of the grids in pixels, for a file that names none."""


class LlavaNextProcessor(OfColors, Struct, frozen=True):
    """Makes tiles of images. side: the side of a tile in pixels. rows: image rows (embeddings) along one side of a
    tile. grids: heights and widths of all grids in pixels.

    most: the image rows of a grid are reduced to about as many as this number of tiles has; 0 for no bound. apart:
    whether each image of a prompt with several images becomes one square tile, padded with the mean colour.
    """

    family: ClassVar[str] = "llava_next"
    side: int
    rows: int
    grids: Grids
    colors: Colors
    most: int = 0
    apart: bool = False
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def cut_among(self, width: int, height: int, *, low: bool = False) -> Cut:
        padding = ("square", *(int(255 * mean) for mean in self.colors.mean))
        whole = ("whole", self.side, self.side, self.colors.word)
        return Cut((padding, whole), ((self.side, self.side),), sheets=(Sheet.alone(self.rows),))

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        side, word = self.side, self.colors.word
        whole = ("whole", side, side, word)
        if low:
            return Cut((whole,), ((side, side),), sheets=(Sheet.alone(self.rows),))
        high, wide = self._grid(width, height)
        sheet = self._sheet(width, height, wide, high)
        if not sheet.height:  # no line of the grid shows an image that is so flat
            return Cut((whole,), ((side, side),))
        shown = _fitted(width, height, wide, high)
        left, top = ((all_of - own) // 2 for all_of, own in zip((wide, high), shown, strict=True))
        steps = (whole, ("resize", *shown, word), ("tile", -left, -top, wide, high))
        return Cut(steps, ((side, side), (wide, high)), sheets=(None, sheet))

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Returns height and width of the grid that keeps most pixels of the image; of equal grids, the smaller one."""
        best, most_kept, least_lost = self.grids[0], 0, math.inf
        for high, wide in self.grids:
            scale = min(wide / width, high / height)
            kept = min(int(width * scale) * int(height * scale), width * height)
            lost = wide * high - kept
            if kept > most_kept or (kept == most_kept and lost < least_lost):
                best, most_kept, least_lost = (high, wide), kept, lost
        return best

    def _sheet(self, width: int, height: int, wide: int, high: int) -> Sheet:
        """Returns which image rows (embeddings) of a grid the model gets: the part that shows the image, and the height
        and width to which this part is reduced."""
        across, down = wide // self.side, high // self.side
        columns, lines = across * self.rows, down * self.rows
        left = top = 0
        if width / height > columns / lines:
            top = (lines - int(round(height * (columns / width), 7))) // 2
        else:
            left = (columns - int(round(width * (lines / height), 7))) // 2
        columns, lines = columns - 2 * left, lines - 2 * top
        made = columns, lines
        if self.most:
            ratio = math.sqrt(columns * lines / (self.most * self.rows**2))
            if ratio > SHRINKS_FROM:
                made = int(columns // ratio), int(lines // ratio)
        return Sheet(across, down, self.rows, left, top, columns, lines, *made)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        return IMAGE * sum(count * columns for count, columns in lines)


def _fitted(width: int, height: int, wide: int, high: int) -> tuple[int, int]:
    """Returns the image's size within a grid, in its own proportions."""
    by_width, by_height = wide / width, high / height
    if by_width < by_height:
        return wide, min(math.ceil(height * by_width), high)
    return min(math.ceil(width * by_height), wide), high


def read(fields: Fields, tiling: Tiling) -> LlavaNextProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    size, side = fields.group("size") or fields.only({"shortest_edge": 224}), tiling.side
    both = ("height", "width")
    require_side(fields, size, both if not size.has("shortest_edge") else ("shortest_edge",), side, 224)
    if fields.boolean("do_center_crop", False):
        require_side(fields, fields.group("crop_size") or fields.only({}), both, side, 224)
    grids = read_grids(fields, NEXT_GRIDS) if fields.has("image_grid_pinpoints") or not tiling.grids else tiling.grids
    for high, wide in grids:
        if high % side or wide % side or high * wide > MOST_TILES * side**2:
            raise fields.wrong("image_grid_pinpoints", f"Grids are made of 1 to {MOST_TILES} squares of {side} pixels.")
    rows, _ = tiling.patching.lines(side, side)
    colors = read_resizing(fields, CLIP, BICUBIC, ONE_SIZE)
    return LlavaNextProcessor(side, rows, grids, colors, tiling.most_tiles, tiling.apart)


def read_grids(fields: Fields, usual: Grids) -> Grids:
    """Returns the image_grid_pinpoints of a preprocessor_config.json: heights and widths in pixels. Raises
    CorruptModel."""
    found = fields.value("image_grid_pinpoints", [list(each) for each in usual])
    try:
        made = tuple((int(high), int(wide)) for high, wide in found)
    except (TypeError, ValueError):
        raise _no_grids(fields) from None
    if not made or any(high < 1 or wide < 1 for high, wide in made):
        raise _no_grids(fields)
    return made


def _no_grids(fields: Fields) -> CorruptModel:
    return fields.wrong("image_grid_pinpoints", "It is a list of heights and widths.")
