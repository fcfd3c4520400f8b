"""Native functions for sampling. They compute the weights of a row of logits (unnormalized probabilities as whole
numbers), and the figures that samplers such as typical-p need."""

from __future__ import annotations

import numpy as np

from twostroke.backends.cpu.library import load_library
from twostroke.ops.attention.token_weights import (
    EXP2_COEFFICIENTS,
    MOST_APART,
    F64Array,
    NearScore,
    WeightArray,
    exponent_scale,
    exponent_sum_of,
    spread_of,
)
from twostroke.ops.operands import F32Array


class NativeWeights:
    """Computes the sampling weights of a row of logits, in the thread that calls it. A result is valid until the next
    call of the same method. Satisfies Weigh."""

    def __init__(self, level: str) -> None:
        self._library = load_library(level)
        self._coefficients = np.array(EXP2_COEFFICIENTS)
        self._sums = np.empty(4, np.uint64)
        self._weights: WeightArray = np.empty(0, np.uint64)
        self._numbers: F64Array = np.empty(0)
        self._scores: F32Array = np.empty(0, np.float32)

    def __call__(self, logits: F32Array, temperature: float) -> WeightArray:
        row = np.ascontiguousarray(logits, np.float32)
        if len(self._weights) != len(row):
            self._weights = np.empty(len(row), np.uint64)
        peak, scale, series = float(row.max()), exponent_scale(temperature), self._coefficients
        _check(
            self._library.ts_weigh(
                row.ctypes.data, len(row), peak, scale, series.ctypes.data, len(series), self._weights.ctypes.data
            )
        )
        return self._weights

    def exponent_sum(self, logits: F32Array, weights: WeightArray, temperature: float) -> int:
        row, own = np.ascontiguousarray(logits, np.float32), np.ascontiguousarray(weights, np.uint64)
        peak, sums = float(row.max()), self._sums
        _check(
            self._library.ts_exponent_sums(
                row.ctypes.data, own.ctypes.data, len(row), peak, exponent_scale(temperature), sums.ctypes.data
            )
        )
        return exponent_sum_of(*sums[:2].tolist())

    def nearness(self, logits: F32Array, temperature: float, mean: float) -> F64Array:
        row = np.ascontiguousarray(logits, np.float32)
        peak, out = float(row.max()), self._room(len(row))
        _check(
            self._library.ts_nearness(
                row.ctypes.data, len(row), peak, exponent_scale(temperature), mean, out.ctypes.data
            )
        )
        return out

    def spread(self, logits: F32Array) -> tuple[int, int]:
        row, sums = np.ascontiguousarray(logits, np.float32), self._sums
        _check(self._library.ts_spread_sums(row.ctypes.data, len(row), float(row.max()), MOST_APART, sums.ctypes.data))
        return spread_of(*sums.tolist())

    def near(self, weights: WeightArray, total: int, score: NearScore) -> tuple[F64Array, F32Array]:
        own, probabilities = np.ascontiguousarray(weights, np.uint64), self._room(len(weights))
        if len(self._scores) != len(own):
            self._scores = np.empty(len(own), np.float32)
        out = probabilities.ctypes.data, self._scores.ctypes.data
        _check(self._library.ts_score_near(own.ctypes.data, len(own), float(total), *score, *out))
        return probabilities, self._scores

    def _room(self, count: int) -> F64Array:
        if len(self._numbers) != count:
            self._numbers = np.empty(count)
        return self._numbers


def _check(status: int) -> None:
    if status:
        raise ValueError(f"The native code refused a row of logits: status {status}")
