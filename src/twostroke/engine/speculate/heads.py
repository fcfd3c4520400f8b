"""medusa: heads on the model's last hidden state, each of which guesses one of the next tokens.

Source: Medusa (Cai et al. 2024), one chain of the likeliest tokens; MODELS.md, section 6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from twostroke.engine.speculate.median import median
from twostroke.engine.speculate.proposer import NO_GUESS, Guess, GuessWanted
from twostroke.types.request import Request

MOST_FAULTS = 3
"""After this many calls in a row that raised, the heads are not asked any more."""
TIMED_CALLS = 15


class GuessingHeads(Protocol):
    """Guesses for streams whose last token was sampled in the step before."""

    def guess(self, wanted: Sequence[GuessWanted]) -> Sequence[Sequence[int]]:
        """Returns the guessed tokens of each stream, at most as many as its `GuessWanted.most`; none when the stream's
        hidden state is not known."""


class MedusaProposer:
    """Satisfies `speculate.proposer.Proposer`. first_call_s: the predicted seconds of one call for one stream. report:
    called with every fault."""

    name, computes = "medusa", True
    token_s = 0.0

    def __init__(
        self,
        heads: GuessingHeads,
        longest: int,
        clock: Callable[[], float],
        first_call_s: float,
        report: Callable[[Exception], None],
    ) -> None:
        self._heads, self._clock, self._report = heads, clock, report
        self._faults = 0
        self.longest, self.ask_s, self.spent_s = longest, first_call_s, 0.0
        self._times = deque([first_call_s], maxlen=TIMED_CALLS)

    def propose(self, wanted: Sequence[GuessWanted]) -> list[Guess]:
        """See Proposer. Heads that fail guess nothing, and the model goes on alone."""
        self.spent_s = 0.0
        if self._faults >= MOST_FAULTS or not wanted:
            return [NO_GUESS] * len(wanted)
        begin_s = self._clock()
        try:
            found = self._heads.guess(wanted)
        except Exception as error:
            self._faults += 1
            self._report(error)
            return [NO_GUESS] * len(wanted)
        self._faults = 0
        self.spent_s = self._clock() - begin_s
        self._times.append(self.spent_s / len(wanted))
        self.ask_s = median(self._times)
        return [Guess(token_ids) if token_ids else NO_GUESS for token_ids in found]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """See Proposer: nothing is kept."""
