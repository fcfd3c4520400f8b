"""Ops that keep states at every level: NaN stays in its sequence, and operands that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.native import random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import AttentionBatch, F32Array
from twostroke.types.errors import BackendError


def batch_of(counts: list[int]) -> AttentionBatch:
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return AttentionBatch(starts, np.diff(starts).astype(np.int32), np.zeros((len(counts), 0), np.int32))


def heads_of(x: F32Array, heads: int) -> F32Array:
    """(T, heads, rest) of rows that may lie apart."""
    return np.lib.stride_tricks.as_strided(
        x, (len(x), heads, x.shape[1] // heads), (x.strides[0], 4 * x.shape[1] // heads, 4), writeable=x.flags.writeable
    )


def test_steps_without_end_or_nan_stay_in_their_sequence(ops: CpuOps) -> None:
    """A dt of NaN in one head makes that head's rows NaN from there on, in its sequence alone."""
    x, b = heads_of(np.array(random_rows(6, 32)), 2), heads_of(random_rows(6, 4), 1)
    dt, vector = np.array(random_rows(6, 2)), np.full(2, -0.5, np.float32)
    dt[1, 0] = np.nan
    kept, out = np.zeros((2, 128), np.float32), np.empty((6, 2, 16), np.float32)
    ops.ssd_scan(
        out, x, b, b, dt, vector, vector, vector, kept, np.array([0, 1], np.int32), batch_of([3, 3]), 0.0, np.inf
    )
    assert np.isnan(out[1:3, 0]).all() and not np.isnan(out[0]).any() and not np.isnan(out[:, 1]).any()
    assert not np.isnan(out[3:]).any()


@pytest.mark.parametrize(
    ("slots", "counts", "elements"),
    [([0, 5], [2, 2], 24), ([0, -1], [2, 2], 24), ([0], [2, 2], 24), ([0, 1], [2, 1], 24), ([0, 1], [2, 2], 23)],
)
def test_states_that_do_not_fit_are_refused_and_nothing_is_written(
    ops: CpuOps, slots: list[int], counts: list[int], elements: int
) -> None:
    x, out = random_rows(4, 8), np.full((4, 8), 7, np.float32)
    state = np.full((5, elements), 7, np.float32)
    with pytest.raises(BackendError):
        ops.short_conv(out, x, np.ones(32, np.float32), None, state, np.array(slots, np.int32), batch_of(counts), 0)
    with pytest.raises(BackendError):
        heads, ones = heads_of(np.array(x), 1), np.ones(1, np.float32)
        three, dt = heads_of(random_rows(4, 3), 1), random_rows(4, 1)
        ops.ssd_scan(
            heads_of(out, 1), heads, three, three, dt, ones, ones, ones, state, np.array(slots, np.int32),
            batch_of(counts), 0.0, 1.0,
        )  # fmt: skip
    assert np.all(out == 7) and np.all(state == 7)
