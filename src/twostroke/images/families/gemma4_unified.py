"""Tiles of Gemma 4 without an image encoder: the same tiles as for Gemma 4. Pixels keep their plain normalized values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twostroke.images.families.gemma4 import PLAIN, Gemma4Processor
from twostroke.images.processor import BICUBIC, MULTIPLES, Tiling, read_resizing
from twostroke.types.spec.fields import Fields


class Gemma4UnifiedProcessor(Gemma4Processor, frozen=True):
    """Makes the same tiles as Gemma4Processor, but keeps the plain normalized values of pixels."""

    family: ClassVar[str] = "gemma4_unified"

    @property
    def values(self) -> Sequence[tuple[float, float, float]]:
        return self.colors.table


def read(fields: Fields, tiling: Tiling) -> Gemma4UnifiedProcessor:
    """Returns the processor that a preprocessor_config.json describes. A square of patch_size times pooling_kernel_size
    pixels a side must be the square that becomes one embedding. Raises CorruptModel."""
    patch, merge = (
        fields.integer(name, 1, 4096, default=usual) for name, usual in (("patch_size", 16), ("pooling_kernel_size", 3))
    )
    if patch * merge != tiling.patching.unit:
        raise fields.wrong("patch_size", f"An image row shows {tiling.patching.unit} pixels of one side.")
    silent = fields if fields.has("do_normalize") else fields.changed({"do_normalize": False})
    colors = read_resizing(silent, PLAIN, BICUBIC, MULTIPLES)
    most = fields.integer("max_soft_tokens", 1, 1 << 20, default=280)
    return Gemma4UnifiedProcessor(tiling.patching, min(most, tiling.most_rows), colors)
