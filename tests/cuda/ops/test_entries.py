"""Ops over pages of entries in the emulator: the largest entries, and the refused arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cuda.emulator.fake import controls
from tests.cuda.ops.operands import run_on
from tests.cuda.ops.same_bits import same_bits
from tests.ops.attention.test_entries_native import filled
from tests.ops.native import batch_of, normal
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

CONTEXTS, COUNTS = (1, 40, 150, 600), (1, 1, 7, 2)
"""The positions of the sequences that `filled` makes, and their rows in the step."""
STEP_ROWS = sum(COUNTS)


def test_entries_of_the_largest_size(cpu: CpuOps, gpu: CudaDevice) -> None:
    layer, table = filled(KVKind.INT8, 2048, 24)
    batch, q = batch_of(CONTEXTS, COUNTS, table), normal(STEP_ROWS, 1, 2048)
    operands = (np.zeros_like(q), q, None, None, layer, batch, normal(1, seed=5), 0.02, 24, 0)
    same_bits(cpu, gpu, "entry_attention", operands, tolerance=3e-4)


def test_what_does_not_fit_is_refused(gpu: CudaDevice) -> None:
    """As on the CPU, the call is refused before anything runs."""
    layer, table = filled(KVKind.F32, 20, 4)
    batch, q, out = batch_of((40,), (1,), table[1:2]), normal(1, 2, 20), np.empty((1, 2, 20), np.float32)
    gone = AttentionBatch(batch.row_starts, batch.context_tokens, np.full_like(batch.page_table, -1))
    wide, sinks, launches = np.empty((1, 2, 21), np.float32), normal(2), controls().fake_launches()
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("entry_attention", (wide, q, None, None, layer, batch, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, wide, layer, batch, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, None, layer, gone, sinks, 0.1, 4, 0)),
        ("entry_attention", (out, q, None, None, layer, batch, sinks, 0.1, 4, -1)),
        ("entry_select", (np.empty((1, 3), np.float32), q, normal(1, 2), layer, gone, 4)),
        ("entry_write", (layer, normal(1, 20), np.array([-1], np.int32), np.array([3], np.int32), 4)),
        ("route_by_token", (normal(1, 4), normal(1, 9), np.array([5], np.int32), normal(10), 0, 0.0, 1.0)),
    ]
    for name, operands in calls:
        with pytest.raises(BackendError, match=f"{name} was refused by the cuda backend"):
            run_on(gpu, name, *operands)
    assert controls().fake_launches() == launches


