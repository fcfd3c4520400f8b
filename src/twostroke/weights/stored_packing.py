"""Packing of matrices whose codes and scales a file has: rows are read, laid out, and handed over.

Rows of ggml's blocks go through the packer's own code where it knows their types; all others through NumPy, which is
the law (ops/stored_layout.py).

Knows: which rows of which tensor a piece of a matrix is.
Must not know: where in a block its parts lie, where packed bytes end up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from twostroke.ops.operands import F32Array, U8Array
from twostroke.ops.stored_layout import StoredValues, canonical, pack_stored
from twostroke.program.values import Tensor, Weight
from twostroke.spec.formats import PANEL_ROWS, WeightFormat, WeightKind
from twostroke.types.errors import CorruptModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.packed.blobs import BlobTarget
from twostroke.weights.stored import bank_of, part_bytes, rows_in_file

PIECE_ELEMENTS = 1 << 21
"""Packed at a time; NumPy holds a few copies of them on the way."""


class BlockPacker(Protocol):
    """What is needed of a packer here."""

    num_threads: int
    """How many threads packing may use."""

    block_types: frozenset[str]
    """The types of ggml's blocks that `pack_blocks` takes, in every kind that holds them without loss."""

    def pack_blocks(self, block: str, raw: U8Array, columns: int, kind: WeightKind, data: U8Array) -> bool:
        """raw: (rows, row bytes) C-contiguous -> all of `data`, as `pack_stored` would. False where a scale is NaN or
        infinite. Any thread may call it, several at once."""


class _Piece(NamedTuple):
    """Some panels of a matrix that are being packed into `area`, which is bytes from `begin` on of a blob. read_bytes:
    what it returns, the bytes of the checkpoint. done: called with them."""

    read_bytes: Future[int]
    key: str
    begin: int
    area: U8Array
    done: Callable[[int], None]


class StoredPacking:
    """Matrices one after the other, some panels at a time, as many at once as the packer has threads, also where one
    matrix ends and the next begins. A context: what was added is packed when it ends.
    """

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
        """All matrices of a weight. done: called with the bytes read, by this thread. Raises CorruptModel, OSError, of
        this weight or one before."""
        panel_bytes, panels_each = weight_format.data_bytes(1, weight.columns), math.ceil(weight.rows / PANEL_ROWS)
        step = max(1, PIECE_ELEMENTS // (PANEL_ROWS * weight.columns)) * PANEL_ROWS
        key = weight.key + ".data"
        for matrix in range(weight.matrices):
            for first in range(0, weight.rows, step):
                count = min(step, weight.rows - first)
                begin = (matrix * panels_each + first // PANEL_ROWS) * panel_bytes
                area = self._target.area(key, begin, weight_format.data_bytes(count, weight.columns))
                parts = list(_parts(weight, self._checkpoint, matrix * weight.rows + first, count))
                read_bytes = self._pool.submit(self._pack, parts, weight.columns, weight_format, area)
                self._under_way.append(_Piece(read_bytes, key, begin, area, done))
                if len(self._under_way) > self._packer.num_threads:
                    self._hand_over()

    def _hand_over(self) -> None:
        """The piece that was added first. Threads are ahead by one piece each, so that little memory is taken."""
        piece = self._under_way.popleft()
        read_bytes = piece.read_bytes.result()
        self._target.put(piece.key, piece.begin, piece.area)
        piece.done(read_bytes)

    def _pack(self, parts: Sequence[_Part], columns: int, weight_format: WeightFormat, area: U8Array) -> int:
        """Pack the rows into `area`; returns the bytes read."""
        checkpoint = self._checkpoint
        if not self._pack_blocks(parts, columns, weight_format, area):
            area[:] = pack_stored(_rows(parts, checkpoint, weight_format.kind), weight_format)
        return sum(each.rows * part_bytes(each.part, checkpoint) // max(1, each.part.length) for each in parts)

    def _pack_blocks(self, parts: Sequence[_Part], columns: int, weight_format: WeightFormat, area: U8Array) -> bool:
        """The rows packed by the packer; False where one of their types is not its own, or a panel has rows of two."""
        found = []
        for part, first, end in parts:
            sought = rows_in_file(part, self._checkpoint)
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
    """Rows [first, first + count) of a weight as the kind wants them. Raises CorruptModel."""
    return _rows(list(_parts(weight, checkpoint, first, count)), checkpoint, kind)


class _Part(NamedTuple):
    """Rows [first, end) of one tensor of a matrix."""

    part: Tensor
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


def _parts(weight: Weight, checkpoint: Checkpoint, first: int, count: int) -> Iterator[_Part]:
    """Rows [first, first + count) of all tensors one after the other."""
    part_first = 0
    for part in weight.parts:
        begin, end = max(first, part_first), min(first + count, part_first + part.length)
        if begin < end:
            yield _Part(part, begin - part_first, end - part_first)
        part_first += part.length


def _rows(parts: Sequence[_Part], checkpoint: Checkpoint, kind: WeightKind) -> StoredValues:
    """The rows as the kind wants them. Raises CorruptModel."""
    found = []
    for part, first, end in parts:
        values = _part_rows(part, checkpoint, first, end - first, kind)
        if not _finite(values.scales) or not _finite(values.minimum_scales):
            raise _bad_scales(part.name)
        found.append(canonical(values, kind))
    return StoredValues.joined(found)


def _bad_scales(name: str) -> CorruptModel:
    return CorruptModel(
        f"Tensor {name} holds scales that are NaN or infinite.",
        why="One of them makes every answer NaN.",
        fix="Download the file again.",
    )


def _part_rows(part: Tensor, checkpoint: Checkpoint, first: int, count: int, kind: WeightKind) -> StoredValues:
    bank, sought = bank_of(part, checkpoint), rows_in_file(part, checkpoint)
    if sought is not None:
        return sought[0].read_stored_rows(sought[1][first : first + count], kind)
    if bank is None or part.matrix is None:
        return checkpoint.read_stored(part.name, first, count, kind)
    rows = np.arange(first, first + count) if part.order is None else part.order.index[first : first + count]
    return bank.stored_rows(part.matrix, np.array(rows, np.int32), kind)


def _finite(scales: F32Array | None) -> bool:
    return scales is None or bool(np.isfinite(scales).all())
