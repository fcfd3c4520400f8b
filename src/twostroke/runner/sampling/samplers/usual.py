"""Temperature, top-k, top-p and min-p as links of a chain. Alone they choose what `choose` chooses."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from twostroke.runner.sampling.choose import largest, share_of, top_candidates
from twostroke.runner.sampling.row import BEST_WEIGHT, SamplerRow
from twostroke.types.sampling_params import SamplingParams


class Temperature(Struct, frozen=True):
    """The same temperature for every row."""

    temperature: float

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink."""
        row.warm(self.temperature)


class TopK(Struct, frozen=True):
    """Keep the k likeliest tokens."""

    top_k: int

    @classmethod
    def of(cls, params: SamplingParams) -> TopK | None:
        """None where it is off."""
        return cls(params.top_k) if params.top_k else None

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink."""
        if self.top_k < len(row):
            row.keep(np.sort(largest(row.logits, self.top_k)))


class TopP(Struct, frozen=True):
    """Keep the smallest set of the likeliest tokens that holds this probability."""

    top_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> TopP | None:
        """None where it is off."""
        return cls(params.top_p) if params.top_p < 1.0 else None

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink."""
        row.keep(np.sort(top_candidates(row.logits, row.weights, 0, self.top_p)))


class MinP(Struct, frozen=True):
    """Keep tokens that have at least this share of the likeliest one's probability."""

    min_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> MinP | None:
        """None where it is off."""
        return cls(params.min_p) if params.min_p > 0.0 else None

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink."""
        row.keep(row.weights >= share_of(self.min_p, BEST_WEIGHT))
