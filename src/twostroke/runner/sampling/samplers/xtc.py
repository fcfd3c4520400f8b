"""XTC, "exclude top choices": in some rows, all likely tokens are left out except the least likely of them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.choose import largest
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams

_MOST_THRESHOLD = 0.5
"""The largest threshold with an effect: two tokens cannot both have a higher probability."""


class Xtc(Struct, frozen=True):
    """The sampler XTC. probability: the probability with which it acts on a row. threshold: the least probability of a
    likely token. Satisfies `SamplerLink`."""

    probability: float
    threshold: float

    @classmethod
    def of(cls, params: SamplingParams) -> Xtc | None:
        """Returns the sampler; None where it is off, or can never act."""
        acts = params.xtc_probability > 0.0 and params.xtc_threshold <= _MOST_THRESHOLD
        return cls(params.xtc_probability, params.xtc_threshold) if acts else None

    def apply(self, row: SamplerRow) -> None:
        if not row.is_rare(self.probability):
            return
        likely = row.at_least(self.threshold)
        likely = likely[row.weights[likely] > 0]
        if len(likely) < 2:
            return
        row.leave_out(np.sort(likely[largest(row.logits[likely], len(likely))[:-1]]))
