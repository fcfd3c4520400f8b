"""Checks that the device still computes: one small addition with a known answer."""

from __future__ import annotations

import numpy as np

from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.rows.pointwise import PointStep, Pointwise, program_of
from twostroke.types.errors import BackendError

ROWS, WIDTH = 4, 64


def check_device(device: CudaDevice) -> None:
    """Adds two small arrays on the device. Raises BackendError where the device refuses the addition or gives a wrong
    result. Only the thread that runs steps may call it."""
    with device.lent():
        x = device.put(np.full((ROWS, WIDTH), 3.0, np.float32))
        recorder = device.recorder()
        recorder.record(Pointwise, (x, program_of(PointStep.PLUS_Y), None, x))
        device.run(recorder.calls())
        if not (device.get(x) == 6.0).all():
            raise BackendError("The device gives wrong numbers.", why="Its sums of three and three are not six.")
