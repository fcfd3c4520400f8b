"""Checks that the kernels still compute: one small rms_norm with a known answer, on every thread of the pool."""

from __future__ import annotations

import numpy as np

from twostroke.backends.cpu.ops import CpuOps
from twostroke.types.errors import BackendError

ROWS, WIDTH = 256, 64


def check_kernels(ops: CpuOps) -> None:
    """Runs a small rms_norm with a known answer. Raises BackendError where the kernels refuse the call or give a wrong
    result. It takes microseconds. Only the thread that owns the ops may call it."""
    x = np.full((ROWS, WIDTH), 3.0, np.float32)
    out, weight = np.zeros_like(x), np.full(WIDTH, 2.0, np.float32)
    ops.rms_norm(out, x, weight, 0.0)
    if not np.allclose(out, 2.0, rtol=1e-5):
        raise BackendError("The kernels give wrong numbers.", why="A row of threes has a root mean square of three.")
