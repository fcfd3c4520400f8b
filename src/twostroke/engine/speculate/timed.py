"""Measures the time of a proposer that looks guesses up. The proposer is not asked when looking up takes longer than
guesses can save.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twostroke.engine.speculate.median import median
from twostroke.engine.speculate.proposer import Guess, GuessWanted, Proposer
from twostroke.types.request import Request

TIMED_CALLS = 15


class TimedProposer:
    """Satisfies `speculate.proposer.Proposer`: delegates to `inner` and records its time."""

    computes = False
    token_s = 0.0

    def __init__(self, inner: Proposer, clock: Callable[[], float]) -> None:
        self._inner, self._clock = inner, clock
        self.name, self.longest = inner.name, inner.longest
        self.ask_s = self.spent_s = 0.0
        self._times: deque[float] = deque(maxlen=TIMED_CALLS)

    def propose(self, asks: Sequence[GuessWanted]) -> Sequence[Guess]:
        begin_s = self._clock()
        found = self._inner.propose(asks)
        self.spent_s = self._clock() - begin_s
        if asks:
            self._times.append(self.spent_s / len(asks))
            self.ask_s = median(self._times)
        return found

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self._inner.ended(request, known)
