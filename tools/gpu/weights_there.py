"""Makes weights that mean nothing on a device: one small upload is copied on the device until it fills a matrix."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import PackedWeight
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.weights.loaded import ModelWeights

PATTERN_BYTES = 1 << 20
SCALE = 0x3C00
"""The bits of 1/128 as bf16. With this scale activations keep their size, about."""


def noise(num_bytes: int) -> np.ndarray:
    """Returns random bytes. Read as bf16, float16 or float32 they are finite and below 2."""
    return np.random.default_rng(1).integers(0, 256, num_bytes, np.uint8) & np.uint8(0xBF)


def filled(device: CudaDevice, num_bytes: int, pattern: np.ndarray) -> Any:
    """Returns (num_bytes,) uint8 on the device, filled with repetitions of the pattern (bytes)."""
    made: Any = device.empty(num_bytes)
    done = min(num_bytes, len(pattern))
    device.write(made[:done], pattern[:done])
    while done < num_bytes:  # twice as much each time
        more = min(done, num_bytes - done)
        device.copy_row(made[done - more : done + more].reshape(2, more), 0, 1)
        done += more
    return made


def any_weights(model: Model, formats: FormatChoice, device: CudaDevice) -> ModelWeights:
    """Returns weights in which each matrix has a place of its own on the device. Raises OutOfMemory."""
    bytes_of = noise(PATTERN_BYTES)
    scales_of = np.full(PATTERN_BYTES // 2, SCALE, np.uint16).view(np.uint8)
    matrices = {}
    for each in model.program.weights:
        kind, count = formats(each), each.matrices
        scales, scale_bytes = None, count * kind.scale_bytes(each.rows, each.columns)
        data = filled(device, count * kind.data_bytes(each.rows, each.columns), bytes_of)
        if scale_bytes:
            scales = filled(device, scale_bytes, scales_of).view(np.uint16)
        matrices[each.key] = PackedWeight(kind, each.rows, each.columns, data, scales, None, each.experts)
    vectors = {each.key: device.put(np.ones(each.length, np.float32)) for each in model.program.vectors}
    return ModelWeights(matrices, cast(dict[str, Any], vectors))
