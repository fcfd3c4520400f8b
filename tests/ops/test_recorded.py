"""Recorded calls: their operands live as long as they do."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from tests.ops.native import random_rows
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.recorded import Calls
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import linear
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import INT8


def recorded(ops: CpuOps, out: F32Array) -> tuple[Calls, list[weakref.ref[object]]]:
    """A product that has the only references to its input and weight."""
    x, weight = np.ascontiguousarray(random_rows(3, 96)), packed()
    recorder = ops.recorder()
    recorder.linear(out, x, weight)
    return recorder.calls(), [weakref.ref(x), weakref.ref(weight)]


def packed() -> PackedWeight:
    return pack_weight(np.random.default_rng(5).standard_normal((70, 96), dtype=np.float32), INT8)


def test_calls_keep_their_operands_alive_and_no_longer() -> None:
    ops, out = CpuOps(None, 1), np.empty((3, 70), np.float32)
    calls, operands = recorded(ops, out)
    gc.collect()
    assert all(each() is not None for each in operands)
    taken = [np.full(300_000, np.nan, np.float32) for _ in range(8)]  # memory that was given back would be in these
    ops.run(calls)
    expected = np.empty_like(out)
    linear.reference(expected, np.ascontiguousarray(random_rows(3, 96)), packed())
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    del calls, taken
    gc.collect()
    assert all(each() is None for each in operands)
    ops.close()
