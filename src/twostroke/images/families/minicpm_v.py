"""Tiles of MiniCPM-V 4.6, 4.7 and MiniCPM-OCR: the whole image, resized to about a given area. A large image is also
cut into a grid of slices, and each of them is enlarged to this area (Guo et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.decoding.decoder import Step
from twostroke.images.processor import (
    BICUBIC,
    HALF,
    MULTIPLES,
    Colors,
    Cut,
    OfColors,
    Tiling,
    one_tile,
    read_resizing,
    require_tower,
    too_narrow,
)
from twostroke.types.errors import UnsupportedModel
from twostroke.types.images import Canvas, Patching
from twostroke.types.spec.fields import Fields

IMAGE = "<|image_pad|>"
NUMBER, WHOLE, SLICE = (("<" + name + ">", "</" + name + ">") for name in ("image_id", "image", "slice"))
"""The tags around an image's number, around the placeholders of a whole image, and around those of a slice."""
MODES = {"4x": 2, "16x": 4}
"""For each mode in the settings, the number of patches on each side of the square that becomes one image row (an
embedding)."""
USUAL_SIDE, USUAL_SLICES = 448, 9
MOST_RATIO = 200
"""The most times that one side of a tile may be as long as the other side."""


class MiniCPMVProcessor(OfColors, Struct, frozen=True):
    """Makes tiles of images. side: the side in pixels of a square that has the area of a tile. slices: the most slices
    of an image; 1 where images are not cut. enlarges: whether small images grow to this area. numbered: whether an
    image's number stands before it. most_rows: the most image rows (embeddings) of a tile. canvas: whether the model
    places the tiles of an image on one common plane."""

    family: ClassVar[str] = "minicpm_v"
    patching: Patching
    side: int
    slices: int
    enlarges: bool
    numbered: bool
    most_rows: int
    canvas: bool
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def ahead(self, place: int) -> str:
        return f"{NUMBER[0]}{place}{NUMBER[1]}" if self.numbered else ""

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True for only the whole image."""
        found = None if self.slices == 1 else self._grid(width, height)
        whole = one_tile(*self._size(width, height, grows=found is None and self.enlarges), self.colors.word)
        if found is None or low:
            return self._allowed(whole)
        columns, rows = found
        wide, high = self._size(_multiple(width, columns) / columns, _multiple(height, rows) / rows, grows=True)
        steps: list[Step] = [("resize", wide * columns, high * rows, self.colors.word)]
        steps += [("tile", wide * x, high * y, wide, high) for y in range(rows) for x in range(columns)]
        sizes = (*whole.sizes, *((wide, high),) * (columns * rows))
        return self._allowed(Cut((*whole.steps, *steps), sizes, columns, rows))

    def _allowed(self, cut: Cut) -> Cut:
        if any(lines * columns > self.most_rows for lines, columns in cut.lines(self.patching)):
            raise too_narrow()
        return cut

    def _size(self, width: float, height: float, *, grows: bool) -> tuple[int, int]:
        """Returns width and height of a tile in pixels, as multiples of the square that becomes one image row (an
        embedding). grows: whether a small tile is enlarged."""
        if height * width > self.side * self.side or grows:
            ratio = width / height
            height = int(self.side / math.sqrt(ratio))
            width = int(height * ratio)
        return _multiple(width, self.patching.unit), _multiple(height, self.patching.unit)

    def _grid(self, width: int, height: int) -> tuple[int, int] | None:
        """Returns columns and rows of the grid whose shape is nearest to that of the image; None for an image that is
        not cut. Of equally near grids, the one with more rows is returned."""
        asked = min(math.ceil(width * height / (self.side * self.side)), self.slices)
        if asked <= 1:
            return None
        shape, found, nearest = math.log(width / height), (1, 1), math.inf
        for count in (asked - 1, asked, asked + 1):
            if count == 1 or count > self.slices:
                continue
            for rows in range(1, count + 1):
                if count % rows:
                    continue
                columns = count // rows
                apart = abs(shape - math.log(columns / rows))
                if apart < nearest or (apart == nearest and rows > found[1]):
                    found, nearest = (columns, rows), apart
        return found

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        whole, *slices = (IMAGE * (count * columns) for count, columns in lines)
        shown = [f"{SLICE[0]}{rows}{SLICE[1]}" for rows in slices]
        rows = ("".join(shown[at : at + cut.columns]) for at in range(0, len(shown), cut.columns or 1))
        return f"{WHOLE[0]}{whole}{WHOLE[1]}" + "\n".join(rows)

    def canvases(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> Sequence[Canvas | None]:
        """The whole image and its slices get places on one plane, which has the size of all slices together. The whole
        image is stretched over all of it."""
        if not self.canvas:
            return (None,) * len(lines)
        high, wide = lines[-1]
        height, width = (high * cut.rows, wide * cut.columns) if cut.rows else lines[0]
        places = [(high * row, wide * column) for row in range(cut.rows) for column in range(cut.columns)]
        slices = (Canvas(height, width, *place, high, wide) for place in places)
        return (Canvas(height, width, 0, 0, height, width), *slices)


def _multiple(length: float, unit: int) -> int:
    return max(round(length / unit) * unit, unit)


def most_rows(side: float) -> int:
    """Returns the most image rows (embeddings) that a tile can have. side: the square root of the tile's area, counted
    in image rows. Height and width are rounded, so each may be longer by half an image row. Neither is less than one
    image row."""
    longest = math.sqrt(MOST_RATIO)
    return math.floor(max(side**2 + side / 2 * (longest + 1 / longest) + 0.25, side * longest + 0.5))


def read(fields: Fields, tiling: Tiling) -> MiniCPMVProcessor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel, UnsupportedModel."""
    patching = tiling.patching
    require_tower(fields, ("patch_size",), patching)
    if MODES.get(mode := fields.text("downsample_mode", "4x" if patching.merge == MODES["4x"] else "16x")) is None:
        raise fields.wrong("downsample_mode", f"It is {' or '.join(MODES)}.")
    if MODES[mode] != patching.merge:
        raise fields.wrong("downsample_mode", f"The tower makes an image row of {patching.merge**2} patches.")
    grows = fields.text("small_image_upsize", "always")
    if grows not in ("always", "never"):
        raise UnsupportedModel(
            f"preprocessor_config.json: small_image_upsize {grows!r} is not implemented.",
            why="It decides by the size of letters in an image how large the image is shown.",
            fix='Use a model with "always" or "never", or start with --images off.',
        )
    side = fields.integer("scale_resolution", patching.unit, 1 << 12, default=USUAL_SIDE)
    side = min(side, math.isqrt(tiling.most_rows) * patching.unit)
    sliced = fields.boolean("slice_mode", True)
    return MiniCPMVProcessor(
        patching,
        side,
        fields.integer("max_slice_nums", 1, 256, default=USUAL_SLICES) if sliced else 1,
        grows == "always",
        fields.boolean("use_image_id", True),
        min(most_rows(side / patching.unit), tiling.most_rows),
        tiling.canvas,
        read_resizing(fields, HALF, BICUBIC, MULTIPLES),
    )
