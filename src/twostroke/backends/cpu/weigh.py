"""Weights of logits for sampling, made by a native function."""

from __future__ import annotations

import numpy as np

from twostroke.backends.cpu.library import load_library
from twostroke.ops.attention.token_weights import EXP2_COEFFICIENTS, WeightArray, exponent_scale
from twostroke.ops.operands import F32Array


class NativeWeights:
    """Satisfies Weigh, for one thread. A result is valid until the next call."""

    def __init__(self, level: str) -> None:
        self._function = load_library(level).ts_weigh
        self._coefficients = np.array(EXP2_COEFFICIENTS)
        self._weights: WeightArray = np.empty(0, np.uint64)

    def __call__(self, logits: F32Array, temperature: float) -> WeightArray:
        row = np.ascontiguousarray(logits, np.float32)
        if len(self._weights) != len(row):
            self._weights = np.empty(len(row), np.uint64)
        peak, scale, series = float(row.max()), exponent_scale(temperature), self._coefficients
        status = self._function(
            row.ctypes.data, len(row), peak, scale, series.ctypes.data, len(series), self._weights.ctypes.data
        )
        if status:
            raise ValueError(f"ts_weigh refused a row of {len(row)} logits: status {status}")
        return self._weights
