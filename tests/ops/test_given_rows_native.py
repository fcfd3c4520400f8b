"""Given rows, at every level: rows without a mark are never read, and joined rows that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import check_guard, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.rows import replace_rows
from twostroke.types.errors import BackendError

SHAPES = [(0, 8), (1, 1), (3, 15), (12, 16), (19, 200)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_marked_rows_are_the_given_ones(ops: CpuOps, shape: tuple[int, int]) -> None:
    marks = np.random.default_rng(1).integers(0, 3, shape[0]).astype(np.int32)
    x, given = random_rows(*shape), random_rows(*shape)[::-1].copy()
    given[marks == 0] = np.nan  # these are never read
    out, room = guarded(*shape)
    ops.replace_rows(out, x, given, marks)
    check_guard(out, room)
    expected = np.empty(shape, np.float32)
    replace_rows.reference(expected, x, given, marks)
    assert np.array_equal(out, expected) and np.isfinite(out).all()
    for added in (out, x.copy()):  # first to another array, then over the rows themselves
        ops.replace_rows(added, x if added is out else added, given, marks, 1)
        assert np.array_equal(added, np.where(marks[:, None] != 0, x + given, x))


def test_operands_that_do_not_fit_are_refused(ops: CpuOps) -> None:
    x = random_rows(6, 4)
    for rows in ([3], [-1]):
        with pytest.raises(BackendError):
            ops.join_rows(np.empty((1, 8), np.float32), x, np.array(rows, np.int32))
    with pytest.raises(BackendError):
        ops.join_rows(np.empty((1, 9), np.float32), x, np.zeros(1, np.int32))
    with pytest.raises(BackendError):
        ops.replace_rows(np.empty((6, 4), np.float32), x, random_rows(5, 4), np.zeros(6, np.int32))
    with pytest.raises(BackendError):
        ops.replace_rows(np.empty((6, 4), np.float32), x, x, np.zeros(5, np.int32))
