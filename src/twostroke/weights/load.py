"""Packs weights while they are loaded: rows are read in bounded blocks, packed panel by panel, and never held twice.

Peak memory is the packed weights and two blocks of source rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.values import Tensor, Vector, VectorForm, Weight
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.blobs import BlobTarget, MemoryTarget, plan_blobs, weights_from_blobs
from twostroke.weights.packing.rounded_packing import BLOCK_BYTES, Packer, RoundedPacking, unusable
from twostroke.weights.packing.stored_packing import StoredPacking
from twostroke.weights.tensor_source import LIMIT, as_f32
from twostroke.weights.tensors import check_tensors

SHORTEST = 1e-12
"""The least length by which a row of a matrix is divided."""

Progress = Callable[[int, int, str], None]
"""A function that is called with (done_bytes, total_bytes, tensor_name), in bytes of the checkpoint."""


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
    """Packs all weights of a model into the blobs of `target`, which has every blob of `plan_blobs`. checkpoint: the
    result of `check_tensors`. format_for: chooses the format of each weight.

    Raises CorruptModel, UnsupportedModel, or the errors of `target` (OSError).
    """
    program = model.program
    sources: tuple[Weight | Vector, ...] = (*program.weights, *program.vectors)
    meter = _Meter(progress, sum(_source_bytes(checkpoint, source) for source in sources))
    with StoredPacking(target, checkpoint, packer) as stored, RoundedPacking(target, checkpoint, packer) as rounded:
        for weight in in_order_of_file(program.weights, checkpoint):
            if weight.bias:
                _copy_vector(target, weight.key + ".bias", checkpoint, Vector(weight.key, weight.all_rows, weight.bias))
            chosen = format_for(weight)
            done = partial(meter.add, name=weight.parts[0].name)
            if chosen.keeps_codes:
                stored.add(weight, chosen, done)
            else:
                sorting = weight.order
                order = None if sorting is None else _numbers_of(checkpoint, sorting.parts[0]).astype(np.int64)
                rounded.add(weight, chosen, order, done)
    for vector in program.vectors:
        _copy_vector(target, vector.key, checkpoint, vector)
        meter.add(_source_bytes(checkpoint, vector), vector.parts[0].name if vector.parts else vector.key)


def in_order_of_file(weights: Sequence[Weight], checkpoint: Checkpoint) -> list[Weight]:
    """Returns the weights in the order in which a checkpoint of one file has them, so that a disk reads forwards. With
    several files, the order is not changed, because they hold the layers in the program's order. The packed bytes do
    not depend on the order."""
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
            values = -np.exp(values.astype(np.float64)).astype(np.float32)  # float32 results differ by processor
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
    """Returns `matrix @ table.T + bias`, flattened, for a vector whose tensors are table, matrix and bias. If the
    vector also has the tensors of a layer norm, the rows of the table are normed first. No library for matrices is
    used: its sums may depend on its number of threads."""
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
    """Returns 1 / length for each row of the matrix that is the vector's only tensor. Lengths are at least SHORTEST."""
    (part,) = vector.parts
    step = max(1, BLOCK_BYTES // (4 * part.shape[1]))
    found = []
    for first in range(0, part.shape[0], step):
        block = as_f32(checkpoint.read_rows(part.name, first, min(step, part.shape[0] - first)))
        lengths = np.sqrt(np.square(block.astype(np.float64)).sum(axis=1))
        found.append((1 / np.maximum(lengths, SHORTEST)).astype(np.float32))
    return np.concatenate(found)


def _shared_bias(checkpoint: Checkpoint, vector: Vector) -> F32Array:
    """Returns, for a bias of heads with rotary positions, the mean of the rotated bias over many positions; see
    VectorForm.SHARED_BIAS."""
    bias = np.concatenate([_numbers_of(checkpoint, part) for part in vector.parts])
    _check_usable(bias, vector.parts[0].name)
    size, *means = vector.numbers
    heads = bias.astype(np.float64).reshape(-1, int(size))
    cosines, sines = np.array(means, np.float64).reshape(2, -1)
    pairs = len(cosines)
    one, other = heads[:, :pairs].copy(), heads[:, pairs : 2 * pairs].copy()
    heads[:, :pairs] = one * cosines - other * sines
    heads[:, pairs : 2 * pairs] = other * cosines + one * sines
    return heads.astype(np.float32).reshape(-1)


MADE: Mapping[VectorForm, Callable[[Checkpoint, Vector], F32Array]] = {
    VectorForm.PRODUCT: _product,
    VectorForm.INVERSE_LENGTHS: _inverse_lengths,
    VectorForm.SHARED_BIAS: _shared_bias,
}
"""For each form of vector that is computed from tensors, the function that computes its numbers."""


def _numbers_of(checkpoint: Checkpoint, part: Tensor) -> F32Array:
    """Returns the numbers of a tensor, or of the selected rows or matrix of it, flattened row by row. Where the part is
    `transposed`, the tensor is transposed before that."""
    if part.matrix is not None:
        values = as_f32(checkpoint.read_rows(part.name, part.matrix, 1))
        values = values.reshape(part.shape[1], -1).T.reshape(-1) if part.transposed else values.reshape(-1)
        values = values if part.order is None else values[list(part.order.index)]
        return values if part.rows is None else values[slice(*part.rows)]
    if part.order is not None:
        values = as_f32(checkpoint.read(part.name)).reshape(-1)[list(part.order.index)]
        return values if part.rows is None else values[slice(*part.rows)]
    first, end = part.rows or (0, checkpoint.info(part.name).rows)
    values = as_f32(checkpoint.read_rows(part.name, first, end - first))
    return values.reshape(len(values), -1).T.reshape(-1) if part.transposed else values.reshape(-1)


def _check_usable(values: F32Array, name: str) -> None:
    if not (values.max(initial=0) < LIMIT and values.min(initial=0) > -LIMIT):
        raise unusable(name)
