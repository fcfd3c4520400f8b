"""Tiles of Gemma 4: the whole image as one tile. It is resized, up or down, so that the encoder makes as many
embeddings (image rows) of it as are allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import (
    BICUBIC,
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
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, END = "<|image>", "<|image|>", "<image|>"
PLAIN = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
LOW_ROWS = 70
"""The most image rows (embeddings) of an image that a request asks for in low detail."""


class Gemma4Processor(OfColors, Struct, frozen=True):
    """Makes one tile of each image. most: the most image rows (embeddings) of an image."""

    family: ClassVar[str] = "gemma4"
    patching: Patching
    most: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        """For each byte of a pixel, the input of the encoder: Gemma 4's encoder takes twice the normalized value, minus
        one."""
        return tuple((2 * red - 1, 2 * green - 1, 2 * blue - 1) for red, green, blue in self.colors.table)

    @property
    def mark(self) -> str:
        return IMAGE

    @property
    def most_rows(self) -> int:
        return self.most

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        most, unit = min(self.most, LOW_ROWS) if low else self.most, self.patching.unit
        area = most * unit**2
        factor = math.sqrt(area / (height * width))
        high, wide = (math.floor(factor * side / unit) * unit for side in (height, width))
        if not high and wide:
            high, wide = unit, min(width // height, most) * unit
        elif not wide and high:
            high, wide = min(height // width, most) * unit, unit
        if not high or high * wide > area:
            raise too_narrow()
        return one_tile(wide, high, self.colors.word)

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        ((count, columns),) = lines
        return f"{BEGIN}{IMAGE * (count * columns)}{END}"


def read(fields: Fields, tiling: Tiling) -> Gemma4Processor:
    """Returns the processor that a preprocessor_config.json describes; an image has at most `tiling.most_rows` rows.
    Raises CorruptModel."""
    require_tower(fields, ("patch_size", "pooling_kernel_size"), tiling.patching)
    silent = fields if fields.has("do_normalize") else fields.changed({"do_normalize": False})
    colors = read_resizing(silent, PLAIN, BICUBIC, MULTIPLES)
    most = fields.integer("max_soft_tokens", 1, 1 << 20, default=280)
    return Gemma4Processor(tiling.patching, min(most, tiling.most_rows), colors)
