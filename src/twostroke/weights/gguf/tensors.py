"""Tensors of GGUF files in the order and with the values that Hugging Face checkpoints have.

This module undoes the converters' changes: the order of sizes, rows in another order, stacks of experts, transposed
matrices, ones that were added to norms. Blocks are expanded to floats a piece at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array, U8Array, bf16_to_f32
from twostroke.ops.stored_layout import canonical
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.gguf.blocks import READ_AS_FLOATS, decode
from twostroke.weights.gguf.container import GgufFile, StoredTensor
from twostroke.weights.open_file import check_rows
from twostroke.weights.tensor_source import SourceArray, TensorInfo

PIECE_ELEMENTS = 1 << 20
"""The number of elements that are expanded at a time: 4 MB of floats, and a few times that for intermediate values."""


class Source(Struct, frozen=True):
    """Rows [first_row, first_row + rows) of a stored tensor. In a stack, the rows of all matrices are numbered through.

    turned: True where the file stores each matrix of the tensor transposed, as (columns, rows); the source is then
    always the whole tensor.
    """

    file: GgufFile
    stored: str
    first_row: int
    rows: int
    turned: bool = False

    @property
    def tensor(self) -> StoredTensor:
        """The tensor's type, shape and place in the file."""
        return self.file.tensors[self.stored]

    @property
    def num_bytes(self) -> int:
        """The number of bytes that the rows of this source take in the file."""
        return self.tensor.num_bytes if self.turned else self.rows * self.tensor.row_bytes

    def blocks(self, rows: I32Array) -> U8Array:
        """Returns the rows with these numbers as stored, (len(rows), row_bytes); neighbouring rows are read together.
        """
        if len(rows) and (np.diff(rows) == 1).all():
            return self.file.read_blocks(self.stored, self.first_row + int(rows[0]), len(rows))
        wanted, places = np.unique(rows, return_inverse=True)
        ends = np.flatnonzero(np.diff(wanted, append=np.int32(-2)) != 1) + 1
        pieces, begin = [np.empty((0, self.tensor.row_bytes), np.uint8)], 0
        for end in ends.tolist():
            pieces.append(self.file.read_blocks(self.stored, self.first_row + int(wanted[begin]), end - begin))
            begin = end
        return np.concatenate(pieces)[places]

    def floats(self, rows: I32Array) -> SourceArray:
        """Returns the rows with these numbers, (len(rows), columns): bf16 bits for BF16, else float32."""
        if not self.turned:
            return expanded(self.tensor, self.blocks(rows))
        tensor = self.tensor
        whole = expanded(tensor, self.file.read_blocks(self.stored, 0, tensor.rows)).reshape(tensor.shape)
        return whole.swapaxes(-1, -2).reshape(self.rows, -1)[rows]


def whole(file: GgufFile, stored: str, turned: bool = False) -> Source:
    """Returns all rows of a stored tensor as a Source. turned: True where the file stores its matrices transposed."""
    tensor = file.tensors[stored]
    rows = math.prod((*tensor.shape[:-2], tensor.shape[-1])) if turned else tensor.rows
    return Source(file, stored, 0, rows, turned)


class GgufTensor(Struct, frozen=True, eq=False):
    """One tensor of a checkpoint, made of rows of stored tensors. Satisfies `TensorSource`.

    shape: the checkpoint's shape. order: for each row, the number of its stored row, counted through all sources; None
    where rows keep their order. elements: True where `order` has elements in place of rows, as for a vector. turned:
    True where the checkpoint has the tensor transposed, as (…, columns, rows). columns: for each column, the number of
    its stored column; None where columns keep their order. plus: a number that is added to each value. negated_exp:
    True where the file stores -exp(x) for each value x. factor: a power of two by which all values are multiplied.
    """

    sources: tuple[Source, ...]
    shape: tuple[int, ...]
    order: I32Array | None = None
    turned: bool = False
    plus: float = 0.0
    negated_exp: bool = False
    elements: bool = False
    columns: I32Array | None = None
    factor: float = 1.0

    @property
    def info(self) -> TensorInfo:
        """The tensor's shape, the dtype in which it is read, its offset in the file and its size there. blocks: the
        names of the block types whose codes can be read, with blanks between them; "" where only floats can be read."""
        names = sorted(self.block_names)
        changed = self.plus or self.factor != 1.0
        dtype = names[0] if names in (["BF16"], ["F16"]) and not changed else "F32"
        codes = (
            self.columns is None
            and not any(name in READ_AS_FLOATS for name in names)
            and not any(each.turned for each in self.sources)
        )
        num_bytes = sum(source.num_bytes for source in self.sources)
        offset = self.sources[0].tensor.offset
        return TensorInfo(dtype, self.shape, offset, num_bytes, " ".join(names) if codes else "")

    @property
    def column_order(self) -> I32Array | None:
        """For each stored column, the number that this column has in the checkpoint; None where columns keep their
        order."""
        return None if self.columns is None else np.argsort(self.columns).astype(np.int32)

    @property
    def block_names(self) -> frozenset[str]:
        """The types of the blocks in the file."""
        return frozenset(source.tensor.block.name for source in self.sources)

    @property
    def matrix_rows(self) -> int:
        """The number of rows of one matrix of the stack, or of the only matrix."""
        return self.shape[-1] if self.turned else self.shape[0] if len(self.shape) == 2 else self.shape[-2]

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns rows [first, first + count): float32, or uint16 with the bits of bf16. out: an array for the rows.
        Raises CorruptModel, UnsupportedModel (type), IndexError."""
        check_rows(self.sources[0].stored, first, count, self.shape[0])
        dtype: type[np.uint16 | np.float32] = np.uint16 if self.info.dtype == "BF16" else np.float32
        shape = (count, *self.shape[1:])
        target: Any = np.empty(shape, dtype) if out is None else out.reshape(shape)
        found: SourceArray = target if out is None else out
        if len(self.shape) == 1 or self.elements:
            target[...] = self._vector().reshape(self.shape)[first : first + count]
        elif self.turned and len(self.shape) == 2:
            target[...] = self._floats(np.arange(self.matrix_rows, dtype=np.int32)).T[first : first + count]
        elif self.turned:
            for matrix in range(count):
                begin = (first + matrix) * self.matrix_rows
                target[matrix] = self._floats(np.arange(begin, begin + self.matrix_rows, dtype=np.int32)).T
        else:
            self._fill(target, first, count)
        return found

    def _fill(self, target: Any, first: int, count: int) -> None:
        """Reads entries [first, first + count) of the first axis into `target`, a piece at a time. Not for a transposed
        tensor (`turned`)."""
        each = self.matrix_rows if len(self.shape) == 3 else 1
        columns = self.shape[-1]
        flat, step = target.reshape(count * each, columns), max(1, PIECE_ELEMENTS // columns)
        for begin in range(0, count * each, step):
            end = min(begin + step, count * each)
            flat[begin:end] = self._floats(np.arange(first * each + begin, first * each + end, dtype=np.int32))

    def read_stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Returns rows [first, first + count) as codes and scales; in a stack, the rows of all matrices are numbered
        through. Raises CorruptModel."""
        return self.read_stored_rows(np.arange(first, first + count, dtype=np.int32), kind)

    def read_stored_rows(self, rows: I32Array, kind: WeightKind) -> StoredValues:
        """Returns the rows with these numbers as codes and scales; see `read_stored`."""
        pieces, places = [], []
        for source, at, own in self._sought(rows):
            block = source.tensor.block
            raw = source.blocks(own)
            pieces.append(decode(block, raw.reshape(-1, block.num_bytes)).by_rows(len(own)).scaled(self.factor))
            places.append(at)
        if len(pieces) == 1:
            return pieces[0]
        back = np.argsort(np.concatenate(places))
        return _picked(StoredValues.joined([canonical(piece, kind) for piece in pieces]), back)

    def runs(self, rows: I32Array) -> list[tuple[Source, I32Array]] | None:
        """Returns the sources that store these rows, in the order of `rows`, each with the numbers of its rows. Returns
        None where the values are changed after reading, or where rows of two sources alternate."""
        if self.factor != 1.0 or self.plus or self.columns is not None:
            return None
        found = sorted(self._sought(rows), key=lambda each: int(each[1][0]))
        if any(source.turned or at[-1] - at[0] + 1 != len(at) for source, at, _ in found):
            return None
        return [(source, own) for source, _, own in found]

    def in_one_source(self, rows: I32Array, transposed: bool) -> tuple[GgufTensor, I32Array] | None:
        """Returns the one source that stores all of these rows, as a GgufTensor of its own, and the numbers of the
        stored rows. Returns None where there is no such source.

        transposed: True to look for a source that stores its matrices transposed. Then `rows` must be all rows of one
        matrix, and the result has the numbers of all stored rows of this matrix.
        """
        for source, at, own in self._sought(rows):
            stack = source.tensor.shape
            if len(at) != len(rows) or source.turned != transposed or self.turned or self.elements:
                return None
            if not transposed:
                shape = (source.rows, stack[-1])
                alone = Source(source.file, source.stored, source.first_row, source.rows)
                return GgufTensor((alone,), shape, factor=self.factor), own
            matrix, first = divmod(int(own[0]), stack[-1])
            if first or not np.array_equal(own, matrix * stack[-1] + np.arange(stack[-1])):
                return None
            found = np.arange(matrix * stack[-2], (matrix + 1) * stack[-2], dtype=np.int32)
            alone = whole(source.file, source.stored)
            return GgufTensor((alone,), (alone.rows, stack[-1]), factor=self.factor), found
        return None

    def _sought(self, rows: I32Array) -> Iterator[tuple[Source, NDArray[np.intp], I32Array]]:
        """Yields (source, places, numbers) for each of the tensor's sources that stores some of these rows. places: the
        indices of these rows in `rows`. numbers: their row numbers in the source."""
        sought = rows if self.order is None else self.order[rows]
        first = 0
        for source in self.sources:
            at = np.flatnonzero((sought >= first) & (sought < first + source.rows))
            if len(at):
                yield source, at, (sought[at] - np.int32(first)).astype(np.int32)
            first += source.rows

    def _floats(self, rows: I32Array) -> SourceArray:
        found: Any = None
        for source, at, own in self._sought(rows):
            values = source.floats(own)
            if self.info.dtype != "BF16" and values.dtype == np.uint16:
                values = bf16_to_f32(values.view(np.uint16))
            if len(at) == len(rows):
                found = values
                break
            if found is None:
                found = np.empty((len(rows), values.shape[1]), values.dtype)
            found[at] = values
        if self.columns is not None:
            found = found[:, self.columns]
        result: SourceArray = self._changed(found)
        return result

    def _vector(self) -> SourceArray:
        parts = []
        for source in self.sources:
            values = source.floats(np.arange(source.rows, dtype=np.int32)).reshape(-1)
            mixed = self.info.dtype != "BF16" and values.dtype == np.uint16
            parts.append(bf16_to_f32(values.view(np.uint16)) if mixed else values)
        flat: Any = np.concatenate(parts)
        if self.order is not None:
            flat = flat[self.order]
        result: SourceArray = self._changed(flat)
        return result

    def _changed(self, values: Any) -> Any:
        """Returns the values after `plus` was added to them and they were multiplied by `factor`."""
        values = values + np.float32(self.plus) if self.plus else values
        return values * np.float32(self.factor) if self.factor != 1.0 else values


class NumbersOfKeys(Struct, frozen=True, eq=False):
    """A tensor of a checkpoint that no GGUF tensor stores: its values are computed from keys of the file, or number the
    tensor's columns in another order. Satisfies `TensorSource`. values: float32, in the checkpoint's shape."""

    values: F32Array

    @property
    def info(self) -> TensorInfo:
        return TensorInfo("F32", self.values.shape, 0, self.values.nbytes)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        check_rows("numbers of keys", first, count, self.info.rows)
        shape = (count, *self.values.shape[1:]) if self.values.shape else ()
        found = self.values.reshape(self.info.rows, -1)[first : first + count].reshape(shape)
        if out is None:
            return found
        out.reshape(found.shape)[...] = found
        return out


def _picked(values: StoredValues, rows: NDArray[np.intp]) -> StoredValues:
    def part(each: Any) -> Any:
        return None if each is None else each[rows]

    return StoredValues(
        part(values.codes),
        part(values.scales),
        part(values.multipliers),
        part(values.minimum_scales),
        part(values.minima),
    )


def expanded(tensor: StoredTensor, raw: U8Array) -> SourceArray:
    """Expands rows of blocks to (rows, columns): bf16 bits for BF16, else float32."""
    name, block = tensor.block.name, tensor.block
    if name == "F32":
        return raw.view(np.float32)
    if name == "BF16":
        return raw.view(np.uint16)
    if name == "I32":
        return raw.view(np.int32).astype(np.float32)
    if name == "F16":
        return raw.view(np.float16).astype(np.float32)
    values: F32Array = decode(block, raw.reshape(-1, block.num_bytes)).values()
    return values.reshape(len(raw), -1)
