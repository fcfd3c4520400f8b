"""Tiles of Idefics 3 and SmolVLM: the image is resized to a given longest side and cut into squares, and is also shown
whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.decoding.decoder import Step
from twostroke.images.processor import HALF, LANCZOS, Colors, Cut, OfColors, Tiling, read_colors, too_narrow
from twostroke.images.tiles import squares
from twostroke.types.spec.fields import Fields

LARGEST = 4096
"""The longest side in pixels that an image may have after the first resizing."""
AROUND, WHOLE, IMAGE = "<fake_token_around_image>", "<global-img>", "<image>"


class Idefics3Processor(OfColors, Struct, frozen=True):
    """Cuts images into square tiles. longest: the longest side to which images are resized, in pixels. side: the side
    of a tile in pixels. splits: whether images are cut into tiles at all."""

    family: ClassVar[str] = "idefics3"
    longest: int
    side: int
    splits: bool
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True for only the whole image."""
        steps: list[Step] = []
        word = self.colors.word
        if self.colors.resizes:
            width, height = first_size(width, height, self.longest)
            steps.append(("resize", width, height, word))
        if low or not self.splits:
            return Cut((*steps, ("whole", self.side, self.side, word)), ((self.side, self.side),))
        width, height = multiples(width, height, self.side)
        if not (width and height):
            raise too_narrow()
        steps.append(("resize", width, height, word))
        columns, rows = width // self.side, height // self.side
        if columns == rows == 1:
            return Cut((*steps, ("tile", 0, 0, self.side, self.side)), ((self.side, self.side),))
        steps += squares(columns, rows, self.side)
        steps.append(("whole", self.side, self.side, word))
        return Cut(tuple(steps), ((self.side, self.side),) * (columns * rows + 1), columns, rows)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        images = IMAGE * (lines[0][0] * lines[0][1])
        whole = f"{AROUND}{WHOLE}{images}{AROUND}"
        if not cut.rows:
            return whole
        around = (
            "".join(f"{AROUND}<row_{row + 1}_col_{column + 1}>{images}" for column in range(cut.columns)) + "\n"
            for row in range(cut.rows)
        )
        return "".join(around) + "\n" + whole


def first_size(width: int, height: int, longest: int) -> tuple[int, int]:
    """Returns a size in which the longer side is `longest` and the other one an even number, reduced so that neither is
    above LARGEST."""
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    width, height = max(width, 1), max(height, 1)
    ratio = width / height
    if width >= height and width > LARGEST:
        width, height = LARGEST, int(LARGEST / ratio)
    elif height > width and height > LARGEST:
        width, height = int(LARGEST * ratio), LARGEST
    return max(width, 1), max(height, 1)


def multiples(width: int, height: int, side: int) -> tuple[int, int]:
    """Returns both sides rounded up to multiples of a tile's side."""
    ratio = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        return width, math.ceil(int(width / ratio) / side) * side
    height = math.ceil(height / side) * side
    return math.ceil(int(height * ratio) / side) * side, height


def read(fields: Fields, tiling: Tiling) -> Idefics3Processor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    largest, side = fields.group("max_image_size"), tiling.side
    own = 364 if largest is None else largest.integer("longest_edge", 1, LARGEST)
    if own != side:
        raise fields.wrong("max_image_size", f"The tower reads tiles of {side} pixels a side.")
    size = fields.group("size")
    longest = 4 * 364 if size is None else size.integer("longest_edge", 1, 1 << 16)
    splits = fields.boolean("do_image_splitting", True)
    return Idefics3Processor(longest, side, splits, read_colors(fields, HALF, LANCZOS))
