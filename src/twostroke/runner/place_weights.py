"""Copies a model's packed weights to a device, with the bytes that they have in the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from twostroke.ops.device_memory import DeviceMemory
from twostroke.ops.operands import PackedWeight
from twostroke.weights.loaded import ModelWeights


def placed(weights: ModelWeights, device: DeviceMemory) -> ModelWeights:
    """Returns the weights on the device. Weights that share memory on the host share it on the device too. Raises
    OutOfMemory."""
    known: dict[tuple[int, int], NDArray[Any]] = {}

    def put(array: Any) -> Any:
        if array is None:
            return None
        key = (int(array.ctypes.data), int(array.nbytes))
        if key not in known:
            known[key] = device.put(array)
        return known[key]

    matrices: dict[str, PackedWeight] = {
        key: replace(weight, data=put(weight.data), scales=put(weight.scales), bias=put(weight.bias))
        for key, weight in weights.matrices.items()
    }
    return ModelWeights(matrices, {key: put(vector) for key, vector in weights.vectors.items()})
