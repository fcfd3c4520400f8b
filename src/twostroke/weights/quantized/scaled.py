"""Matrices of floats of 8 bits, or of whole numbers of 8 bits, with scales: FP8 and INT8 in the forms found on the hub.

    weight (rows, columns) float8_e4m3 or int8
    scale  one number, one a row, one for each group of columns of a row, or one for each tile of rows and columns

value = scale * weight. Scales multiply, whatever their name suggests (`weight_scale_inv` of DeepSeek and Qwen is such a
scale). Where there is a `divisor`, each scale is divided by it (127 for bitsandbytes' SCB).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import E4M3
from twostroke.weights.quantized.matrix import GroupedRows, affine_kinds
from twostroke.weights.quantized.parts import StoredPart

SCALES = ("F32", "F16", "BF16", "F8_E8M0", "U8")


@dataclass(frozen=True, eq=False, slots=True)
class ScaledMatrix:
    """A matrix of 8-bit floats or integers with scales. Satisfies `QuantizedMatrix`. tile: the rows and columns that
    share a scale; 0 for all. more: other stored tensors of the module, read elsewhere or without effect on the numbers.
    zero_point: whole numbers in the scales' shape."""

    words: str
    weight: StoredPart
    scale: StoredPart
    tile: tuple[int, int]
    divisor: float = 1.0
    zero_point: StoredPart | None = None
    more: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        words: str,
        weight: StoredPart,
        scale: StoredPart,
        tile: tuple[int, int],
        zero: StoredPart | None = None,
        divisor: float = 1.0,
    ) -> ScaledMatrix:
        """Returns the matrix. words: a description of the format, for people. tile: the rows and columns that share a
        scale; 0 for all. Raises CorruptModel where the shape of `scale` or `zero` does not have one number for each
        tile."""
        if len(weight.shape) != 2:
            raise weight.wrong(f"It has the shape {list(weight.shape)}, expected two sizes.")
        wanted = tuple(-(-size // (part or max(1, size))) for size, part in zip(weight.shape, tile, strict=True))
        for part in (scale, *((zero,) if zero else ())):
            found = part.shape if len(part.shape) == 2 else (int(np.prod(part.shape)), 1)
            if found != wanted:
                raise part.wrong(f"It has the shape {list(part.shape)}, expected {list(wanted)}.")
        return cls(words, weight, scale, tile, divisor, zero)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, (rows, columns)."""
        return self.weight.shape

    @property
    def parts(self) -> tuple[str, ...]:
        zero = (self.zero_point.name,) if self.zero_point else ()
        return self.weight.name, self.scale.name, *zero, *self.more

    @property
    def num_bytes(self) -> int:
        return self.weight.info.num_bytes + self.scale.info.num_bytes

    @property
    def kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss. There are none for floats of 8 bits, and none for
        integers of which several rows share a scale."""
        if self.weight.dtype != "I8" or self.tile[0] not in (0, 1):
            return frozenset()
        return affine_kinds(8, self.shape[1], self._columns)

    @property
    def _columns(self) -> int:
        """The number of columns that share a scale."""
        return min(self.tile[1] or self.shape[1], self.shape[1])

    def values(self, first: int, count: int) -> F32Array:
        if self.weight.dtype == "I8":
            return self._grouped(first, count).values()
        codes: F32Array = E4M3[self.weight.rows(first, count)]
        if not np.isfinite(codes).all():
            raise self.weight.wrong("It holds NaN, which makes every answer NaN.")
        codes *= np.repeat(self._scales(first, count), self._columns, axis=1)[:, : self.shape[1]]
        return codes

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        return self._grouped(first, count).stored(kind)

    def _grouped(self, first: int, count: int) -> GroupedRows:
        codes = self.weight.rows(first, count).astype(np.int16) + np.int16(128)
        scales, zeros = self._scales(first, count), np.full((count, 1), 128, np.int16)
        zeros = np.broadcast_to(zeros, scales.shape)
        if self.zero_point is not None:
            zeros = zeros + self._by_row(self.zero_point.whole().astype(np.int16), first, count)
        return GroupedRows(codes, scales, self._columns, 8, zeros=zeros)

    def _scales(self, first: int, count: int) -> F32Array:
        """Returns the scales of these rows, (count, groups)."""
        found: F32Array = self._by_row(self.scale.floats(), first, count)
        return found / np.float32(self.divisor) if self.divisor != 1 else found

    def _by_row(self, tiles: NDArray[Any], first: int, count: int) -> NDArray[Any]:
        grid = tiles.reshape(-1, tiles.shape[-1] if tiles.ndim == 2 else 1)
        rows = np.arange(first, first + count) // (self.tile[0] or max(1, self.shape[0]))
        return grid[rows]
