"""BitNet b1.58's matrices: each number is -1, 0 or 1, times one scale for the whole matrix.

    x.weight        (rows / 4, columns) uint8: byte row p holds rows p + q * rows / 4 for q = 0 to 3, each number plus 1
                    in bits 2 q and 2 q + 1
    x.weight_scale  (1,), which is the scale (AutoBitLinear), or one over it (BitLinear)

In other checkpoints, which are trained further ("online"), x.weight is an unquantized matrix. Its scale is the mean
magnitude of its numbers, and each number is divided by the scale and rounded to -1, 0 or 1. Source:
integrations/bitnet.py of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, bf16_to_f32, f32_to_bf16
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import FINE_COLUMNS, WeightKind
from twostroke.weights.quantized.matrix import GroupedRows, affine_kinds
from twostroke.weights.quantized.parts import FLOATS, Held, StoredPart, StoredTensors

EACH = 4
"""The number of matrix rows whose 2-bit codes one stored row of bytes holds."""
BLOCK_ROWS = 1024
"""The number of rows that are read at once for the mean magnitude of an unquantized matrix."""
LEAST = 1e-5


@dataclass(frozen=True, eq=False, slots=True)
class TernaryMatrix:
    """A matrix of BitNet. Satisfies `QuantizedMatrix`. scale: None for an unquantized matrix, which is rounded when it
    is read. inverse: True where the stored number is one over the scale."""

    weight: StoredPart
    scale: StoredPart | None
    inverse: bool = False
    held: Held = field(default_factory=Held)

    @classmethod
    def packed(cls, stored: StoredTensors, module: str, inverse: bool) -> TernaryMatrix:
        """Returns the matrix of a module. Raises CorruptModel naming the part that does not fit."""
        scale = stored.part(module + ".weight_scale", FLOATS)
        if scale.shape not in ((), (1,)):
            raise scale.wrong(f"It has the shape {list(scale.shape)}, expected one number.")
        return cls(stored.part(module + ".weight", ("U8",), (None, None)), scale, inverse)

    @classmethod
    def plain(cls, stored: StoredTensors, module: str) -> TernaryMatrix:
        """Returns the matrix of a module whose stored weights are unquantized."""
        return cls(stored.part(module + ".weight", FLOATS, (None, None)), None)

    @property
    def words(self) -> str:
        return "BitNet 1.58-bit, one scale a matrix" + ("" if self.scale else ", rounded here")

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.weight.name, *((self.scale.name,) if self.scale else ()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, (rows, columns)."""
        rows, columns = self.weight.shape
        return rows * (EACH if self.scale else 1), columns

    @property
    def num_bytes(self) -> int:
        return self.weight.info.num_bytes + (self.scale.info.num_bytes if self.scale else 0)

    @property
    def kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss. FLAT4, whose scales are float16, is one of them where
        float16 holds this scale exactly."""
        columns = self.shape[1]
        own = affine_kinds(2, columns, columns)
        with np.errstate(over="ignore"):
            short = np.float32(np.float16(self._scale())) == self._scale()
        return own | {WeightKind.FLAT4} if short and columns % FINE_COLUMNS == 0 else own

    def values(self, first: int, count: int) -> F32Array:
        return self._grouped(first, count).values()

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        return self._grouped(first, count).stored(kind)

    def _grouped(self, first: int, count: int) -> GroupedRows:
        scales, zeros = np.full((count, 1), self._scale(), np.float32), np.ones((count, 1), np.int16)
        return GroupedRows(self._codes(first, count), scales, self.shape[1], 2, zeros=zeros)

    def _codes(self, first: int, count: int) -> NDArray[np.uint8]:
        """Returns codes (count, columns); each is the number plus 1."""
        if self.scale is None:
            steps = np.float32(1) / self._mean()
            whole: F32Array = np.clip(np.rint(self.weight.floats(first, count) * steps), -1, 1)
            return (whole + 1).astype(np.uint8)
        height, found = self.weight.shape[0], []
        while count:
            quarter, row = divmod(first, height)
            some = min(count, height - row)
            codes = self.weight.rows(row, some) >> np.uint8(2 * quarter) & np.uint8(3)
            if codes.max(initial=0) > 2:
                raise self.weight.wrong("It holds a code that is not -1, 0 or 1.")
            found.append(codes)
            first, count = first + some, count - some
        return np.concatenate(found)

    def _scale(self) -> np.float32:
        if self.scale is None:  # transformers rounds these numbers to the type of the tensor
            return _as_stored(np.float32(1) / (np.float32(1) / self._mean()), self.weight.dtype)
        said = np.float32(self.scale.floats().reshape(-1)[0])
        if not said > 0:
            raise self.scale.wrong("It must be larger than zero.")
        return np.float32(1) / said if self.inverse else said

    def _mean(self) -> np.float32:
        """Returns the mean magnitude of all numbers."""

        def read() -> np.float32:
            rows = self.weight.shape[0]
            blocks = (self.weight.floats(at, min(BLOCK_ROWS, rows - at)) for at in range(0, rows, BLOCK_ROWS))
            total = sum(float(np.abs(block).sum(dtype=np.float64)) for block in blocks)
            return np.float32(max(total / (rows * self.weight.shape[1]), LEAST))

        return np.float32(self.held.get(self.weight.name, read))


def _as_stored(value: np.float32, dtype: str) -> np.float32:
    if dtype == "BF16":
        return np.float32(bf16_to_f32(f32_to_bf16(np.array([value], np.float32)))[0])
    return np.float32(np.float16(value)) if dtype == "F16" else value
