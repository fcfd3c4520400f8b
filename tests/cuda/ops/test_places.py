"""placed_attention in the emulator: places that do not exist, and shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from tools.gpu.cases import numbers

from tests.cuda.ops.operands import run_on
from tests.ops.attention.test_attention_native import filled_layer
from tests.ops.native import batch_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

PLACES, REACH = 9, 20
PLACE_OF = np.floor(np.linspace(0, PLACES - 0.01, 2 * REACH + 1)).astype(np.float32)


def test_places_that_are_none_and_shapes_that_do_not_fit(cpu: CpuOps, gpu: CudaDevice) -> None:
    """Places lie on the device, so the kernel computes NaN for rows with a wrong one."""
    layer, pages = filled_layer(KVKind.F32, 2, 16, (4, 40))
    q, out = numbers(4, 2, 16), np.zeros((4, 2, 16), np.float32)
    by_key, whole, part = numbers(4, 2, PLACES), batch_of((4,), (4,), pages[:1]), batch_of((40,), (4,), pages[1:])
    wrong = PLACE_OF + np.float32(PLACES)
    operands = (out, q, layer, whole, 1.0, wrong, None, None, by_key, ALL_AHEAD)
    assert np.isnan(run_on(gpu, "placed_attention", *operands)).all()
    for batch, places in ((part, PLACE_OF), (whole, PLACE_OF[:2])):
        with pytest.raises(BackendError):
            run_on(gpu, "placed_attention", out, q, layer, batch, 1.0, places, None, None, by_key, ALL_AHEAD)
    with pytest.raises(BackendError):
        run_on(gpu, "place_scores", numbers(4, 2, 3), q, numbers(7))
