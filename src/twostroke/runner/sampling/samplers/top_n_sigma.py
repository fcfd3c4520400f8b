"""Top-n-sigma (Tang et al. 2024): keep the logits within n standard deviations of the largest one."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.ops.attention.token_weights import MOST_APART
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams


class TopNSigma(Struct, frozen=True):
    """Keeps the tokens whose logits are within `deviations` standard deviations of the largest logit. The standard
    deviation is computed over all possible tokens and before the temperature. The temperature would change both sides
    of the comparison by the same factor. Satisfies `SamplerLink`."""

    deviations: float

    @classmethod
    def of(cls, params: SamplingParams) -> TopNSigma | None:
        """Returns the sampler; None where it is off."""
        return cls(params.top_n_sigma) if params.top_n_sigma > 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        if len(row) > 1:
            least = least_within(float(row.logits.max()), self.deviations * row.deviation())
            row.keep(np.flatnonzero(row.logits >= least))


def least_within(peak: float, bound: float) -> np.float32:
    """Returns the smallest 32-bit number that lies at most `bound` below `peak`. The difference is computed in 64 bits.
    Returns -inf where `bound` is MOST_APART or more."""
    if bound >= MOST_APART:
        return np.float32(-np.inf)
    found = np.float32(peak - bound)
    while peak - float(found) > bound:
        found = np.nextafter(found, np.float32(np.inf))
    while peak - float(below := np.nextafter(found, np.float32(-np.inf))) <= bound:
        found = below
    return found
