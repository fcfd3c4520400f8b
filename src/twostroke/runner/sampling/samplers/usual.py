"""Temperature, top-k, top-p and min-p as links of a chain. A chain of these links alone chooses the same token as
`choose`."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.choose import largest, share_of, top_candidates
from twostroke.runner.sampling.row import BEST_WEIGHT, SamplerRow
from twostroke.types.sampling.sampling_params import SamplingParams


class Temperature(Struct, frozen=True):
    """Sets the same temperature for every row. Satisfies `SamplerLink`."""

    temperature: float

    def apply(self, row: SamplerRow) -> None:
        row.warm(self.temperature)


class TopK(Struct, frozen=True):
    """Keeps the k likeliest tokens. Satisfies `SamplerLink`."""

    top_k: int

    @classmethod
    def of(cls, params: SamplingParams) -> TopK | None:
        """Returns the sampler; None where it is off."""
        return cls(params.top_k) if params.top_k else None

    def apply(self, row: SamplerRow) -> None:
        if self.top_k < len(row):
            row.keep(np.sort(largest(row.logits, self.top_k)))


class TopP(Struct, frozen=True):
    """Keeps the smallest set of the likeliest tokens that together have the probability `top_p`.
    Satisfies `SamplerLink`."""

    top_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> TopP | None:
        """Returns the sampler; None where it is off."""
        return cls(params.top_p) if params.top_p < 1.0 else None

    def apply(self, row: SamplerRow) -> None:
        row.keep(np.sort(top_candidates(row.logits, row.weights, 0, self.top_p)))


class MinP(Struct, frozen=True):
    """Keeps tokens that have at least `min_p` times the probability of the likeliest token. Satisfies `SamplerLink`."""

    min_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> MinP | None:
        """Returns the sampler; None where it is off."""
        return cls(params.min_p) if params.min_p > 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        row.keep(np.flatnonzero(row.weights >= share_of(self.min_p, BEST_WEIGHT)))
