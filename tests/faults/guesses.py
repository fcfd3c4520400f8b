"""A drafter that knows the coming tokens and guesses them as often as its dice decide.

right: the share of its tokens that are right, as long as the tokens before them are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from twostroke.engine.speculate.guess_limiter import StepShape
from twostroke.engine.speculate.guesser import Guesses, Stream
from twostroke.types.request import Request

NextToken = Callable[[Request, Sequence[int]], int]


class Seer:
    """Satisfies scheduler.drafts.Drafter. next_token: the token that follows the known tokens of a request.

    told: counts of the guesses that came back: how many there were, and how many were right.
    """

    def __init__(self, next_token: NextToken, right: float, dice: random.Random, vocabulary: int) -> None:
        self._next_token, self._right, self._dice, self._vocabulary = next_token, right, dice, vocabulary
        self._asked: dict[str, int] = {}
        self.asleep: dict[str, int] = {}
        self.guessed = self.accepted = 0
        self.known: set[str] = set()

    def guess(self, streams: Sequence[Stream], shape: StepShape) -> Mapping[str, Guesses]:
        """A random number of tokens for each request, and none for some."""
        found = {}
        for stream in streams:
            assert stream.most >= 0 and shape.room_rows >= 0
            self.known.add(stream.request.request_id)
            tokens = self._tokens(stream, self._dice.randint(0, stream.most + 1))
            found[stream.request.request_id] = Guesses(tokens, "seer")
        self._asked = {name: len(guesses.token_ids) for name, guesses in found.items()}
        return found

    def observe(self, accepted: Mapping[str, int], measured_s: float) -> None:
        """Counts."""
        assert measured_s >= 0
        for name, count in accepted.items():
            assert 0 <= count <= self._asked[name]
            self.guessed += self._asked[name]
            self.accepted += count

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Checks that each request ends once."""
        self.known.discard(request.request_id)

    def _tokens(self, stream: Stream, count: int) -> list[int]:
        known, tokens = list(stream.known), list[int]()
        for _ in range(count):
            token_id = self._next_token(stream.request, known)
            if self._dice.random() >= self._right:
                token_id = (token_id + self._dice.randrange(1, self._vocabulary)) % self._vocabulary
            tokens.append(token_id)
            known.append(token_id)
        return tokens
