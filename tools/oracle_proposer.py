"""The proposer `oracle`, which is for tests and measurements.

It knows the answers, and a set share of its guesses is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.engine.speculate.proposer import LONGEST_GUESS, NO_GUESS, Guess, GuessWanted
from twostroke.runner.sampling.random_draw import DRAW_BITS, draw
from twostroke.types.request import Request


class OracleProposer:
    """Satisfies `speculate.proposer.Proposer`. rate: the share of the output positions at which its guess is right."""

    name = "oracle"
    computes, longest = False, LONGEST_GUESS
    ask_s = token_s = spent_s = 0.0

    def __init__(self, rate: float, vocab_size: int) -> None:
        self._rate, self._vocab_size = rate, vocab_size
        self._answers: dict[tuple[int, ...], tuple[int, ...]] = {}

    def tell(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Records the model's answer to a prompt."""
        self._answers[tuple(prompt)] = tuple(answer)

    def propose(self, wanted: Sequence[GuessWanted]) -> list[Guess]:
        return [self._guess(*each) for each in wanted]

    def _guess(self, request: Request, known: Sequence[int], most: int) -> Guess:
        answer = self._answers.get(request.prompt_token_ids)
        if answer is None:
            return NO_GUESS
        at = len(known) - len(request.prompt_token_ids)
        return Guess([self._token(answer[place], place) for place in range(at, min(at + most, len(answer)))])

    def _token(self, token_id: int, place: int) -> int:
        """Returns the guess for a place. Whether it is wrong depends on the place alone."""
        return token_id if draw(0, place) < self._rate * 2**DRAW_BITS else (token_id + 1) % self._vocab_size

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Does nothing."""
