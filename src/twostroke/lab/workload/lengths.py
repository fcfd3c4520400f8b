"""How long prompts and answers are, in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twostroke.lab.workload.draws import Draws


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal around a median, as real traces are: sigma 0 gives the median each time; nothing beyond the ends."""

    median_tokens: int
    sigma: float = 0.0
    low_tokens: int = 1
    high_tokens: int = 1 << 20

    def draw(self, draws: Draws) -> int:
        """One length, at least 1 token."""
        value = self.median_tokens * (math.exp(self.sigma * draws.normal()) if self.sigma else 1.0)
        return max(1, self.low_tokens, min(self.high_tokens, round(value)))

    def scaled(self, factor: float) -> Lengths:
        """All three token counts times the factor, each at least 1."""
        median, low, high = (
            max(1, round(tokens * factor)) for tokens in (self.median_tokens, self.low_tokens, self.high_tokens)
        )
        return Lengths(median, self.sigma, low, high)
