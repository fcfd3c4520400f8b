"""Matrices whose file may name the group of each column (act-order of GPTQ, also in compressed-tensors)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.matrix import affine_kinds, sorted_columns
from twostroke.weights.quantized.parts import StoredPart


class IndexedMatrix(ABC):
    """A quantized matrix whose tensor `g_idx` may give the group of each column (act-order): the base of GptqMatrix and
    PackedMatrix. Satisfies `OrderedMatrix` and a part of `QuantizedMatrix`."""

    __slots__ = ()

    IN_ORDER: ClassVar[int | None] = None
    """The value of every entry of `g_idx` that means that columns lie in the order of their groups; None where the
    format has no such value."""
    g_idx: StoredPart | None

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of columns of the matrix."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """The number of bits of a code."""

    @property
    @abstractmethod
    def group(self) -> int:
        """The number of columns that share a scale."""

    @property
    @abstractmethod
    def is_flat(self) -> bool:
        """Whether all zero points are half of the codes' range and scales are float16. Only then can FLAT4 keep the
        matrix."""

    @property
    def kinds(self) -> frozenset[WeightKind]:
        return frozenset() if self.column_groups() is not None else self.ordered_kinds

    @property
    def ordered_kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss if its columns are sorted by group (act-order)."""
        kinds = affine_kinds(self.bits, self.columns, self.group)
        return kinds | {WeightKind.FLAT4} if kinds and self.bits == 4 and self.is_flat else kinds

    def column_order(self) -> I32Array | None:
        """Returns the order that sorts the columns by group, as in OrderedMatrix. Raises CorruptModel."""
        return sorted_columns(self.column_groups(), self.group)

    def column_groups(self) -> I32Array | None:
        """Returns the group of each column, where columns of a group do not lie side by side; else None. Raises
        CorruptModel."""
        if self.g_idx is None:
            return None
        found = self.g_idx.whole().astype(np.int32)
        if self.IN_ORDER is not None and (found == self.IN_ORDER).all():
            return None
        groups = -(-self.columns // self.group)
        if int(found.min()) < 0 or int(found.max()) >= groups:
            raise self.g_idx.wrong(f"It names groups from {found.min()} to {found.max()}, and there are {groups}.")
        return None if np.array_equal(found, np.arange(len(found)) // self.group) else found
