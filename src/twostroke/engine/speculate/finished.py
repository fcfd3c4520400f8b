"""The answers of finished requests, kept by salt up to a number of tokens: proposers look up guesses for other requests
in them.

Each salt has two lists of answers. New answers go to the young list. When it is full, the old list is dropped and the
young one becomes the old one. So nothing is searched to find the oldest answers, and dropping them takes no time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from twostroke.engine.speculate.occurrences import Occurrences

MOST_TOKENS = 1 << 17
"""The most tokens that are kept for all salts together; each takes about 250 bytes at most."""
SEPARATOR = -1
"""The id that comes after each answer; no token has it."""


class _Generation:
    __slots__ = ("index", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.index = Occurrences()


class FinishedAnswers:
    """Keeps the answers of finished requests, so that proposers can look up tokens in them. most_tokens: the most
    tokens kept for all salts together. The least recently used salts are removed first."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most = most_tokens
        self._salts: OrderedDict[str, list[_Generation]] = OrderedDict()
        self.num_tokens = 0

    def add(self, salt: str, answer: Sequence[int]) -> None:
        """Keep an answer under this salt. Only its last tokens are kept when it is longer than half of most_tokens."""
        room = self._most // 2 - 1
        if not answer or room < 1:
            return
        generations = self._salts.setdefault(salt, [_Generation()])
        self._salts.move_to_end(salt)
        if len(generations[0].tokens) + len(answer) + 1 > room:
            generations.insert(0, _Generation())
            self._drop(generations[2:])
            del generations[2:]
        young = generations[0]
        before = len(young.tokens)
        young.tokens += [*answer[-room:], SEPARATOR]
        young.index.add(young.tokens)
        self.num_tokens += len(young.tokens) - before
        while self.num_tokens > self._most:
            oldest = next(iter(self._salts))
            self._drop([self._salts[oldest].pop()])
            if not self._salts[oldest]:
                del self._salts[oldest]

    def texts(self, salt: str) -> Iterator[tuple[Sequence[int], Occurrences]]:
        """Yields, for each of the two lists of answers under this salt, all tokens of the list and the index over them.
        The young list comes first."""
        generations = self._salts.get(salt)
        if generations is not None:
            self._salts.move_to_end(salt)
            for generation in generations:
                yield generation.tokens, generation.index

    def _drop(self, generations: list[_Generation]) -> None:
        self.num_tokens -= sum(len(generation.tokens) for generation in generations)
