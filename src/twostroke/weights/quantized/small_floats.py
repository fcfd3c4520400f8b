"""Matrices of floats of 4 bits in groups. MXFP4 has groups of 32 and scales that are powers of two. NVFP4 has groups of
16, scales that are floats of 8 bits, and one float for all scales.

    codes  (rows, columns / 2) uint8              the low half of a byte is the even column
    scales (rows, columns / group) uint8 or e4m3
    whole  one number, with which scales are multiplied or by which they are divided
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.ops.code_tables import e2m1_codes
from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import E2M1, low_first
from twostroke.weights.quantized.parts import StoredPart


@dataclass(frozen=True, eq=False, slots=True)
class SmallFloatMatrix:
    """A matrix of 4-bit floats. Satisfies `QuantizedMatrix`. whole: one number for all scales. divided: True where
    scales are divided by `whole`, False where they are multiplied by it."""

    words: str
    codes: StoredPart
    scales: StoredPart
    group: int
    whole: StoredPart | None = None
    divided: bool = False

    @classmethod
    def of(
        cls,
        words: str,
        codes: StoredPart,
        scales: StoredPart,
        group: int,
        whole: StoredPart | None = None,
        divided: bool = False,
    ) -> SmallFloatMatrix:
        """Returns the matrix of these stored tensors. words: a description of the format, for people. group: the number
        of columns that share a scale. whole: the one number for all scales; None for none. divided: True where scales
        are divided by `whole`. Raises CorruptModel where sizes do not fit."""
        rows = codes.shape[0] if len(codes.shape) == 2 else 0
        columns = 2 * codes.info.num_bytes // max(1, rows)
        if not rows or not columns or columns % group:
            raise codes.wrong(f"Its shape {list(codes.shape)} does not make rows of whole groups of {group}.")
        if scales.shape != (rows, columns // group):
            raise scales.wrong(f"It has the shape {list(scales.shape)}, expected [{rows}, {columns // group}].")
        if whole is not None and int(np.prod(whole.shape)) != 1:
            raise whole.wrong(f"It has the shape {list(whole.shape)}, expected one number.")
        return cls(words, codes, scales, group, whole, divided)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dequantized matrix, (rows, columns)."""
        return self.scales.shape[0], self.scales.shape[1] * self.group

    @property
    def parts(self) -> tuple[str, ...]:
        return self.codes.name, self.scales.name, *((self.whole.name,) if self.whole else ())

    @property
    def num_bytes(self) -> int:
        return self.codes.info.num_bytes + self.scales.info.num_bytes

    @property
    def kinds(self) -> frozenset[WeightKind]:
        found = {WeightKind.E2M1_16}
        return frozenset(found | {WeightKind.E2M1_32} if self.group % 32 == 0 else found)

    def values(self, first: int, count: int) -> F32Array:
        spread = np.repeat(self._steps(first, count), self.group, axis=1)
        found: F32Array = E2M1[self._bits(first, count)] * spread
        return found

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Returns rows as codes and scales. Codes are twice the floats, so scales are halved."""
        return StoredValues(e2m1_codes(self._bits(first, count)), self._steps(first, count) / np.float32(2))

    def _bits(self, first: int, count: int) -> U8Array:
        octets = np.ascontiguousarray(self.codes.rows(first, count)).view(np.uint8).reshape(count, -1)
        return low_first(octets)

    def _steps(self, first: int, count: int) -> F32Array:
        scales = self.scales.floats(first, count)
        if self.whole is None:
            return scales
        number = np.float32(self.whole.floats().reshape(-1)[0])
        if self.divided and number == 0:
            raise self.whole.wrong("It is zero, and scales are divided by it.")
        found: F32Array = scales / number if self.divided else scales * number
        return found


@dataclass(frozen=True, eq=False, slots=True)
class ExpertBlocks:
    """The stacked expert matrices of gpt-oss: blocks (experts, columns, groups, 16) uint8, scales (experts, columns,
    groups) uint8.

    The dequantized values are (experts, rows, columns), rows = 32 * groups: transformers transposes each expert's
    matrix. Satisfies `QuantizedMatrix`, where a row is an expert, and `BankMatrix`.
    """

    blocks: StoredPart
    scales: StoredPart

    words = "MXFP4, groups of 32"
    kinds = frozenset[WeightKind]()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dequantized values, (experts, rows, columns)."""
        experts, columns, groups, _ = self.blocks.shape
        return experts, 32 * groups, columns

    @property
    def parts(self) -> tuple[str, ...]:
        return self.blocks.name, self.scales.name

    @property
    def num_bytes(self) -> int:
        return self.blocks.info.num_bytes + self.scales.info.num_bytes

    def values(self, first: int, count: int) -> F32Array:
        """Returns the dequantized matrices of experts [first, first + count)."""
        experts, rows, columns = self.shape
        found = np.empty((count, rows, columns), np.float32)
        for place in range(count):
            codes = low_first(self.blocks.rows(first + place, 1)[0]).reshape(columns, rows)
            steps = np.repeat(self.scales.floats(first + place, 1)[0], 32, axis=1)
            found[place] = (E2M1[codes] * steps).T
        return found

    @property
    def bank_kinds(self) -> frozenset[WeightKind]:
        return frozenset({WeightKind.E2M1_32, WeightKind.E2M1_16})

    def stored_rows(self, matrix: int, rows: I32Array, kind: WeightKind) -> StoredValues:
        """Returns rows of one expert's matrix, as the file has it, as codes and scales. Codes are twice the floats, so
        scales are halved."""
        bits = low_first(self.blocks.rows(matrix, 1)[0][rows]).reshape(len(rows), -1)
        return StoredValues(e2m1_codes(bits), self.scales.floats(matrix, 1)[0][rows] / np.float32(2))

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Always raises TypeError: stored kinds keep these matrices only in the orientation of the file, in which
        `stored_rows` returns rows."""
        raise TypeError(f"{self.blocks.name} is not kept as {kind.name}")
