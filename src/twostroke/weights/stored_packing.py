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
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from twostroke.ops.operands import F32Array, U8Array
from twostroke.ops.stored_layout import StoredValues, canonical, pack_stored
from twostroke.program.values import Tensor, Weight
from twostroke.spec.formats import PANEL_ROWS, WeightFormat, WeightKind
from twostroke.types.errors import CorruptModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.packed.blobs import BlobTarget
from twostroke.weights.stored import bank_of, part_bytes, rows_in_file

Made = TypeVar("Made")

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


def pack_stored_matrix(
    target: BlobTarget,
    weight: Weight,
    checkpoint: Checkpoint,
    weight_format: WeightFormat,
    done: Callable[[int], None],
    packer: BlockPacker,
) -> None:
    """All matrices of a weight, some panels at a time. done: called with the bytes read. Raises CorruptModel."""
    panel_bytes, panels_each = weight_format.data_bytes(1, weight.columns), math.ceil(weight.rows / PANEL_ROWS)
    step = max(1, PIECE_ELEMENTS // (PANEL_ROWS * weight.columns)) * PANEL_ROWS
    key = weight.key + ".data"

    def packed(matrix: int, first: int) -> tuple[int, U8Array, int]:
        count = min(step, weight.rows - first)
        begin = (matrix * panels_each + first // PANEL_ROWS) * panel_bytes
        pieces = list(_pieces(weight, checkpoint, matrix * weight.rows + first, count))
        read_bytes = sum(
            piece.rows * part_bytes(piece.part, checkpoint) // max(1, piece.part.length) for piece in pieces
        )
        data = _packed_blocks(pieces, checkpoint, weight.columns, weight_format, packer)
        if data is None:
            data = pack_stored(_rows(pieces, checkpoint, weight_format.kind), weight_format)
        return begin, data, read_bytes

    pieces = [
        partial(packed, matrix, first) for matrix in range(weight.matrices) for first in range(0, weight.rows, step)
    ]
    for begin, piece, read_bytes in _in_turn(pieces, packer.num_threads):
        area = target.area(key, begin, len(piece))
        area[:] = piece
        target.put(key, begin, area)
        done(read_bytes)


def _in_turn(calls: Sequence[Callable[[], Made]], num_threads: int) -> Iterator[Made]:
    """What the calls return, in their order. Threads are ahead by one call each, so that little memory is taken."""
    if num_threads == 1 or len(calls) == 1:
        yield from (call() for call in calls)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        under_way: deque[Future[Made]] = deque()
        for call in calls:
            under_way.append(pool.submit(call))
            if len(under_way) > num_threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def stored_rows(weight: Weight, checkpoint: Checkpoint, first: int, count: int, kind: WeightKind) -> StoredValues:
    """Rows [first, first + count) of a weight as the kind wants them. Raises CorruptModel."""
    return _rows(list(_pieces(weight, checkpoint, first, count)), checkpoint, kind)


class _Piece(NamedTuple):
    """Rows [first, end) of one tensor of a matrix."""

    part: Tensor
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


def _pieces(weight: Weight, checkpoint: Checkpoint, first: int, count: int) -> Iterator[_Piece]:
    """Rows [first, first + count) of all tensors one after the other."""
    part_first = 0
    for part in weight.parts:
        begin, end = max(first, part_first), min(first + count, part_first + part.length)
        if begin < end:
            yield _Piece(part, begin - part_first, end - part_first)
        part_first += part.length


def _packed_blocks(
    pieces: Sequence[_Piece], checkpoint: Checkpoint, columns: int, weight_format: WeightFormat, packer: BlockPacker
) -> U8Array | None:
    """The rows packed by the packer; None where one of their types is not its own, or a panel has rows of two."""
    found = []
    for part, first, end in pieces:
        sought = rows_in_file(part, checkpoint)
        if sought is None or not packer.block_types.issuperset(sought[0].block_names):
            return None
        runs = sought[0].runs(sought[1][first:end])
        if runs is None:
            return None
        found += [(part.name, *run) for run in runs]
    ends = np.cumsum([len(rows) for _, _, rows in found])
    if any(end % PANEL_ROWS for end in ends[:-1].tolist()):
        return None
    data, at = np.empty(weight_format.data_bytes(int(ends[-1]), columns), np.uint8), 0
    for name, source, rows in found:
        size = weight_format.data_bytes(len(rows), columns)
        raw = source.blocks(rows)
        if not packer.pack_blocks(source.tensor.block.name, raw, columns, weight_format.kind, data[at : at + size]):
            raise _bad_scales(name)
        at += size
    return data


def _rows(pieces: Sequence[_Piece], checkpoint: Checkpoint, kind: WeightKind) -> StoredValues:
    """The rows as the kind wants them. Raises CorruptModel."""
    found = []
    for part, first, end in pieces:
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
