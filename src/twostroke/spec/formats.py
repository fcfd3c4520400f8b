"""Weight and KV formats and their sizes.

Knows: bits, groups, padding.
Must not know: how numbers are rounded (quant/) or multiplied (backends/).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

PANEL_ROWS = 64
"""Output features of one packed panel: four AVX-512 registers of f32, 16 int8 quadruples each."""

PAGE_TOKENS = 16
"""Positions in one KV page: one AVX-512 register of f32 scores."""


class WeightKind(enum.IntEnum):
    """Element type of packed weights; the values are part of the native ABI and of the cache file."""

    F32 = 0
    BF16 = 1
    INT8 = 2
    INT4 = 3


class KVKind(enum.IntEnum):
    """Element type of the KV cache; the values are part of the native ABI."""

    F32 = 0
    BF16 = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of one K or V element."""
        return 4 if self is KVKind.F32 else 2


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """An element type and, for the integer ones, the columns that share a scale (`group`, 0 for floats)."""

    kind: WeightKind
    group: int = 0

    @property
    def padding(self) -> int:
        """Columns are padded with zeros to a multiple of this."""
        return self.group or (2 if self.kind is WeightKind.BF16 else 1)

    @property
    def element_bits(self) -> int:
        """Bits of one element, without its share of the scale."""
        return {WeightKind.F32: 32, WeightKind.BF16: 16, WeightKind.INT8: 8, WeightKind.INT4: 4}[self.kind]

    def padded_columns(self, columns: int) -> int:
        """Columns stored for a matrix of `columns` input features."""
        return -(-columns // self.padding) * self.padding

    def data_bytes(self, rows: int, columns: int) -> int:
        """Bytes of the packed elements of a (rows, columns) matrix."""
        return padded_rows(rows) * self.padded_columns(columns) * self.element_bits // 8

    def scale_bytes(self, rows: int, columns: int) -> int:
        """Bytes of the bf16 scales of a (rows, columns) matrix; 0 for floats."""
        return padded_rows(rows) * (self.padded_columns(columns) // self.group) * 2 if self.group else 0

    def total_bytes(self, rows: int, columns: int) -> int:
        """Bytes that one pass over the matrix reads."""
        return self.data_bytes(rows, columns) + self.scale_bytes(rows, columns)


def padded_rows(rows: int) -> int:
    """Output features stored for `rows` of them."""
    return -(-rows // PANEL_ROWS) * PANEL_ROWS


F32 = WeightFormat(WeightKind.F32)
BF16 = WeightFormat(WeightKind.BF16)
