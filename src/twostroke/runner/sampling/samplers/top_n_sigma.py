"""Top-n-sigma (Tang et al. 2024): keep the logits within n standard deviations of the largest one."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling_params import SamplingParams

_FIXED, _HALF = 1 << 16, 12
_MOST_APART = float(1 << 16)
"""The largest difference from the largest logit. Logits further away count as this far away."""


class TopNSigma(Struct, frozen=True):
    """deviations: the n of the rule. The deviation is that of all possible tokens. It is taken before the temperature,
    which would change the deviation and the differences by the same factor. Satisfies `SamplerLink`."""

    deviations: float

    @classmethod
    def of(cls, params: SamplingParams) -> TopNSigma | None:
        """Returns the sampler; None where it is off."""
        return cls(params.top_n_sigma) if params.top_n_sigma > 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        if len(row) > 1:
            apart = np.minimum(float(row.logits.max()) - row.logits.astype(np.float64), _MOST_APART)
            row.keep(apart <= self.deviations * deviation(apart))


def deviation(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Returns the standard deviation of numbers in [0, 2^16]. Its sums are sums of whole numbers, multiples of 1 /
    2^16."""
    fixed = np.rint(values * _FIXED).astype(np.int64)
    high, low = fixed >> _HALF, fixed & ((1 << _HALF) - 1)
    squares = (int((high * high).sum()) << 2 * _HALF) + (int((high * low).sum()) << _HALF + 1) + int((low * low).sum())
    total, count = int(fixed.sum()), len(values)
    return math.sqrt(count * squares - total * total) / (count * _FIXED)
