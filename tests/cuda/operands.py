"""Takes the operands of one op to the emulated device, and its result back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cuda.fake import wrong
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable
from twostroke.ops.registry import registry
from twostroke.types.errors import BackendError


class _Inputs:
    """The integers of a step, one after the other in one block of inputs."""

    def __init__(self, device: CudaDevice, num_bytes: int) -> None:
        self.block, self._used = device.inputs(num_bytes), 0

    def put(self, array: np.ndarray) -> np.ndarray:
        part = self.block[self._used : self._used + array.nbytes].view(np.int32).reshape(array.shape)
        part[...] = array
        self._used += -(-array.nbytes // 64) * 64
        return part


def _put(device: CudaDevice, inputs: _Inputs, item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return inputs.put(item) if item.dtype == np.int32 else device.put(item)
    if isinstance(item, PackedWeight):
        scales = None if item.scales is None else device.put(item.scales)
        bias = None if item.bias is None else device.put(item.bias)
        return replace(item, data=device.put(item.data), scales=scales, bias=bias)
    if isinstance(item, KVLayer):
        return replace(item, data=device.put(item.data))
    if isinstance(item, RopeTable):
        return RopeTable(device.put(item.cos), device.put(item.sin))
    if isinstance(item, AttentionBatch):
        return AttentionBatch(*(inputs.put(part) for part in (item.row_starts, item.context_tokens, item.page_table)))
    return item


def run_on(device: CudaDevice, name: str, *operands: Any) -> np.ndarray:
    """The op's first operand after it ran; for kv_write these are the pages. The error includes a fault that the
    emulator found."""
    return changed_on(device, name, operands, (0,))[0]


def changed_on(device: CudaDevice, name: str, operands: Sequence[Any], which: Sequence[int]) -> list[np.ndarray]:
    """These operands after the op ran, as in run_on."""
    with device.lent():
        inputs = _Inputs(device, 1 << 16)
        return _run(device, inputs, name, operands, which)


def _run(
    device: CudaDevice, inputs: _Inputs, name: str, operands: Sequence[Any], which: Sequence[int]
) -> list[np.ndarray]:
    there = [_put(device, inputs, item) for item in operands]
    device.upload(inputs.block, 1 << 16)
    recorder = device.recorder()
    recorder.record(registry()[name], tuple(there))
    device.run(recorder.calls())
    try:
        return [device.get(data_of(there[place])) for place in which]
    except BackendError as error:
        raise AssertionError(f"{error} {wrong()}") from None


def data_of(item: Any) -> Any:
    """The array of an operand that an op changes."""
    return item.data if isinstance(item, KVLayer) else item
