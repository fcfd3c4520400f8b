"""A quantized matrix as a tensor of a checkpoint. The column order of a matrix with act-order is another tensor."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import I32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.matrix import OrderedMatrix, QuantizedMatrix
from twostroke.weights.tensor_source import SourceArray, TensorInfo

PIECE_ELEMENTS = 1 << 21
"""The number of elements that are expanded at a time: 8 MB of floats, and a few times that for intermediate values."""


class QuantizedTensor(Struct, frozen=True, eq=False):
    """A quantized matrix as one tensor of a checkpoint. Satisfies `TensorSource`. name: the tensor's name, for errors.
    """

    name: str
    matrix: QuantizedMatrix

    @property
    def info(self) -> TensorInfo:
        """The shape of the dequantized tensor, which is read as float32; num_bytes is the size of its parts in the
        files."""
        matrix = self.matrix
        return TensorInfo("F32", matrix.shape, 0, matrix.num_bytes, matrix.words, matrix.kinds)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
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

    @property
    def column_order(self) -> I32Array | None:
        """For each sorted column, its number in the file; None where the columns are not sorted. See OrderedMatrix."""
        return self.matrix.column_order() if isinstance(self.matrix, OrderedMatrix) else None

    @property
    def ordered_kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss if its columns are sorted by group (act-order). There are
        none for a format that cannot have act-order."""
        return self.matrix.ordered_kinds if isinstance(self.matrix, OrderedMatrix) else frozenset()

    def read_stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Returns rows [first, first + count) as codes and scales, for a kind that can hold them. Where columns of a
        group lie apart (act-order), the result has them sorted by group. Raises CorruptModel."""
        return self.matrix.stored(first, count, kind)


class OrderTensor(Struct, frozen=True, eq=False):
    """The order that sorts the columns of a matrix with act-order by group, as floats. Satisfies `TensorSource`."""

    tensor: QuantizedTensor

    @property
    def info(self) -> TensorInfo:
        """The info of a float tensor with the shape (columns,). It has no bytes in the files, because it is computed
        from the matrix."""
        return TensorInfo("F32", self.tensor.matrix.shape[-1:], 0, 0)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        order = self.tensor.column_order
        if order is None:
            raise TypeError(f"{self.tensor.name} has its columns in order")
        found = np.empty(count, np.float32) if out is None else out
        found[...] = order[first : first + count]
        return found
