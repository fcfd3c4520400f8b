"""Guesses of a simulated engine. They come from the production guesser. Its proposer is right with a given share of
tokens."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import StepCost
from twostroke.engine.speculate.acceptance import Acceptance
from twostroke.engine.speculate.guess_limiter import GuessLimiter
from twostroke.engine.speculate.guesser import Guesser
from twostroke.engine.speculate.proposer import LONGEST_GUESS, Guess, GuessWanted
from twostroke.engine.speculate.verify_time import VerifyTime
from twostroke.lab.sim.predicted import invented_tokens
from twostroke.lab.workload.draws import Draws
from twostroke.types.request import Request

WRONG_TOKEN = (1 << 51) + 1
"""A token that no simulated answer has."""


class AgreeingProposer:
    """Proposes tokens of which the share `rate` is right. Satisfies `speculate.proposer.Proposer`."""

    name = "simulated"
    computes, longest = False, LONGEST_GUESS
    ask_s = token_s = spent_s = 0.0

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def propose(self, wanted: Sequence[GuessWanted]) -> list[Guess]:
        return [self._guess(*each) for each in wanted]

    def _guess(self, request: Request, known: Sequence[int], most: int) -> Guess:
        """Returns a guess of `most` tokens. It depends only on the request and the position, so that runs can be
        repeated."""
        at = len(known) - len(request.prompt_token_ids)
        right = invented_tokens(request, at, most)
        return Guess([token if self._agrees(request, at + place) else WRONG_TOKEN for place, token in enumerate(right)])

    def _agrees(self, request: Request, place: int) -> bool:
        return Draws(request.seed * 1_000_003 + place).uniform() < self._rate

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Ignores the end of a request, because this proposer keeps nothing of requests."""


def simulated_guesser(cost: StepCost, rate: float) -> Guesser:
    """Returns the guesser as `assemble` builds it, with AgreeingProposer alone. It decides as in production how many
    guesses pay."""
    limiter = GuessLimiter(VerifyTime(cost))
    return Guesser({"on": (AgreeingProposer(rate),)}, "on", limiter, Acceptance())
