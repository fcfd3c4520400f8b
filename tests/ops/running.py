"""Runs a case of an op on a backend: whole, some of its rows alone, and cut into steps.

Every array of rows lies in a room of its own. Inputs are inside NaN, and results inside sevens that must stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from tools.gpu.op_cases import OpCase

from twostroke.ops.operands import AttentionBatch, KVLayer
from twostroke.ops.program.op import OperandKind, signature
from twostroke.ops.registry import registry

AROUND = np.float32(7)
ROWS = (OperandKind.VALUE, OperandKind.INDICES)
Run = Callable[..., None]


def row_axis(case: OpCase) -> str:
    """The axis of the rows that an op makes, which most ops call T; empty for an op that makes none."""
    return registry()[case.op].SHAPES.get("out", "").partition(" ")[0]


def results(run: Run, case: OpCase) -> list[np.ndarray]:
    """The operands that the op changes, after it ran on copies. Fails where numbers next to a result were written."""
    fields, rooms = signature(registry()[case.op]), []
    operands: list[Any] = []
    read: list[tuple[np.ndarray, np.ndarray]] = []
    for place, (field, item) in enumerate(zip(fields, case.operands, strict=True)):
        if field.kind in (OperandKind.VALUE, OperandKind.STATE) and item is not None:
            written = place in case.changed or field.name in registry()[case.op].SCRATCH
            item, room, inside = placed(item, AROUND if written else np.float32(np.nan))
            if written:
                rooms.append((room, inside))
            else:
                read.append((room, room.copy()))
        elif isinstance(item, KVLayer) and place in case.changed:
            item = replace(item, data=item.data.copy())
        operands.append(item)
    run(*operands)
    for room, inside in rooms:
        assert np.all(room[~inside] == AROUND), f"{case.op} wrote next to a result: {case.words}"
    assert all(np.array_equal(*each, equal_nan=True) for each in read), f"{case.op} changed what it reads: {case.words}"
    return [np.array(operands[place].data if isinstance(operands[place], KVLayer) else operands[place])
            for place in case.changed]  # fmt: skip


def placed(array: np.ndarray, fill: np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A copy whose rows lie apart, the room in which it lies, and which numbers of the room belong to it."""
    rows, rest = array.shape[0], array.shape[1:]
    width = int(np.prod(rest))
    room, inside = np.full((rows + 1, width + 3), fill, np.float32), np.zeros((rows + 1, width + 3), bool)
    inside[:rows, :width] = True
    room[:rows, :width] = array.reshape(rows, width)
    strides = np.empty((1, *rest), np.float32).strides[1:]
    return np.lib.stride_tricks.as_strided(room, array.shape, (room.strides[0], *strides)), room, inside


def reference(case: OpCase) -> list[np.ndarray]:
    """The result of the op's definition for the case."""
    own = [copied(item) if place in case.changed else item for place, item in enumerate(case.operands)]
    scratch = registry()[case.op].SCRATCH
    for place, field in enumerate(signature(registry()[case.op])):
        if field.name in scratch:
            own[place] = own[place].copy()
    with np.errstate(all="ignore"):
        registry()[case.op].reference(*own)
    return [own[place].data if isinstance(own[place], KVLayer) else own[place] for place in case.changed]


def copied(item: Any) -> Any:
    return replace(item, data=item.data.copy()) if isinstance(item, KVLayer) else copy(item)


def same_bits(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Whether the bits are equal, except that any NaN equals any other."""
    return all(np.array_equal(a, b, equal_nan=a.dtype == np.float32) for a, b in zip(found, expected, strict=True))


def near(case: OpCase, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Whether results are within the tolerance of the case. Numbers of experts must be equal."""
    if not case.tolerance:
        return same_bits(found, expected)
    if registry()[case.op].SHAPES.get("out") == "T 2C":
        (ours,), (law,), chosen = found, expected, found[0].shape[1] // 2
        return np.array_equal(ours[:, chosen:], law[:, chosen:]) and close(ours[:, :chosen], law[:, :chosen], case)
    return all(close(a, b, case) for a, b in zip(found, expected, strict=True))


def close(found: np.ndarray, expected: np.ndarray, case: OpCase) -> bool:
    finite = np.abs(expected[np.isfinite(expected)])
    most = case.tolerance * max(1.0, float(finite.max(initial=0)))
    return bool(np.allclose(found, expected, rtol=case.tolerance, atol=most, equal_nan=True))


def with_rows(case: OpCase, rows: slice, batch: AttentionBatch | None = None, slots: slice | None = None) -> OpCase:
    """The case with some of its rows. batch, slots: those of the sequences to which these rows belong."""
    op, axis = registry()[case.op], row_axis(case)
    operands: list[Any] = []
    for field, item in zip(signature(op), case.operands, strict=True):
        if field.kind is OperandKind.SEQUENCES:
            item = batch
        elif slots is not None and field.name == "slots":
            item = item[slots]
        elif item is not None and field.kind in ROWS and op.SHAPES[field.name].split()[0] == axis:
            item = item[rows]
        operands.append(item)
    return replace(case, operands=tuple(operands))


def batch_of(case: OpCase) -> AttentionBatch | None:
    return next((item for item in case.operands if isinstance(item, AttentionBatch)), None)


def part_of(batch: AttentionBatch, sequence: int, first: int, last: int) -> AttentionBatch:
    """Rows `first` to `last` of a sequence, counted among the step's rows of this sequence."""
    begin, end = batch.row_starts[sequence : sequence + 2].tolist()
    context = int(batch.context_tokens[sequence]) - (end - begin - last)
    starts, contexts = np.array([0, last - first], np.int32), np.array([context], np.int32)
    return AttentionBatch(starts, contexts, batch.page_table[sequence : sequence + 1].copy())
