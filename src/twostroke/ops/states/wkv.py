"""The parts that the scans of RWKV-6 and RWKV-7 share: the norm of each head's output, and the state of a layer."""

from __future__ import annotations

import numpy as np

from twostroke.ops.program.values import StateCache, Value

MOST_ROWS = 256
"""The largest number of rows of one head's state that kernels have room for."""


def norm_of_heads(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """Returns (x - mean) / sqrt(variance + eps) * weight + bias of each head. x, weight, bias: (H, N)."""
    apart = x - x.mean(axis=-1, keepdims=True)
    normed: np.ndarray = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + eps) * weight + bias
    return normed


def state_of_heads(v: Value) -> StateCache:
    """Makes a state (H, N, N) for the scan of v (T, H, N). Raises ValueError where heads are too large."""
    heads, width = v.shape
    if width > MOST_ROWS:
        raise ValueError(f"heads have {width} numbers, there is room for {MOST_ROWS}")
    return v.trace.state(heads * width * width)
