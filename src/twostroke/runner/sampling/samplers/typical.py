"""Locally typical sampling (Meister et al. 2022): keep the tokens whose surprise is nearest to the expected surprise.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.choose import largest, looks, share_below
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams


class Typical(Struct, frozen=True):
    """Keeps the smallest number of tokens nearest to the expected surprise whose probabilities sum up to more than
    `typical_p`."""

    typical_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> Typical | None:
        """Returns the sampler; None where it is off."""
        return cls(params.typical_p) if params.typical_p < 1.0 else None

    def apply(self, row: SamplerRow) -> None:
        """Keeps the tokens whose surprise (minus the logarithm of the probability) is nearest to the expected surprise,
        until their probabilities sum up to more than `typical_p`."""
        nearness = row.nearness()
        enough = share_below(self.typical_p, row.total)
        for look in looks(0, len(row)):
            nearest = largest(nearness, look)
            count = int(np.searchsorted(np.cumsum(row.weights[nearest]), enough, side="right")) + 1
            if count <= look:
                break
        row.keep(np.sort(nearest[:count]))
