"""The lengths of prompts and answers, in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.lab.workload.draws import Draws


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal distribution of lengths around a median, as real traces have. sigma: 0 gives the median each time.
    low_tokens, high_tokens: lengths are clipped to this range."""

    median_tokens: int
    sigma: float = 0.0
    low_tokens: int = 1
    high_tokens: int = 1 << 20

    def draw(self, draws: Draws) -> int:
        """Draws one length, at least 1 token."""
        value = self.median_tokens * (math.exp(self.sigma * draws.normal()) if self.sigma else 1.0)
        return max(1, self.low_tokens, min(self.high_tokens, round(value)))

    def scaled(self, factor: float) -> Lengths:
        """Returns the lengths with all three token counts times the factor, each at least 1."""
        median, low, high = (
            max(1, round(tokens * factor)) for tokens in (self.median_tokens, self.low_tokens, self.high_tokens)
        )
        return Lengths(median, self.sigma, low, high)
