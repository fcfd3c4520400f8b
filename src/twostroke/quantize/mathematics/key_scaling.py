"""Finds one factor for each channel of a head's keys, so that fewer bits of K change the scores less.

Where a head's K has one scale for each position, the largest channel decides the scale, and every channel has an error
in proportion to it. With K's channel c divided by f_c and the query's multiplied by it, the expected square of a
score's error is

    mean((max_c |k_c| / f_c / steps)^2) * sum_c mean(q_c^2) f_c^2          K is rounded
    + mean((max_c |q_c| f_c / 127)^2) * sum_c mean(k_c^2) / f_c^2          attention rounds queries to bytes

up to one constant. steps is the largest code of K's format, 127 is that of queries. f_c is the power of two nearest to
(largest |k_c|)^alpha, up to one factor for all channels. Several values of alpha are tried, and the one with the
smallest error is taken. The search is that of AWQ (Lin et al. 2023), on K in place of weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.mathematics.moments import F32Array

QUERY_STEPS = 127
ALPHAS = tuple(np.arange(0, 1.01, 0.125).tolist())
SMALLEST = 2.0**-40
MOST_EXPONENT = 24


class KeyChoice(NamedTuple):
    """The factors for the channels of one KV head. exponents: (head_dim,), the factors' exponents of two. error: the
    expected squared error of scores, divided by the error without factors."""

    exponents: NDArray[np.int64]
    error: float


def choose_exponents(keys: F32Array, queries: F32Array, steps: int) -> KeyChoice:
    """Chooses the exponents e of a KV head's factors 2^e, by which each channel of K is divided before it is rounded.
    keys: (T, head_dim) of the head. queries: (N, head_dim) of its query heads. steps: the format's largest code, 127 or
    7."""
    sizes = np.maximum(np.abs(keys).max(axis=0), SMALLEST).astype(np.float64)
    logs = np.log2(sizes)
    logs -= logs.mean()
    found = [np.clip(np.rint(alpha * logs), -MOST_EXPONENT, MOST_EXPONENT).astype(np.int64) for alpha in ALPHAS]
    errors = [_error(keys, queries, np.exp2(each), steps) for each in found]
    best = int(np.argmin(errors))
    return KeyChoice(found[best], errors[best] / max(errors[0], SMALLEST**2))


def _error(keys: F32Array, queries: F32Array, factors: NDArray[np.float64], steps: int) -> float:
    k, q = keys / factors, queries * factors
    key_step = np.square(np.abs(k).max(axis=1) / steps).mean()
    query_step = np.square(np.abs(q).max(axis=1) / QUERY_STEPS).mean()
    return float(key_step * np.square(q).mean(axis=0).sum() + query_step * np.square(k).mean(axis=0).sum())
