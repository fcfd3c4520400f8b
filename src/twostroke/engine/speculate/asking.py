"""Measures what calling a proposer gains, and decides how often it is called when that does not pay."""

from __future__ import annotations

MEMORY = 0.99
"""Each call of the proposer multiplies the weight of all earlier calls by this factor. So about the last 100 calls
decide."""
PRIOR_ASKS, PRIOR_TOKENS = 32.0, 64.0
"""The record begins as if the proposer had been called this often and this many tokens had been accepted: two a call.
"""
TRUSTED_ASKS = 24
"""A proposer that computes is called this often before it is judged, because the time and gain of a call must be
measured.
"""


class AskRecord:
    """How many accepted tokens each call of one proposer brought; the latest calls count most."""

    __slots__ = ("_asks", "_tokens", "count")

    def __init__(self) -> None:
        self._asks, self._tokens = PRIOR_ASKS, PRIOR_TOKENS
        self.count = 0

    def add(self, tokens: int) -> None:
        """Record one call of a proposer. tokens: how many proposed tokens were accepted; 0 when it proposed none."""
        self.count += 1
        self._asks = self._asks * MEMORY + 1.0
        self._tokens = self._tokens * MEMORY + tokens

    @property
    def is_judged(self) -> bool:
        """True when the proposer was called often enough to know what a call gains."""
        return self.count >= TRUSTED_ASKS

    @property
    def tokens(self) -> float:
        """The accepted tokens for each call of the proposer, on average."""
        return self._tokens / self._asks


PROBE_SHARE = 0.005
"""The share of the time of all steps that may be spent on calls of proposers that do not pay at present."""


class ProbeBudget:
    """The time for calls of a proposer that does not pay at present, to find out whether it pays again. It is a small
    share of the steps' time, so that finding out costs almost nothing, however many requests come and go."""

    __slots__ = ("_left_s",)

    def __init__(self) -> None:
        self._left_s = 0.0

    def step(self, seconds: float) -> None:
        """Add PROBE_SHARE of a step's time to the budget. It is spent on calls of proposers that take longer than they
        save at present."""
        self._left_s += PROBE_SHARE * seconds

    def allows(self, seconds: float) -> bool:
        """Returns True when the budget covers a call of the proposer that takes `seconds`. If it does, the budget is
        set to 0."""
        if self._left_s < seconds:
            return False
        self._left_s = 0.0
        return True
