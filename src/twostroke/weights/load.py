"""Packs weights while they are loaded: rows are read in bounded blocks, packed panel by panel, and never held twice.

Peak memory is the packed weights, one block of source rows and one block of packed panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from twostroke.ops.operands import F32Array, U8Array, U16Array, bf16_to_f32
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Tensor, Vector, VectorForm, Weight
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import PANEL_ROWS, WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.blobs import BlobTarget, MemoryTarget, plan_blobs, weights_from_blobs
from twostroke.weights.stored_packing import BlockPacker, StoredPacking
from twostroke.weights.tensor_source import SourceArray, readable_dtype
from twostroke.weights.tensors import check_tensors

BLOCK_BYTES = 16 << 20
"""The bytes of source rows that are read at a time: enough panels for all threads of a packer, and little next to a
model."""

SHORTEST = 1e-12
"""The least length by which a row of a matrix is divided."""

LIMIT = 2.0**60
LIMIT_BF16_BITS = 0x5D80
"""The bits of 2^60 in bf16. A larger number has larger bits, so bits can be compared."""

Progress = Callable[[int, int, str], None]
"""progress(done_bytes, total_bytes, tensor_name), in bytes of the checkpoint."""


class Packer(BlockPacker, Protocol):
    """Quantizes and lays out rows. A panel's bytes depend on its rows alone: blocks of panels may be packed separately.
    """

    def pack(self, source: SourceArray, weight_format: WeightFormat, data: U8Array, scales: U16Array | None) -> None:
        """Packs source, (rows, columns) C-contiguous float32 or uint16 bf16 bits, into all of `data` and `scales`.

        data: (weight_format.data_bytes(rows, columns),), 64-byte aligned. scales: (scale_bytes / 2,), None for floats.
        Missing rows of the last panel and missing columns are zeros.
        """


def load_weights(
    checkpoint: Checkpoint, model: Model, format_for: FormatChoice, packer: Packer, progress: Progress | None = None
) -> ModelWeights:
    """Reads, checks and packs a whole checkpoint into memory. Raises CorruptModel or UnsupportedModel."""
    checkpoint = check_tensors(checkpoint, model)
    target = MemoryTarget(plan_blobs(model, format_for))
    pack_into(target, checkpoint, model, format_for, packer, progress)
    return weights_from_blobs(model, format_for, target.blobs.__getitem__)


def pack_into(
    target: BlobTarget,
    checkpoint: Checkpoint,
    model: Model,
    format_for: FormatChoice,
    packer: Packer,
    progress: Progress | None = None,
) -> None:
    """Fills every blob of `plan_blobs` from a checkpoint that `check_tensors` returned.

    Raises CorruptModel, UnsupportedModel, or the errors of `target` (OSError).
    """
    program = model.program
    sources: tuple[Weight | Vector, ...] = (*program.weights, *program.vectors)
    meter = _Meter(progress, sum(_source_bytes(checkpoint, source) for source in sources))
    with StoredPacking(target, checkpoint, packer) as stored:
        for weight in in_order_of_file(program.weights, checkpoint):
            if weight.bias:
                _copy_vector(target, weight.key + ".bias", checkpoint, Vector(weight.key, weight.all_rows, weight.bias))
            chosen = format_for(weight)
            if chosen.keeps_codes:
                stored.add(weight, chosen, partial(meter.add, name=weight.parts[0].name))
            else:
                _pack_matrix(target, weight, checkpoint, chosen, packer, meter)
    for vector in program.vectors:
        _copy_vector(target, vector.key, checkpoint, vector)
        meter.add(_source_bytes(checkpoint, vector), vector.parts[0].name if vector.parts else vector.key)


def in_order_of_file(weights: Sequence[Weight], checkpoint: Checkpoint) -> list[Weight]:
    """Returns the weights in the order of their file, so that a disk reads forwards. The packed bytes do not depend on
    the order. Several files hold layers one after the other, as the program has them, so their order is not changed."""
    if len(checkpoint.shards) != 1:
        return list(weights)
    return sorted(weights, key=lambda weight: min(checkpoint.info(part.name).offset for part in weight.parts))


class _Meter:
    """Adds up the bytes that were read."""

    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, num_bytes: int, name: str) -> None:
        self._done_bytes += num_bytes
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes, name)


def _source_bytes(checkpoint: Checkpoint, source: Weight | Vector) -> int:
    infos = [(part, checkpoint.info(part.name)) for part in source.parts]
    return sum(info.num_bytes if part.matrix is None else info.num_bytes // info.rows for part, info in infos)


def _copy_vector(target: BlobTarget, key: str, checkpoint: Checkpoint, vector: Vector) -> None:
    values = np.array(vector.numbers, np.float32)
    if vector.form.is_made:
        values = MADE[vector.form](checkpoint, vector)
    elif vector.parts:
        values = np.concatenate([_numbers_of(checkpoint, part) for part in vector.parts])
        _check_usable(values, vector.parts[0].name)
    if vector.form is VectorForm.NEGATED_EXP:
        if not all(checkpoint.holds_negated_exp(part.name) for part in vector.parts):
            values = -np.exp(values.astype(np.float64)).astype(np.float32)  # float32 differs between processors
    elif vector.form is VectorForm.REST:
        values = np.float32(1) - values
    elif vector.form is VectorForm.DIFFERENCE:
        a, b, c, d = np.split(values.astype(np.float64), 4)
        values = np.array([np.exp((c * d).sum()) - np.exp((a * b).sum())], np.float32)
    if vector.plus:
        values = values + np.float32(vector.plus)
    area = target.area(key, 0, values.nbytes)
    area[:] = values.view(np.uint8)
    target.put(key, 0, area)


def _product(checkpoint: Checkpoint, vector: Vector) -> F32Array:
    """See VectorForm.PRODUCT. No library for matrices is used: its sums may depend on its number of threads."""
    read = [_numbers_of(checkpoint, part).reshape(part.shape) for part in vector.parts]
    for values, part in zip(read, vector.parts, strict=True):
        _check_usable(values, part.name)
    table, *norm, matrix, bias = read
    if norm:
        apart = table - table.mean(axis=-1, keepdims=True)
        spread = np.square(apart).mean(axis=-1, keepdims=True) + np.float32(vector.numbers[0])
        table = apart / np.sqrt(spread) * norm[0] + norm[1]
    made: F32Array = np.einsum("nk,bk->nb", matrix, table) + bias[:, None]
    return made.reshape(-1)


def _inverse_lengths(checkpoint: Checkpoint, vector: Vector) -> F32Array:
    """See VectorForm.INVERSE_LENGTHS."""
    (part,) = vector.parts
    step = max(1, BLOCK_BYTES // (4 * part.shape[1]))
    found = []
    for first in range(0, part.shape[0], step):
        block = _as_f32(checkpoint.read_rows(part.name, first, min(step, part.shape[0] - first)))
        lengths = np.sqrt(np.square(block.astype(np.float64)).sum(axis=1))
        found.append((1 / np.maximum(lengths, SHORTEST)).astype(np.float32))
    return np.concatenate(found)


MADE: Mapping[VectorForm, Callable[[Checkpoint, Vector], F32Array]] = {
    VectorForm.PRODUCT: _product,
    VectorForm.INVERSE_LENGTHS: _inverse_lengths,
}
"""The functions that compute the numbers of a vector that no tensor holds."""


def _numbers_of(checkpoint: Checkpoint, part: Tensor) -> F32Array:
    """Returns a tensor, or the selected rows of it, as one row of numbers. transposed: the tensor's first axis changes
    fastest."""
    if part.matrix is not None:
        values = _as_f32(checkpoint.read_rows(part.name, part.matrix, 1))
        values = values.reshape(part.shape[1], -1).T.reshape(-1) if part.transposed else values.reshape(-1)
        values = values if part.order is None else values[list(part.order.index)]
        return values if part.rows is None else values[slice(*part.rows)]
    if part.order is not None:
        values = _as_f32(checkpoint.read(part.name)).reshape(-1)[list(part.order.index)]
        return values if part.rows is None else values[slice(*part.rows)]
    first, end = part.rows or (0, checkpoint.info(part.name).rows)
    values = _as_f32(checkpoint.read_rows(part.name, first, end - first))
    return values.reshape(len(values), -1).T.reshape(-1) if part.transposed else values.reshape(-1)


def _pack_matrix(
    target: BlobTarget,
    weight: Weight,
    checkpoint: Checkpoint,
    weight_format: WeightFormat,
    packer: Packer,
    meter: _Meter,
) -> None:
    """Packs all matrices of a bank one after the other, each in blocks of rows."""
    columns, rows = weight.columns, weight.rows
    dtypes = {readable_dtype(part.name, checkpoint.info(part.name)) for part in weight.parts}
    keep_bits = dtypes == {np.dtype("<u2")}
    element_bytes = 2 if keep_bits else 4
    block_rows = max(1, BLOCK_BYTES // (element_bytes * columns * PANEL_ROWS)) * PANEL_ROWS
    block = np.empty((min(block_rows, rows), columns), np.uint16 if keep_bits else np.float32)
    panel_bytes, panel_scale_bytes = weight_format.data_bytes(1, columns), weight_format.scale_bytes(1, columns)
    source = _Rows(checkpoint, weight.parts)
    order = None if weight.order is None else _numbers_of(checkpoint, weight.order.parts[0]).astype(np.int64)
    for expert in range(weight.matrices):
        expert_panels = expert * math.ceil(rows / PANEL_ROWS)
        for first in range(0, rows, block_rows):
            piece = block[: min(block_rows, rows - first)]
            read_bytes = source.read(expert * rows + first, piece)
            if order is not None:
                piece = np.ascontiguousarray(piece[:, order])
            _check_usable(piece, weight.parts[0].name)
            panels, first_panel = math.ceil(len(piece) / PANEL_ROWS), expert_panels + first // PANEL_ROWS
            data = target.area(weight.key + ".data", first_panel * panel_bytes, panels * panel_bytes)
            scales = None
            if panel_scale_bytes:
                scales_key, first_byte = weight.key + ".scales", first_panel * panel_scale_bytes
                scales = target.area(scales_key, first_byte, panels * panel_scale_bytes)
            packer.pack(piece, weight_format, data, None if scales is None else scales.view(np.uint16))
            if scales is not None:
                target.put(scales_key, first_byte, scales)
            target.put(weight.key + ".data", first_panel * panel_bytes, data)
            meter.add(read_bytes, weight.parts[0].name)


class _Rows:
    """The rows of several tensors, one after the other. Only a tensor (or a matrix of a stack) that is transposed, or
    whose rows are read in another order, is held in memory, one at a time."""

    def __init__(self, checkpoint: Checkpoint, parts: tuple[Tensor, ...]) -> None:
        self._checkpoint, self._parts = checkpoint, parts
        self._held_part: Tensor | None = None
        self._held: Any = None

    def read(self, first: int, out: SourceArray) -> int:
        """Reads rows [first, first + len(out)) into `out`; returns the number of bytes read."""
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
            slot[...] = _as_f32(rows) if bits_to_f32 else rows
            return
        slot = slot.reshape(len(slot), *part.shape[1:])  # the kernel of a convolution, read as rows
        if bits_to_f32:
            slot[...] = _as_f32(self._checkpoint.read_rows(part.name, first, len(slot)))
        else:
            self._checkpoint.read_rows(part.name, first, len(slot), out=slot)

    def _whole(self, part: Tensor) -> Any:
        """Returns the part's rows in the order of the matrix."""
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


def _as_f32(values: SourceArray) -> F32Array:
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)


def _check_usable(values: SourceArray, name: str) -> None:
    """Raises CorruptModel for values that cannot be used. Codecs square weights in float32, so values must be below
    2^60, which also excludes NaN and infinity."""
    if values.dtype == np.uint16:
        usable = int((values.view(np.uint16) & np.uint16(0x7FFF)).max(initial=0)) < LIMIT_BF16_BITS
    else:
        usable = bool(values.max(initial=0) < LIMIT and values.min(initial=0) > -LIMIT)
    if not usable:
        raise CorruptModel(
            f"Tensor {name} (or one fused with it) holds values that are NaN, infinite or beyond 2^60.",
            why="One of them in the weights makes every answer NaN.",
            fix="Download the model again; if that does not help, the checkpoint itself is broken.",
        )
