"""Packs matrices whose codes and scales are kept as a file has them: rows are read, laid out anew, and put into a
BlobTarget.

Native code of the packer packs the block types of ggml that it knows. All others go through NumPy, whose code defines
the result (ops/stored_layout.py).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.program.values import Tensor, Weight
from twostroke.ops.stored_layout import canonical, pack_stored
from twostroke.ops.stored_values import StoredValues
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import PANEL_ROWS, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.tensors import GgufTensor
from twostroke.weights.packed.blobs import BlobTarget
from twostroke.weights.stored import bank_of, part_bytes, rows_in_file

PIECE_ELEMENTS = 1 << 21
"""The number of elements that are packed at a time; NumPy holds a few copies of them while it works."""


class BlockPacker(Protocol):
    """Packs quantized matrices of GGUF files for a backend. Packers have more members; this type has those that this
    module uses."""

    num_threads: int
    """The number of threads that packing may use."""

    block_types: frozenset[str]
    """The types of ggml's blocks that `pack_blocks` takes, in every kind that holds them without loss."""

    def pack_blocks(self, block: str, raw: U8Array, columns: int, kind: WeightKind, data: U8Array) -> bool:
        """Packs rows of ggml blocks into all of `data`, as `pack_stored` packs them. raw: (rows, row bytes),
        C-contiguous. block: the type of the blocks. Returns False where a scale is NaN or infinite. Any thread may call
        it, several at once."""


class _Piece(NamedTuple):
    """Some panels of a matrix that are being packed. read_bytes: a future of the number of bytes that were read from
    the checkpoint. done: called with this number."""

    read_bytes: Future[int]
    done: Callable[[int], None]


class _Place(NamedTuple):
    """The place to which a piece is packed. area: the memory for the bytes of the blob `key` from byte `begin` on."""

    key: str
    begin: int
    area: U8Array


class StoredPacking:
    """Packs matrices one after the other, some panels at a time. As many pieces are packed at once as the packer has
    threads; they may belong to different matrices. It is a context manager: all matrices that were added are packed
    when it ends."""

    def __init__(self, target: BlobTarget, checkpoint: Checkpoint, packer: BlockPacker) -> None:
        self._target, self._checkpoint, self._packer = target, checkpoint, packer
        self._pool = ThreadPoolExecutor(packer.num_threads, "twostroke-pack")
        self._under_way: deque[_Piece] = deque()

    def __enter__(self) -> StoredPacking:
        return self

    def __exit__(self, failed: type[BaseException] | None, *exception: object) -> None:
        try:
            while self._under_way and failed is None:
                self._hand_over()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def add(self, weight: Weight, weight_format: WeightFormat, done: Callable[[int], None]) -> None:
        """Adds all matrices of a weight, which threads then pack. done: called in the calling thread, with the number
        of bytes read. Raises CorruptModel or OSError, also where the packing of a weight that was added earlier failed.
        """
        panel_bytes, panels_each = weight_format.data_bytes(1, weight.columns), math.ceil(weight.rows / PANEL_ROWS)
        step = max(1, PIECE_ELEMENTS // (PANEL_ROWS * weight.columns)) * PANEL_ROWS
        key, tensors = weight.key + ".data", _tensors(weight, self._checkpoint)
        for matrix in range(weight.matrices):
            for first in range(0, weight.rows, step):
                count = min(step, weight.rows - first)
                begin = (matrix * panels_each + first // PANEL_ROWS) * panel_bytes
                area = self._target.area(key, begin, weight_format.data_bytes(count, weight.columns))
                place = _Place(key, begin, area)
                parts = list(_parts(tensors, matrix * weight.rows + first, count))
                read_bytes = self._pool.submit(self._pack, parts, weight.columns, weight_format, place)
                self._under_way.append(_Piece(read_bytes, done))
                if len(self._under_way) > self._packer.num_threads:
                    self._hand_over()

    def _hand_over(self) -> None:
        """Waits until the oldest piece under way is packed, and reports its bytes. `add` calls this so that at most one
        piece for each thread is under way and little memory is used."""
        piece = self._under_way.popleft()
        piece.done(piece.read_bytes.result())

    def _pack(self, parts: Sequence[_Part], columns: int, weight_format: WeightFormat, place: _Place) -> int:
        """Packs the rows and puts them in their place; all threads take part in writing a file, too. Returns the bytes
        read."""
        checkpoint, area = self._checkpoint, place.area
        if not self._pack_blocks(parts, columns, weight_format, area):
            area[:] = pack_stored(_rows(parts, checkpoint, weight_format.kind), weight_format)
        self._target.put(*place)
        return sum(
            (end - first) * part_bytes(part, checkpoint) // max(1, part.length) for (part, _), first, end in parts
        )

    def _pack_blocks(self, parts: Sequence[_Part], columns: int, weight_format: WeightFormat, area: U8Array) -> bool:
        """Packs rows of ggml blocks into `area` with the packer's native code. Returns False where this code does not
        know the type of some block, or where a panel has rows of two types."""
        found = []
        for (part, sought), first, end in parts:
            if sought is None or not self._packer.block_types.issuperset(sought[0].block_names):
                return False
            runs = sought[0].runs(sought[1][first:end])
            if runs is None:
                return False
            found += [(part.name, *run) for run in runs]
        if any(end % PANEL_ROWS for end in np.cumsum([len(rows) for _, _, rows in found[:-1]]).tolist()):
            return False
        at = 0
        for name, source, rows in found:
            size = weight_format.data_bytes(len(rows), columns)
            block, raw, packed = source.tensor.block.name, source.blocks(rows), area[at : at + size]
            if not self._packer.pack_blocks(block, raw, columns, weight_format.kind, packed):
                raise _bad_scales(name)
            at += size
        return True


def stored_rows(weight: Weight, checkpoint: Checkpoint, first: int, count: int, kind: WeightKind) -> StoredValues:
    """Returns rows [first, first + count) of a weight as the codes and scales that the stored kind `kind` needs. Raises
    CorruptModel."""
    return _rows(list(_parts(_tensors(weight, checkpoint), first, count)), checkpoint, kind)


class _Tensor(NamedTuple):
    """One of the tensors whose rows form a weight's matrices. in_file: the tensor and rows in the GGUF file
    (`rows_in_file`), which are looked up once, not for each piece of a matrix."""

    part: Tensor
    in_file: tuple[GgufTensor, I32Array] | None


class _Part(NamedTuple):
    """Rows [first, end) of one of the tensors that form a weight's matrices."""

    tensor: _Tensor
    first: int
    end: int


def _tensors(weight: Weight, checkpoint: Checkpoint) -> list[_Tensor]:
    return [_Tensor(part, rows_in_file(part, checkpoint)) for part in weight.parts]


def _parts(tensors: Sequence[_Tensor], first: int, count: int) -> Iterator[_Part]:
    """Yields rows [first, first + count) of all tensors one after the other."""
    part_first = 0
    for tensor in tensors:
        length = tensor.part.length
        begin, end = max(first, part_first), min(first + count, part_first + length)
        if begin < end:
            yield _Part(tensor, begin - part_first, end - part_first)
        part_first += length


def _rows(parts: Sequence[_Part], checkpoint: Checkpoint, kind: WeightKind) -> StoredValues:
    """Returns rows of tensors as the codes and scales that the stored kind `kind` needs. Raises CorruptModel."""
    found = []
    for tensor, first, end in parts:
        values = _part_rows(tensor, checkpoint, first, end - first, kind)
        if not _finite(values.scales) or not _finite(values.minimum_scales):
            raise _bad_scales(tensor.part.name)
        found.append(canonical(values, kind))
    return StoredValues.joined(found)


def _bad_scales(name: str) -> CorruptModel:
    return CorruptModel(
        f"Tensor {name} holds scales that are NaN or infinite.",
        why="One of them makes every answer NaN.",
        fix="Download the file again.",
    )


def _part_rows(tensor: _Tensor, checkpoint: Checkpoint, first: int, count: int, kind: WeightKind) -> StoredValues:
    part, sought = tensor
    bank = bank_of(part, checkpoint)
    if sought is not None:
        return sought[0].read_stored_rows(sought[1][first : first + count], kind)
    if bank is None or part.matrix is None:
        return checkpoint.read_stored(part.name, first, count, kind)
    rows = np.arange(first, first + count) if part.order is None else part.order.index[first : first + count]
    return bank.stored_rows(part.matrix, np.array(rows, np.int32), kind)


def _finite(scales: F32Array | None) -> bool:
    return scales is None or bool(np.isfinite(scales).all())
