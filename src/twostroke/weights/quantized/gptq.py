"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel store it.

    x.qweight (columns * bits / 32, rows) int32    codes along the columns, lowest bits first
    x.qzeros  (groups, rows * bits / 32) int32     zero points along the rows
    x.scales  (groups, rows) float16
    x.g_idx   (columns,) int32                     the group of each column; in order where it is absent

value = scale * (code - zero). In the first format (`checkpoint_format` "gptq"), one was subtracted from each zero point
before it was stored; in "gptq_v2" not. For 3 bits, GPTQModel subtracted other constants from whole words, AutoGPTQ one
from each zero point. Symmetric zero points show which of the two wrote a file; for other zero points, `meta.quantizer`
tells it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import unpacked, words_for
from twostroke.weights.quantized.indexed import IndexedMatrix
from twostroke.weights.quantized.matrix import GroupedRows, words_of
from twostroke.weights.quantized.parts import FLOATS, WORDS, Held, StoredPart, StoredTensors

BITS = (2, 3, 4, 8)

_ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}
"""The number of bits of a code -> a 32-bit word of such codes, each with the value 1. In the first format this word was
subtracted from each word of zero points. Adding it again gives the zero points, even where the subtraction carried from
one code into the next."""

_GPTQMODEL_3 = np.array((0x24924924, 0x92492492, 0x49249249), np.uint32)


@dataclass(frozen=True, slots=True)
class GptqSettings:
    """How GPTQ stored one matrix. group: the columns of a group, 0 for one group a row. less_one: True where 1 was
    subtracted from each zero point before it was stored. gptqmodel: whether GPTQModel wrote the file."""

    bits: int
    group: int
    symmetric: bool
    less_one: bool
    gptqmodel: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class GptqMatrix(IndexedMatrix):
    """A matrix of GPTQ. Satisfies `QuantizedMatrix`."""

    settings: GptqSettings
    qweight: StoredPart
    qzeros: StoredPart
    scales: StoredPart
    g_idx: StoredPart | None
    held: Held

    @classmethod
    def of(cls, stored: StoredTensors, module: str, settings: GptqSettings, held: Held) -> GptqMatrix:
        """Returns the matrix of a module. Raises CorruptModel naming the part that does not fit."""
        bits = settings.bits
        qweight = stored.part(module + ".qweight", WORDS, (None, None))
        packed, rows = qweight.shape
        columns = packed * 32 // bits
        if (bits == 3 and packed % 3) or rows * bits % 32:
            raise qweight.wrong(f"{packed} words of 32 bits do not hold whole codes of {bits} bits.")
        group = settings.group or columns
        groups = -(-columns // group)
        scales = stored.part(module + ".scales", FLOATS, (groups, rows))
        qzeros = stored.part(module + ".qzeros", WORDS, (groups, words_for(rows, bits)))
        has_index = stored.has(module + ".g_idx")
        g_idx = stored.part(module + ".g_idx", WORDS, (columns,)) if has_index else None
        return cls(settings, qweight, qzeros, scales, g_idx, held)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dequantized matrix, (rows, columns)."""
        return self.qweight.shape[1], self.qweight.shape[0] * 32 // self.settings.bits

    @property
    def columns(self) -> int:
        return self.shape[1]

    @property
    def bits(self) -> int:
        return self.settings.bits

    @property
    def is_flat(self) -> bool:
        return self.settings.symmetric and self.scales.info.dtype == "F16"

    @property
    def group(self) -> int:
        return self.settings.group or self.shape[1]

    @property
    def words(self) -> str:
        order = "act-order" if self.column_groups() is not None else ""
        return words_of("GPTQ", self.settings.bits, self.shape[1], self.group, order)

    @property
    def parts(self) -> tuple[str, ...]:
        found = (self.qweight, self.qzeros, self.scales, *((self.g_idx,) if self.g_idx else ()))
        return tuple(part.name for part in found)

    @property
    def num_bytes(self) -> int:
        return sum(part.info.num_bytes for part in (self.qweight, self.qzeros, self.scales))

    def values(self, first: int, count: int) -> F32Array:
        return self._rows(first, count).values()

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        rows = self._rows(first, count)
        if not kind.is_affine and rows.zeros is not None and (rows.zeros != 8).any():
            raise self.qzeros.wrong("The config says that the weights are symmetric, and zero points differ.")
        return rows.stored(kind)

    def _rows(self, first: int, count: int) -> GroupedRows:
        codes, zeros, scales, groups = self.held.get(self.qweight.name, self._read)
        here = slice(first, first + count)
        bits = self.settings.bits
        return GroupedRows(
            unpacked(codes[here], bits), scales[here], self.group, bits, zeros=zeros[here], group_of=groups
        )

    def _read(self) -> tuple[NDArray[np.uint32], NDArray[np.int16], F32Array, I32Array | None]:
        """Returns packed codes, zero points and scales, each transposed so that its rows are the rows of the matrix.
        Also returns the group of each column; None where columns are in order."""
        codes = np.ascontiguousarray(self.qweight.whole().view(np.uint32).T)
        zeros = np.ascontiguousarray(self._zeros().T).astype(np.int16)
        return codes, zeros, np.ascontiguousarray(self.scales.floats().T), self.column_groups()

    def _zeros(self) -> U8Array:
        """Returns the zero points, (groups, rows)."""
        bits, middle = self.settings.bits, 1 << (self.settings.bits - 1)
        words = self.qzeros.whole().view(np.uint32)
        if not self.settings.less_one:
            return unpacked(words, bits)
        if bits != 3:
            return unpacked(words + np.uint32(_ONES[bits]), bits)
        each = (unpacked(words, 3) + np.uint8(1)) & np.uint8(7)
        whole = unpacked(words + np.resize(_GPTQMODEL_3, words.shape[1]), 3)
        if self.settings.symmetric:
            return whole if (whole == middle).all() else each
        return whole if self.settings.gptqmodel else each
