"""The interface of a quantized matrix, for every format in which it may be stored, and the form that most formats
share.

    value = scale * (code - zero),  or  scale * code + bias

with a scale and a zero point (or bias) for each row and each group of columns.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind

_AFFINE = {
    4: (WeightKind.AFFINE4_128, WeightKind.AFFINE4_64, WeightKind.AFFINE4_32),
    8: (WeightKind.AFFINE8_128, WeightKind.AFFINE8_64, WeightKind.AFFINE8_32),
}


class QuantizedMatrix(Protocol):
    """A matrix whose values are computed from several stored tensors: codes, scales and others."""

    @property
    def words(self) -> str:
        """A description of the format, for people."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the stored tensors."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dequantized values."""

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all stored tensors of the matrix."""

    @property
    def kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss."""

    def values(self, first: int, count: int) -> F32Array:
        """Returns rows [first, first + count) as float32. Raises CorruptModel naming the stored tensor."""

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Returns rows of the matrix as codes and scales for a kind of `kinds`. Raises CorruptModel like `values`."""


@runtime_checkable
class OrderedMatrix(Protocol):
    """A matrix in which the columns of a group may lie apart (act-order). `stored` then returns the columns sorted by
    group."""

    @property
    def ordered_kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss if its columns are sorted by group (act-order)."""

    def column_order(self) -> I32Array | None:
        """Returns (columns,): for each sorted column, the number of that column in the file. Returns None where columns
        of a group lie side by side already, or where groups differ in size."""


@runtime_checkable
class BankMatrix(Protocol):
    """A stack of matrices that the file has as (matrices, rows, columns), each row in one piece. Its dequantized values
    are transposed: (matrices, columns, rows)."""

    @property
    def bank_kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrices without loss in the orientation of the file."""

    def stored_rows(self, matrix: int, rows: I32Array, kind: WeightKind) -> StoredValues:
        """Returns the rows with these numbers of one matrix in the file, as codes and scales. Raises CorruptModel."""


def sorted_columns(group_of: I32Array | None, group: int) -> I32Array | None:
    """Returns the order that OrderedMatrix.column_order returns. group_of: the group of each column; None where the
    columns of each group lie side by side. group: the number of columns of a group."""
    if group_of is None:
        return None
    order = np.argsort(group_of, kind="stable").astype(np.int32)
    return order if np.array_equal(group_of[order], np.arange(len(order)) // group) else None


class GroupedRows(Struct, frozen=True, eq=False):
    """n rows of a quantized matrix. codes: (n, columns), of `bits` bits each, not negative. scales: (n, groups). zeros,
    biases: one of the two is given, (n, groups).

    group: the number of columns that share a scale, where they lie side by side; the last group may be shorter.
    group_of: (columns,) the group of each column, where columns of a group do not lie side by side.
    """

    codes: NDArray[Any]
    scales: F32Array
    group: int
    bits: int
    zeros: NDArray[Any] | None = None
    biases: F32Array | None = None
    group_of: I32Array | None = None

    def values(self) -> F32Array:
        """Returns (n, columns) float32, rounded once; exact for scales of 16 bits and whole zero points."""
        scales = self._spread(self.scales)
        if self.biases is not None:
            found: F32Array = self.codes.astype(np.float32) * scales + self._spread(self.biases)
            return found
        zeros = self._spread(self.zeros) if self.zeros is not None else 0
        found = (self.codes - zeros).astype(np.float32) * scales
        return found

    def stored(self, kind: WeightKind) -> StoredValues:
        """Returns the rows as codes and scales, with columns sorted by group. kind: an AFFINE kind; or FLAT4, where all
        zero points are half of the codes' range."""
        wide = kind.step_columns
        at = np.arange(self.codes.shape[1] // wide) * wide // self.group
        if self.group_of is not None:
            order = np.argsort(self.group_of, kind="stable")
            return replace(self, codes=self.codes[:, order], group_of=None).stored(kind)
        scales, codes = self.scales[:, at], self.codes.astype(np.int16)
        zeros = None if self.zeros is None else self.zeros[:, at]
        if not kind.is_affine:
            whole = 0 if self.zeros is None else self._spread(self.zeros).astype(np.int16)
            return StoredValues((codes - whole).astype(np.int8), scales)
        less = 0 if self.bits < 8 else 128
        if self.biases is not None:
            least = -(self.biases[:, at] + np.float32(less) * scales)
        else:
            least = ((0 if zeros is None else zeros) - np.float32(less)) * scales
        return StoredValues((codes - less).astype(np.int8), scales, None, least.astype(np.float32))

    def _spread(self, grouped: NDArray[Any]) -> NDArray[Any]:
        if self.group_of is not None:
            return grouped[:, self.group_of]
        columns = self.codes.shape[1]
        return np.repeat(grouped, min(self.group, columns), axis=1)[:, :columns]


def affine_kinds(bits: int, columns: int, group: int) -> frozenset[WeightKind]:
    """Returns the kinds that hold unsigned codes of `bits` bits in groups of `group` columns."""
    fitting = (
        kind
        for width, kinds in _AFFINE.items()
        if bits <= width
        for kind in kinds
        if columns % kind.step_columns == 0 and (group % kind.step_columns == 0 or group >= columns)
    )
    return frozenset(fitting)


def words_of(method: str, bits: int, columns: int, group: int, *more: str) -> str:
    """Returns a description such as "GPTQ 4-bit, groups of 128"."""
    groups = "one group a row" if group >= columns else f"groups of {group}"
    return ", ".join((f"{method} {bits}-bit", groups, *(word for word in more if word)))
