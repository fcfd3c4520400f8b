"""Tiles of LFM2-VL: the whole image. Both sides are multiples of the square of pixels that becomes one embedding (image
row). Large images are also cut into a grid of square tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from twostroke.images.families.qwen_vl import smart_size
from twostroke.images.processor import (
    BILINEAR,
    HALF,
    Colors,
    Cut,
    OfColors,
    Tiling,
    read_colors,
    require_tower,
    too_narrow,
)
from twostroke.images.tiles import nearest_grid, with_squares
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields

BEGIN, IMAGE, WHOLE, END = "<|image_start|>", "<image>", "<|img_thumbnail|>", "<|image_end|>"


class Lfm2Processor(OfColors, Struct, frozen=True):
    """Makes tiles of images. rows: the least and the most image rows (embeddings) of a whole image. tiles: the least
    and the most tiles into which a large image is cut; (1, 1) where images are not cut. side: the side of a tile in
    pixels. tolerance: an image is large if it would have more than rows[1] * tolerance image rows. thumbnail: whether a
    large image is also shown whole after its tiles."""

    family: ClassVar[str] = "lfm2_vl"
    patching: Patching
    rows: tuple[int, int]
    tiles: tuple[int, int]
    side: int
    tolerance: float
    thumbnail: bool
    colors: Colors
    breaks_lines: bool = False

    @property
    def mark(self) -> str:
        return IMAGE

    @property
    def most_rows(self) -> int:
        return max(self.rows[1], (self.side // self.patching.unit) ** 2 if self.tiles[1] > 1 else 0)

    def cut(self, width: int, height: int, *, low: bool = False) -> Cut:
        """Returns how an image of this size is cut. low: True for only the whole image."""
        unit, (least, most), word = self.patching.unit, self.rows, self.colors.word
        high, wide = smart_size(height, width, unit, least * unit**2, most * unit**2, unit)
        if high * wide > self.most_rows * unit**2:
            raise too_narrow()
        columns, rows = (1, 1)
        if not low and self.tiles[1] > 1 and self._is_large(width, height):
            columns, rows = nearest_grid(width, height, self.side, *self.tiles)
        if columns == rows == 1:
            return Cut((("whole", wide, high, word),), ((wide, high),))
        steps, sizes = with_squares(columns, rows, self.side, word), ((self.side, self.side),) * (columns * rows)
        if self.thumbnail:
            steps, sizes = [*steps, ("whole", wide, high, word)], (*sizes, (wide, high))
        return Cut(tuple(steps), sizes, columns, rows)

    def _is_large(self, width: int, height: int) -> bool:
        unit = self.patching.unit
        high, wide = (max(self.patching.patch, round(side / unit) * unit) for side in (height, width))
        return high * wide > self.rows[1] * unit**2 * self.tolerance

    def text(self, cut: Cut, lines: Sequence[tuple[int, int]]) -> str:
        shown = [IMAGE * (count * columns) for count, columns in lines]
        if cut.rows:
            names = [
                f"<|img_row_{row + 1}_col_{column + 1}|>" for row in range(cut.rows) for column in range(cut.columns)
            ]
            shown = [name + rows for name, rows in zip((*names, WHOLE), shown, strict=False)]
        return f"{BEGIN}{''.join(shown)}{END}"


def read(fields: Fields, tiling: Tiling) -> Lfm2Processor:
    """Returns the processor that a preprocessor_config.json describes. Raises CorruptModel."""
    patching = tiling.patching
    require_tower(fields, ("encoder_patch_size", "downsample_factor"), patching)
    most = min(fields.integer("max_image_tokens", 1, 1 << 20, default=256), tiling.most_rows)
    tiles = tuple(fields.integer(f"{end}_tiles", 1, 256, default=usual) for end, usual in (("min", 2), ("max", 10)))
    side = fields.integer("tile_size", 1, 1 << 14, default=512)
    if not fields.boolean("do_image_splitting", True) or (side // patching.unit) ** 2 > tiling.most_rows:
        tiles = (1, 1)
    if tiles[0] > tiles[1] or side % patching.unit:
        raise fields.wrong("min_tiles", f"It is at most max_tiles, and tile_size a multiple of {patching.unit}.")
    return Lfm2Processor(
        patching,
        (min(fields.integer("min_image_tokens", 1, 1 << 20, default=64), most), most),
        (tiles[0], tiles[1]),
        side,
        fields.number("max_pixels_tolerance", 0.0, 1e6, default=2.0),
        fields.boolean("use_thumbnail", True),
        read_colors(fields, HALF, BILINEAR),
    )
