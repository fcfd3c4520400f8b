"""Ageing: one in eight steps with prompts begins with the sequence that has waited longest, whatever the order is."""

from __future__ import annotations

from collections.abc import Iterable

from twostroke.engine.scheduler.sequence import Sequence

TURN_STEPS = 8


class AgeingTurns:
    """Decides in which steps the oldest waiting sequence comes first, so that no prompt waits for ever. After
    TURN_STEPS - 1 steps with prefill work, the oldest sequence is first in each step until a step computes a chunk of
    it (a turn).

    Bound. Let r be a waiting sequence, and let i run over r and all older sequences. Let n_i be the number of tokens of
    i to compute, and c the least chunk that a step's first prefill gets. Each turn computes at least c tokens of the
    oldest sequence, so r and all older sequences need at most sum(ceil(n_i / c)) turns.

    Each i may also have to wait once for a place in the batch. Meanwhile no other sequence is admitted, and the running
    sequences end. This takes at most W steps. W is the sum of ceil(tokens / c) over the running sequences, plus the
    most output tokens that any running sequence may still make. So r has its first token after at most

        TURN_STEPS * sum(ceil(n_i / c)) + (number of i) * W steps

    however many younger requests arrive and however little slack they have. The bound grows only when memory runs out
    and sequences are preempted: these sequences are computed again, and count again.
    """

    def __init__(self, every_steps: int = TURN_STEPS) -> None:
        self._every_steps = every_steps
        self._steps = 0

    @property
    def open(self) -> bool:
        """True when it is the oldest sequence's turn: enough steps have passed, so the next step must begin with it."""
        return self._steps >= self._every_steps - 1

    def oldest(self, candidates: Iterable[Sequence]) -> Sequence | None:
        """Returns the candidate that arrived first; None when there is none."""
        return min(candidates, key=lambda s: s.number, default=None)

    def planned(self, prefilled: Iterable[Sequence], oldest: Sequence | None, wanted: bool) -> None:
        """Notes that a step was planned. prefilled: the sequences whose prompts it computes. wanted: whether any
        sequence wanted prefill.

        oldest: the sequence that had to be first in the step because `open` was True; None when `open` was False or no
        sequence wanted prefill.
        """
        if not self.open:
            self._steps += wanted
        elif oldest is None or oldest in list(prefilled):
            self._steps = 0
