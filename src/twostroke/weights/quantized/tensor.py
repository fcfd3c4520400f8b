"""A quantized matrix as a tensor of a checkpoint.

Knows: what a checkpoint's tensors can be asked.
Must not know: formats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.ops.stored_layout import StoredValues
from twostroke.spec.formats import WeightKind
from twostroke.weights.quantized.matrix import QuantizedMatrix
from twostroke.weights.tensor_source import SourceArray, TensorInfo

PIECE_ELEMENTS = 1 << 21
"""Expanded at a time: 8 MB of floats, and a few times that on the way."""


@dataclass(frozen=True, eq=False, slots=True)
class QuantizedTensor:
    """Satisfies `TensorSource`. name: for errors."""

    name: str
    matrix: QuantizedMatrix

    @property
    def info(self) -> TensorInfo:
        """As a tensor of floats; num_bytes are those of its parts in the files."""
        matrix = self.matrix
        return TensorInfo("F32", matrix.shape, 0, matrix.num_bytes, matrix.words, matrix.kinds)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """See SafetensorsFile.read_rows."""
        shape = self.matrix.shape
        if not (0 <= first and 0 <= count and first + count <= shape[0]):
            raise IndexError(f"{self.name}: rows [{first}, {first + count}) of {shape[0]}")
        found = np.empty((count, *shape[1:]), np.float32) if out is None else out
        target = found.reshape(count, *shape[1:])
        step = max(1, PIECE_ELEMENTS // max(1, int(np.prod(shape[1:]))))
        for begin in range(0, count, step):
            some = min(step, count - begin)
            target[begin : begin + some] = self.matrix.values(first + begin, some)
        return found

    def read_stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Rows as codes and scales, for a kind that holds them. Raises CorruptModel."""
        return self.matrix.stored(first, count, kind)
