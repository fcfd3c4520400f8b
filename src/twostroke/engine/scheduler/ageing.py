"""Ageing: one in eight steps with prompts begins with the sequence that has waited longest, whatever the order is."""

from __future__ import annotations

from collections.abc import Iterable

from twostroke.engine.scheduler.sequence import Sequence

TURN_STEPS = 8


class AgeingTurns:
    """Decides in which steps the oldest sequence comes first. After TURN_STEPS - 1 steps in which sequences want
    prefill, it has a turn: it is first in each step until one step computes it.

    Bound. Let r be a waiting sequence, and let i run over r and all older sequences. Let n_i be the tokens of i to
    compute, and c the least chunk that a step's first prefill gets. Each turn computes at least c tokens of the oldest
    sequence, so together they need at most sum(ceil(n_i / c)) turns. Each i may also have to wait once for a place in
    the batch. During this wait no other sequence is admitted, and the running sequences end. That takes at most W
    steps: the sum over them of ceil(their tokens / c), plus the most output tokens that one of them may still make. So
    r has its first token after at most

        TURN_STEPS * sum(ceil(n_i / c)) + (number of i) * W steps

    however many younger requests arrive and however little slack they have. Only when memory runs out and sequences are
    preempted does the bound grow: these sequences are computed again, and count again.
    """

    def __init__(self, every_steps: int = TURN_STEPS) -> None:
        self._every_steps = every_steps
        self._steps = 0

    @property
    def open(self) -> bool:
        """True when the next step must begin with the oldest sequence."""
        return self._steps >= self._every_steps - 1

    def oldest(self, candidates: Iterable[Sequence]) -> Sequence | None:
        """Returns the candidate that arrived first; None when there is none."""
        return min(candidates, key=lambda s: s.number, default=None)

    def planned(self, prefilled: Iterable[Sequence], oldest: Sequence | None, wanted: bool) -> None:
        """Note a step that was planned: which sequences it prefills, and whether any sequence wanted prefill.

        oldest: the sequence that was to be first in the step; None when this was not an ageing step (`open` was False)
        or no sequence wanted prefill.
        """
        if not self.open:
            self._steps += wanted
        elif oldest is None or oldest in list(prefilled):
            self._steps = 0
