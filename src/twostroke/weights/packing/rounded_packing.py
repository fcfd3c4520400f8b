"""Packing of matrices of floats: rows are read in bounded blocks, rounded panel by panel, and put into a BlobTarget.

A thread reads the next block while the packer rounds the one before, even if the next block belongs to the next matrix.
Two blocks of source rows are held.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, PackedWeight, U8Array, U16Array
from twostroke.ops.program.values import Tensor, Weight
from twostroke.ops.unpack import unpack
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import PANEL_ROWS, WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.packed.blobs import BlobTarget, aligned_bytes
from twostroke.weights.packing.stored_packing import BlockPacker
from twostroke.weights.tensor_source import SourceArray, as_f32, readable_dtype

BLOCK_BYTES = 16 << 20
"""The bytes of source rows that are read at a time. They make enough panels for all threads of a packer, and are few
next to the bytes of a model."""


class Packer(BlockPacker, Protocol):
    """Quantizes and lays out rows. A panel's bytes depend on its rows alone, so each block of panels may be packed by
    itself."""

    def pack(self, source: SourceArray, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        """Fills all of `data` and `scales` from source: (rows, columns) C-contiguous float32, or uint16 bf16 bits.

        data: (weight_format.data_bytes(rows, columns),), 64-byte aligned. scales: (scale_bytes / 2,), None for floats.
        Missing rows of the last panel and missing columns are zeros. Raises CorruptModel where a value is NaN, infinite
        or of magnitude 2^60 and more.
        """


class _Matrix(NamedTuple):
    """The facts that all blocks of a matrix share. order: the order of its columns; None where it stays. done: called
    with the number of bytes that were read from the checkpoint."""

    weight: Weight
    format: WeightFormat
    dtype: np.dtype[Any]
    order: NDArray[np.int64] | None
    done: Callable[[int], None]


class _Block(NamedTuple):
    """Rows that are being read. first_panel: the number of the first of their panels in the packed weight. read: a
    future of the array and of the number of bytes that were read from the checkpoint."""

    matrix: _Matrix
    first_panel: int
    read: Future[tuple[SourceArray, int]]


class RoundedPacking:
    """Packs matrices one after the other. It is a context manager: all matrices that were added are packed when it
    ends."""

    def __init__(self, target: BlobTarget, checkpoint: Checkpoint, packer: Packer) -> None:
        self._target, self._checkpoint, self._packer = target, checkpoint, packer
        self._reader = ThreadPoolExecutor(1, "twostroke-read")
        self._waiting: deque[_Block] = deque()
        self._memory = [np.empty(0, np.uint8), np.empty(0, np.uint8)]  # the memory of two blocks that take turns

    def __enter__(self) -> RoundedPacking:
        return self

    def __exit__(self, failed: type[BaseException] | None, *exception: object) -> None:
        try:
            while self._waiting and failed is None:
                self._pack_first()
        finally:
            self._reader.shutdown(cancel_futures=True)

    def add(
        self,
        weight: Weight,
        weight_format: WeightFormat,
        order: NDArray[np.int64] | None,
        done: Callable[[int], None],
    ) -> None:
        """Adds all matrices of a weight, each in blocks of rows. order: the order in which columns are packed; None for
        the order of the checkpoint.

        done: called with the bytes read, by the calling thread. Raises CorruptModel or OSError, also where the packing
        of a weight that was added earlier failed.
        """
        checkpoint, columns, rows = self._checkpoint, weight.columns, weight.rows
        dtypes = {readable_dtype(part.name, checkpoint.info(part.name)) for part in weight.parts}
        dtype = np.dtype(np.uint16 if dtypes == {np.dtype("<u2")} else np.float32)
        step = max(1, BLOCK_BYTES // (dtype.itemsize * columns * PANEL_ROWS)) * PANEL_ROWS
        matrix, source = _Matrix(weight, weight_format, dtype, order, done), _Rows(checkpoint, weight.parts)
        for number in range(weight.matrices):
            for first in range(0, rows, step):
                count, at = min(step, rows - first), number * rows + first
                self._memory.reverse()
                read = self._reader.submit(self._read, matrix, source, at, self._room(count * columns * dtype.itemsize))
                first_panel = number * math.ceil(rows / PANEL_ROWS) + first // PANEL_ROWS
                self._waiting.append(_Block(matrix, first_panel, read))
                if len(self._waiting) > 1:
                    self._pack_first()

    def _room(self, num_bytes: int) -> U8Array:
        """Returns a buffer of `num_bytes` for the rows of the next block. Two buffers take turns, so the block that
        waits to be packed is not overwritten."""
        if self._memory[0].size < num_bytes:
            self._memory[0] = np.empty(num_bytes, np.uint8)
        return self._memory[0][:num_bytes]

    def _read(self, matrix: _Matrix, source: _Rows, first: int, room: U8Array) -> tuple[SourceArray, int]:
        """Reads a block of rows. The reading thread calls it. Returns the rows and the bytes read."""
        rows: Any = room.view(matrix.dtype).reshape(-1, matrix.weight.columns)
        read_bytes = source.read(first, rows)
        return (rows if matrix.order is None else np.ascontiguousarray(rows[:, matrix.order])), read_bytes

    def _pack_first(self) -> None:
        (weight, chosen, _, _, done), first_panel, read = self._waiting.popleft()
        rows, read_bytes = read.result()
        panels, columns = math.ceil(len(rows) / PANEL_ROWS), weight.columns
        panel_bytes, panel_scale_bytes = chosen.data_bytes(1, columns), chosen.scale_bytes(1, columns)
        data = self._target.area(weight.key + ".data", first_panel * panel_bytes, panels * panel_bytes)
        scales = None
        if panel_scale_bytes:
            scales_key, first_byte = weight.key + ".scales", first_panel * panel_scale_bytes
            scales = self._target.area(scales_key, first_byte, panels * panel_scale_bytes)
        try:
            rows = rows if weight.lost_by is None else lost_rows(rows, weight.lost_by, self._packer)
            self._packer.pack(rows, chosen, data, None if scales is None else scales.view(np.uint16))
        except CorruptModel:
            raise unusable(weight.parts[0].name) from None
        if scales is not None:
            self._target.put(scales_key, first_byte, scales)
        self._target.put(weight.key + ".data", first_panel * panel_bytes, data)
        done(read_bytes)


class _Rows:
    """Reads the rows of several tensors, one tensor after the other. A tensor (or matrix of a stack) whose rows are
    transposed or in another order is read whole. It is then kept until the next such tensor."""

    def __init__(self, checkpoint: Checkpoint, parts: tuple[Tensor, ...]) -> None:
        self._checkpoint, self._parts = checkpoint, parts
        self._held_part: Tensor | None = None
        self._held: Any = None

    def read(self, first: int, out: SourceArray) -> int:
        """Reads rows [first, first + len(out)) into `out`. Returns the bytes read."""
        done, part_first, read_bytes = 0, 0, 0
        for part in self._parts:
            part_end = part_first + part.length
            begin, end = max(first + done, part_first), min(first + len(out), part_end)
            if begin < end:
                slot = out[done : done + end - begin]
                shift = (part.rows[0] if part.rows else 0) - part_first
                self._read_part(part, begin + shift, slot)
                info = self._checkpoint.info(part.name)
                of_part = info.num_bytes if part.matrix is None else info.num_bytes // info.rows
                read_bytes += (end - begin) * of_part // max(1, part.length)
                done += end - begin
            part_first = part_end
        return read_bytes

    def _read_part(self, part: Tensor, first: int, slot: SourceArray) -> None:
        bits_to_f32 = self._checkpoint.info(part.name).dtype == "BF16" and slot.dtype == np.float32
        if part.transposed or part.order is not None or part.matrix is not None:
            rows = self._whole(part)[first : first + len(slot)]
            slot[...] = as_f32(rows) if bits_to_f32 else rows
            return
        slot = slot.reshape(len(slot), *part.shape[1:])  # the kernel of a convolution is read as rows
        if bits_to_f32:
            slot[...] = as_f32(self._checkpoint.read_rows(part.name, first, len(slot)))
        else:
            self._checkpoint.read_rows(part.name, first, len(slot), out=slot)

    def _whole(self, part: Tensor) -> Any:
        """Returns all rows of a part, as (rows, columns) and in the order that the part asks for."""
        if self._held_part != part:
            if part.matrix is not None:
                stored = self._checkpoint.read_rows(part.name, part.matrix, 1)[0]
            elif part.columns is not None:
                first, end = part.columns
                stored = self._checkpoint.read_rows(part.name, first, end - first)
            else:
                stored = self._checkpoint.read(part.name)
            rows = stored.T if part.transposed else stored
            self._held = np.ascontiguousarray(rows if part.order is None else rows[list(part.order.index)])
            self._held_part = part
        return self._held


def lost_rows(rows: SourceArray, weight_format: WeightFormat, packer: Packer) -> F32Array:
    """Returns the rows minus their values after packing in a format with scales, (rows, columns) float32. Each row of
    the result depends on its own row alone. Raises CorruptModel as the packer does."""
    count, columns = rows.shape
    data = aligned_bytes(weight_format.data_bytes(count, columns))
    scales = aligned_bytes(weight_format.scale_bytes(count, columns)).view(np.uint16)
    packer.pack(rows, weight_format, data, scales)
    kept = unpack(PackedWeight(weight_format, count, columns, data, scales))
    np.subtract(as_f32(rows), kept, out=kept)
    return kept


def unusable(name: str) -> CorruptModel:
    """Returns the error for a tensor with a value that is NaN, infinite or beyond LIMIT. name: the tensor's name."""
    return CorruptModel(
        f"Tensor {name} (or one fused with it) holds values that are NaN, infinite or beyond 2^60.",
        why="One of them in the weights makes every answer NaN.",
        fix="Download the model again; if that does not help, the checkpoint itself is broken.",
    )
