"""Tiles of Kimi K2.5 and Kimi-VL: the whole image, reduced to at most a given number of patches. Black is added on the
right and below, up to multiples of the square of pixels that becomes one embedding (image row)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.processor import BICUBIC, HALF, MULTIPLES, Colors, Cut, OfColors, Tiling, read_resizing
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields

IMAGE = "<|media_pad|>"
LOW_ROWS = 256
"""The most image rows (embeddings) of an image that a request asks for in low detail."""
GROUP = "media_proc_cfg"
"""The name of the group of settings in Moonshot AI's own files."""


class KimiProcessor(OfColors, Struct, frozen=True):
    """Makes one tile of each image, with black added on the right and below. patches: the most patches of an image
    without the added black. longest: the most patches along one side. rows: the most image rows (embeddings) of a tile,
    black included."""

    family: ClassVar[str] = "kimi"
    patching: Patching
    patches: int
    longest: int
    rows: int
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        unit, rows = self.patching.unit, min(self.rows, LOW_ROWS) if low else self.rows
        most = float(self.patches)
        while True:
            shown = self._shown(width, height, most)
            padded = tuple(-(-side // unit) * unit for side in shown)
            count = padded[0] * padded[1] // unit**2
            if count <= rows:
                break
            most *= rows / count
        return Cut((("resize", *shown, self.colors.word), ("tile", 0, 0, *padded)), ((padded[0], padded[1]),))

    def _shown(self, width: int, height: int, most: float) -> tuple[int, int]:
        """Returns the size to which an image is reduced. most: the most patches."""
        patch, side = self.patching.patch, self.longest * self.patching.patch
        count = max(1.0, width // patch) * max(1.0, height // patch)
        scale = min(1.0, math.sqrt(most / count), side / height, side / width)
        wide, high = (min(side, max(1, int(each * scale))) for each in (width, height))
        return wide, high

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        ((count, columns),) = lines
        return IMAGE * (count * columns)


def read(fields: Fields, tiling: Tiling) -> KimiProcessor:
    """Returns the processor that a preprocessor_config.json describes. An image has at most `tiling.most_rows` rows.
    Raises CorruptModel."""
    group, patching = fields.group(GROUP), tiling.patching
    fields = fields.changed(group.values) if group is not None else fields
    tower = {"patch_size": patching.patch, "merge_size": patching.merge, "merge_kernel_size": patching.merge}
    for name, own in tower.items():
        if any(side != own for side in fields.integers(name)):
            raise fields.wrong(name, f"The tower has {own}.")
    if not fields.boolean("pad_input", True):
        raise fields.wrong("pad_input", "Black is added up to a multiple of an image row.")
    if fields.value("fixed_output_tokens") is not None:
        raise fields.wrong("fixed_output_tokens", "The image's size decides the number of its rows.")
    size = fields.group("size") or fields.only({})
    longest = size.integer("max_height", 1, 1 << 16, default=512)
    if size.integer("max_width", 1, 1 << 16, default=longest) != longest:
        raise fields.wrong("size", "Both sides have the same limit.")
    longest = fields.integer("patch_limit_on_one_side", 1, 1 << 16, default=longest)
    most = 16_384
    for name in ("in_token_limit", "in_patch_limit", "max_patches"):
        most = fields.integer(name, 1, 1 << 24, default=most)
    return KimiProcessor(patching, most, longest, tiling.most_rows, read_resizing(fields, HALF, BICUBIC, MULTIPLES))
