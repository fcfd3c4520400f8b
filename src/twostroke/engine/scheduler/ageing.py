"""Ageing: each eighth step with prompts begins with the sequence that has waited longest, whatever the order is."""

from __future__ import annotations

from collections.abc import Iterable

from twostroke.engine.scheduler.sequence import Sequence

TURN_STEPS = 8


class AgeingTurns:
    """Puts the oldest sequence first in every TURN_STEPS-th step in which sequences want prefill. The turn stays open
    until a step computes the oldest sequence.

    Bound. Let r be a waiting sequence, and let i run over r and all older sequences. Let n_i be the tokens of i to
    compute, and c the least chunk that a step's first prefill gets. Each turn computes at least c tokens of the oldest
    sequence, so all of them take at most sum(ceil(n_i / c)) turns. A turn may have to wait for a place, once for each
    i. While the turn is open no other sequence is admitted. Running sequences are computed and end after at most W =
    sum over them of (ceil(their tokens / c)) + the most tokens that one may still make. So r has its first token after
    at most

        TURN_STEPS * sum(ceil(n_i / c)) + (number of i) * W    steps

    however many younger requests arrive and however little slack they have. Only when memory runs out and sequences are
    preempted does the bound grow: these sequences are computed again, and count again.
    """

    def __init__(self, every_steps: int = TURN_STEPS) -> None:
        self._every_steps = every_steps
        self._steps = 0

    @property
    def open(self) -> bool:
        """True when the oldest sequence must be first."""
        return self._steps >= self._every_steps - 1

    def oldest(self, candidates: Iterable[Sequence]) -> Sequence | None:
        """Returns the candidate that arrived first; None when there is none."""
        return min(candidates, key=lambda s: s.number, default=None)

    def planned(self, prefilled: Iterable[Sequence], oldest: Sequence | None, wanted: bool) -> None:
        """Note a step: which sequences were prefilled, and whether any sequence wanted prefill.

        oldest: the oldest sequence before the step, when the turn was open and there was one.
        """
        if not self.open:
            self._steps += wanted
        elif oldest is None or oldest in list(prefilled):
            self._steps = 0
