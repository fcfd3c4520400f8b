"""Makes the numbers of a tensor in a GGUF file from the checkpoint's tensors ("ours"). The reader of GGUF files changes
numbers and orders of rows; this module undoes these changes in advance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twostroke.ops.operands import F32Array, I32Array
from twostroke.quantize.gguf.names import StoredPlan
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.families.family import Config, Family, Shape
from twostroke.weights.gguf.naming import order_of_pairs
from twostroke.weights.tensor_source import as_f32

PIECE_ELEMENTS = 1 << 22
"""How many elements of a tensor are read and converted at a time, unless its rows are moved; then the whole tensor is
read. The search for scales holds a few copies of these elements."""


def stored_values(plan: StoredPlan, family: Family, config: Config, checkpoint: Checkpoint) -> Iterator[F32Array]:
    """Yields the rows of a tensor of the file in order, (rows, columns) each time. config: the config that a reader of
    the file makes of its keys. It is needed because the order of rows depends on it."""
    if plan.joined is not None:
        yield from _of_joined(plan, config, checkpoint)
        return
    rows = plan.shape[0] if len(plan.ours) == 1 else plan.shape[1]
    order = order_of_pairs(family, config, plan.stem, rows)
    order = order if order is not None or plan.place.order is None else plan.place.order(config, rows)
    columns = None if plan.place.columns is None else plan.place.columns(config, plan.shape[-1])
    moved = order is not None or columns is not None or plan.turned or plan.less_one or plan.place.negated_exp
    for name in plan.ours:
        shape = checkpoint.info(name).shape
        if moved or len(shape) != 2:
            yield _moved(plan, as_f32(checkpoint.read(name)), order, columns)
            continue
        each = max(1, PIECE_ELEMENTS // shape[1])
        for first in range(0, shape[0], each):
            yield as_f32(checkpoint.read_rows(name, first, min(each, shape[0] - first)))


def _moved(plan: StoredPlan, values: F32Array, order: I32Array | None, columns: I32Array | None) -> F32Array:
    values = values.T if plan.turned else values
    if plan.place.negated_exp:
        values = (-np.exp(values.astype(np.float64))).astype(np.float32)
    if plan.less_one:
        values = values + np.float32(1)
    values = _back(values, order)
    if columns is not None:
        values = _back(np.ascontiguousarray(values.T), columns).T
    shape = plan.shape if len(plan.ours) == 1 else plan.shape[1:]
    return values.reshape(-1, shape[-1])


def _back(values: F32Array, order: I32Array | None) -> F32Array:
    """Moves rows of the checkpoint to their places in the file. order: for each row of the checkpoint, its index in the
    file; None where both have the same order."""
    if order is None:
        return values
    stored = np.empty_like(values)
    stored[order] = values
    return stored


def _of_joined(plan: StoredPlan, config: Config, checkpoint: Checkpoint) -> Iterator[F32Array]:
    """Yields the rows of a tensor of the file that is one part of a joined tensor of the checkpoint, such as q of a
    joined qkv. If the joined tensor is a stack (matrices, rows, columns), it is read matrix by matrix."""
    joined = plan.joined
    if joined is None:
        raise ValueError(f"{plan.name} is no piece")
    name, pieces = plan.ours[0], joined.pieces
    shape = checkpoint.info(name).shape
    if joined.name.endswith("bias"):
        whole = as_f32(checkpoint.read(name)).reshape(-1)
        yield _back(whole, _order(plan, config)).reshape(len(pieces), *plan.shape)[plan.piece]
        return
    matrices = shape[0] if len(shape) == 3 else 1
    stored_from = _inverse(plan, config, matrices)
    each = sum(plan.rows)
    first = matrices * sum(plan.rows[: plan.piece])
    for matrix in range(matrices):
        values = as_f32(checkpoint.read_rows(name, matrix, 1))[0] if len(shape) == 3 else as_f32(checkpoint.read(name))
        values = values.T if joined.turned else values
        own = plan.rows[plan.piece]
        begin = first + matrix * own
        rows = values[stored_from[begin : begin + own] - matrix * each]
        if pieces[plan.piece] in joined.turned_pieces:
            heads, columns, dim = plan.shape
            rows = rows.reshape(heads, dim, columns).swapaxes(1, 2).reshape(-1, dim)
        yield np.ascontiguousarray(rows)


def _order(plan: StoredPlan, config: Config) -> I32Array | None:
    """A joined tensor of the checkpoint is several tensors in the file. Returns, for each of its rows, the row's index
    in these tensors, laid one after the other. None where the order is the same."""
    if plan.joined is None or plan.joined.order is None:
        return None
    return plan.joined.order(config, _shapes(plan))


def _inverse(plan: StoredPlan, config: Config, matrices: int) -> I32Array:
    order = _order(plan, config)
    total = matrices * sum(plan.rows)
    if order is None:
        return np.arange(total, dtype=np.int32)
    found = np.empty(total, np.int32)
    found[order] = np.arange(total, dtype=np.int32)
    return found


def _shapes(plan: StoredPlan) -> tuple[Shape, ...]:
    """Returns the shapes, in the file, of all parts of a joined tensor of the checkpoint, of which this tensor is one
    part."""
    joined, shape, found = plan.joined, plan.shape, []
    if joined is None:
        return ()
    turned_here = joined.pieces[plan.piece] in joined.turned_pieces
    plain = (shape[0], shape[2], shape[1]) if turned_here else shape
    bias = joined.name.endswith("bias")
    for piece, rows in zip(joined.pieces, plan.rows, strict=True):
        if bias:
            found.append((*shape[:-1], rows))
        elif joined.turned_pieces:
            sizes = (plain[0], rows // plain[0], plain[2])
            found.append((sizes[0], sizes[2], sizes[1]) if piece in joined.turned_pieces else sizes)
        else:
            found.append((*plain[:-2], rows, plain[-1]))
    return tuple(found)
