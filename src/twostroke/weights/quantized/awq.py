"""AWQ (Lin et al. 2023) as AutoAWQ stores it: 4 bits, unsigned, with zero points.

    gemm    x.qweight (columns, rows / 8) int32    eight rows in a word, in the order 0 2 4 6 1 3 5 7,
                                                   lowest bits first
            x.qzeros  (groups, rows / 8) int32     the same
            x.scales  (groups, rows) float16
    gemv    x.qweight (rows, columns / 8) int32    eight columns in a word, in order
            x.qzeros  (rows, >= groups / 8) int32  in order, filled up with zeros
            x.scales  (rows, >= groups) float16    filled up with zeros

value = scale * (code - zero).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import unpacked
from twostroke.weights.quantized.matrix import GroupedRows, affine_kinds, words_of
from twostroke.weights.quantized.parts import FLOATS, WORDS, Held, StoredPart, StoredTensors

PLACES = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""For rows 0 to 7 of a word (gemm), the place of the row's code in the word, counted from the lowest bits."""


@dataclass(frozen=True, eq=False, slots=True)
class AwqMatrix:
    """A matrix of AWQ. Satisfies `QuantizedMatrix`. by_rows: True for the packing of gemv, False for that of gemm."""

    qweight: StoredPart
    qzeros: StoredPart
    scales: StoredPart
    shape: tuple[int, ...]
    group: int
    by_rows: bool
    held: Held

    @classmethod
    def of(cls, stored: StoredTensors, module: str, group: int, by_rows: bool, held: Held) -> AwqMatrix:
        """Returns the matrix of a module. group: the columns of a group, 0 for one group a row. by_rows: True for the
        packing of gemv, False for that of gemm. held: a cache of the tensors that were read last. Raises CorruptModel
        naming the stored tensor that is wrong."""
        qweight = stored.part(module + ".qweight", WORDS, (None, None))
        outer, inner = qweight.shape[0], qweight.shape[1] * 8
        rows, columns = (outer, inner) if by_rows else (inner, outer)
        group = group or columns
        groups = -(-columns // group)
        if by_rows:
            scales = stored.part(module + ".scales", FLOATS, (rows, None))
            qzeros = stored.part(module + ".qzeros", WORDS, (rows, None))
            if scales.shape[1] < groups or qzeros.shape[1] * 8 < groups:
                raise scales.wrong(f"It or its zero points are fewer than the {groups} groups of a row.")
        else:
            scales = stored.part(module + ".scales", FLOATS, (groups, rows))
            qzeros = stored.part(module + ".qzeros", WORDS, (groups, rows // 8))
        return cls(qweight, qzeros, scales, (rows, columns), group, by_rows, held)

    @property
    def words(self) -> str:
        return words_of("AWQ", 4, self.shape[1], self.group, "packed for gemv" if self.by_rows else "")

    @property
    def parts(self) -> tuple[str, ...]:
        return self.qweight.name, self.qzeros.name, self.scales.name

    @property
    def num_bytes(self) -> int:
        return sum(part.info.num_bytes for part in (self.qweight, self.qzeros, self.scales))

    @property
    def kinds(self) -> frozenset[WeightKind]:
        return affine_kinds(4, self.shape[1], self.group)

    def values(self, first: int, count: int) -> F32Array:
        return self._rows(first, count).values()

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        return self._rows(first, count).stored(kind)

    def _rows(self, first: int, count: int) -> GroupedRows:
        if self.by_rows:
            groups = -(-self.shape[1] // self.group)
            codes = unpacked(self.qweight.rows(first, count).view(np.uint32), 4)
            zeros = unpacked(self.qzeros.rows(first, count).view(np.uint32), 4)[:, :groups]
            scales = self.scales.floats(first, count)[:, :groups]
            return GroupedRows(codes, scales, self.group, 4, zeros=zeros.astype(np.int16))
        # Only whole words of eight rows are unpacked.
        begin, end = first // 8, -(-(first + count) // 8)
        words, zero_words, all_scales = self.held.get(self.qweight.name, self._read)
        here = slice(first - 8 * begin, first - 8 * begin + count)
        codes = _eight_rows(words[begin:end])[here]
        zeros = _eight_rows(zero_words[begin:end])[here].astype(np.int16)
        return GroupedRows(codes, all_scales[first : first + count], self.group, 4, zeros=zeros)

    def _read(self) -> tuple[NDArray[Any], NDArray[Any], F32Array]:
        """Returns (rows / 8, columns) words of codes, (rows / 8, groups) words of zero points, and (rows, groups)
        scales."""
        words, zeros = (part.whole().view(np.uint32) for part in (self.qweight, self.qzeros))
        scales = np.ascontiguousarray(self.scales.floats().T)
        return np.ascontiguousarray(words.T), np.ascontiguousarray(zeros.T), scales


def _eight_rows(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Unpacks (n, columns) words to codes (8 n, columns)."""
    shifts = (4 * PLACES).astype(np.uint32)[:, None]
    codes = ((words[:, None, :] >> shifts) & np.uint32(15)).astype(np.uint8)
    return codes.reshape(-1, words.shape[1])
