"""A turn for the oldest: whatever order is best, every eighth step begins with who has waited longest.

Knows: sequences that want their prompts computed.
Must not know: slack, predictions, pages.
"""

from __future__ import annotations

from collections.abc import Iterable

from twostroke.scheduler.sequence import Sequence

TURN_STEPS = 8


class AgeingTurns:
    """Every TURN_STEPS-th step that has prefill to do, the oldest is first; the turn is kept until it is computed.

    Bound. Let r wait with n tokens to compute, and let older ones (finitely many, r's elders) have N tokens in all.
    While the turn is open nobody that waits enters before the oldest, so once running sequences have ended, which
    max_tokens bounds, the oldest enters; each turn computes at least the step's minimum chunk c of it. So r has its
    first token after at most (ceil(N / c) + ceil(n / c) + elders) turns, that is TURN_STEPS times as many steps with
    prefill, however many younger requests arrive, and however much less slack they have.
    """

    def __init__(self, every_steps: int = TURN_STEPS) -> None:
        self._every_steps = every_steps
        self._steps = 0

    @property
    def open(self) -> bool:
        """True where the oldest must be first."""
        return self._steps >= self._every_steps - 1

    def oldest(self, candidates: Iterable[Sequence]) -> Sequence | None:
        """By arrival."""
        return min(candidates, key=lambda s: s.number, default=None)

    def planned(self, prefilled: Iterable[Sequence], oldest: Sequence | None) -> None:
        """After each step: who was prefilled. oldest: of before it, where the turn was open and anybody wanted it."""
        chosen = list(prefilled)
        if not self.open:
            self._steps += bool(chosen)
        elif oldest is None or oldest in chosen:
            self._steps = 0
