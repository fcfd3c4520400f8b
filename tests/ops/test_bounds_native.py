"""Rows between two bounds and rows less a row, at every level: the bits of their references."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, guarded, random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.rows import clip_rows, shift_columns
from twostroke.types.errors import BackendError

SHAPES = [(0, 8), (1, 1), (3, 15), (19, 200)]
BOUNDS = [(-0.5, 0.25), (0.0, 0.0), (-np.inf, 0.5), (-np.inf, np.inf)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_held_between_bounds(level: str, shape: tuple[int, int], bounds: tuple[float, float]) -> None:
    x, both = random_rows(*shape).copy(), np.array(bounds, np.float32)
    if shape[0] > 1:
        x[1, :3] = np.nan, np.inf, -np.inf
    before, (out, room), expected = x.copy(), guarded(*shape), np.empty(shape, np.float32)
    with closing(CpuOps(level, 2)) as ops:
        ops.clip_rows(out, x, both)
        clip_rows.reference(expected, x, both)
        check_guard(out, room)
        assert np.array_equal(out, expected, equal_nan=True) and np.array_equal(x, before, equal_nan=True)
        with pytest.raises(BackendError, match="clip_rows"):
            ops.clip_rows(out, x, np.zeros(3, np.float32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_a_number_of_each_column_is_subtracted(level: str, shape: tuple[int, int]) -> None:
    x, weight = random_rows(*shape).copy(), random_rows(1, shape[1])[0].copy()
    out, room = guarded(*shape)
    out[...] = x
    with closing(CpuOps(level, 2)) as ops:
        ops.shift_columns(out, weight)
        shift_columns.reference(x, weight)
        check_guard(out, room)
        assert np.array_equal(out, x)
        with pytest.raises(BackendError, match="shift_columns"):
            ops.shift_columns(out, random_rows(1, shape[1] + 1)[0])
