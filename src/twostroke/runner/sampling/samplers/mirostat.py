"""Mirostat 2 (Basu et al. 2021): the surprise of the output is held near a target."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.choose import largest
from twostroke.runner.sampling.row import SamplerRow
from twostroke.types.sampler_fields import MIROSTAT_2
from twostroke.types.sampling_params import SamplingParams
from twostroke.types.spec.portable import powers

_MOST_SURPRISE = 60.0
"""A token with a higher surprise has no weight."""


class Mirostat(Struct, frozen=True):
    """target: bits of surprise. rate: how fast the limit follows. The limit is the memory.

    The limit begins at twice the target. Tokens with a surprise above it are left out. It moves by the rate times what
    the surprise of the chosen token lacks to the target.
    """

    target: float
    rate: float

    @classmethod
    def of(cls, params: SamplingParams) -> Mirostat | None:
        """None where it is off."""
        return cls(params.mirostat_tau, params.mirostat_eta) if params.mirostat == MIROSTAT_2 else None

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink."""
        limit = self._limit(row)
        if limit >= _MOST_SURPRISE:
            return
        kept = row.at_least(powers(2.0, [-limit])[0]) if limit > 0.0 else np.zeros(len(row), np.bool_)
        kept[largest(row.logits, 1)] = True
        row.keep(kept)

    def remember(self, row: SamplerRow, place: int) -> tuple[float, ...]:
        """See RememberingSampler."""
        return (self._limit(row) - self.rate * (row.surprise(place) - self.target),)

    def _limit(self, row: SamplerRow) -> float:
        return row.memory[0] if row.memory else 2.0 * self.target
