"""Takes the operands of one op to the emulated device, and its result back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tools.gpu.compare import INPUT_BYTES, Inputs, there

from tests.cuda.emulator.fake import wrong
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import KVLayer
from twostroke.ops.registry import registry
from twostroke.types.errors import BackendError


def run_on(device: CudaDevice, name: str, *operands: Any) -> np.ndarray:
    """The op's first operand after it ran; for kv_write these are the pages. The error includes a fault that the
    emulator found."""
    return changed_on(device, name, operands, (0,))[0]


def changed_on(device: CudaDevice, name: str, operands: Sequence[Any], which: Sequence[int]) -> list[np.ndarray]:
    """These operands after the op ran, as in run_on."""
    with device.lent():
        return _run(device, Inputs(device), name, operands, which)


def _run(
    device: CudaDevice, inputs: Inputs, name: str, operands: Sequence[Any], which: Sequence[int]
) -> list[np.ndarray]:
    placed = [there(device, inputs, item) for item in operands]
    device.upload(inputs.block, INPUT_BYTES)
    recorder = device.recorder()
    recorder.record(registry()[name], tuple(placed))
    device.run(recorder.calls())
    try:
        return [device.get(data_of(placed[place])) for place in which]
    except BackendError as error:
        raise AssertionError(f"{error} {wrong()}") from None


def data_of(item: Any) -> Any:
    """The array of an operand that an op changes."""
    return item.data if isinstance(item, KVLayer) else item
