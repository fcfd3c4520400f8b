"""Measures what calling a proposer gains, and decides how often it is called where that does not pay."""

from __future__ import annotations

MEMORY = 0.99
"""What an ask counts after the next one: about the last 100 decide."""
PRIOR_ASKS, PRIOR_TOKENS = 32.0, 64.0
"""What the record begins with: this many asks, with two accepted tokens for each."""
TRUSTED_ASKS = 24
"""A proposer that computes is called this often before it is judged, because the time and gain of a call must be
measured.
"""


class AskRecord:
    """How many tokens each ask of one proposer brought; the latest asks count most."""

    __slots__ = ("_asks", "_tokens", "count")

    def __init__(self) -> None:
        self._asks, self._tokens = PRIOR_ASKS, PRIOR_TOKENS
        self.count = 0

    def add(self, tokens: int) -> None:
        """Record one call of a proposer. tokens: how many proposed tokens were accepted; 0 where it proposed none."""
        self.count += 1
        self._asks = self._asks * MEMORY + 1.0
        self._tokens = self._tokens * MEMORY + tokens

    @property
    def is_judged(self) -> bool:
        """Was it called often enough to know what a call gains?"""
        return self.count >= TRUSTED_ASKS

    @property
    def tokens(self) -> float:
        """Accepted tokens for each ask, on average."""
        return self._tokens / self._asks


PROBE_SHARE = 0.005
"""The share of the steps' time that asking may take where it does not pay."""


class ProbeBudget:
    """Time for asking where asking does not pay, to see whether it does by now. It is a small share of the steps' time,
    so that finding out costs next to nothing, however many requests come and go."""

    __slots__ = ("_left_s",)

    def __init__(self) -> None:
        self._left_s = 0.0

    def step(self, seconds: float) -> None:
        """Save up a share of a step's time."""
        self._left_s += PROBE_SHARE * seconds

    def allows(self, seconds: float) -> bool:
        """Whether asking may take this long now; if so, the time is spent. At most one ask is saved up."""
        if self._left_s < seconds:
            return False
        self._left_s = 0.0
        return True
