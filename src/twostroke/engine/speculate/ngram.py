"""ngram: guesses that text repeats. It proposes the tokens that followed the last tokens where they occurred before.

Source: prompt lookup decoding (Saxena 2023), as in vLLM; MODELS.md, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.engine.speculate.occurrences import SHORTEST, Occurrence
from twostroke.engine.speculate.proposer import LONGEST_GUESS, NO_GUESS, Guess, GuessWanted
from twostroke.engine.speculate.running_texts import RunningTexts
from twostroke.types.request import Request

MOST_MATCHED = 16
"""The most equal tokens that are counted when the end of the text is compared with an earlier place. More equal tokens
are no more evidence."""
MOST_PLACES = 8
"""The most places that are compared, the latest first, so that a token costs the same in any text."""


class NgramProposer:
    """Satisfies `speculate.proposer.Proposer`. Of the places with the longest agreement, the latest is taken.

    least: the number of tokens that must agree, at least 2. most: the largest number of agreeing tokens that is
    counted. A longer agreement is no better.
    """

    name = "ngram"
    computes, longest = False, LONGEST_GUESS
    ask_s = token_s = spent_s = 0.0

    def __init__(self, least: int = SHORTEST, most: int = MOST_MATCHED) -> None:
        self._least, self._most = max(least, SHORTEST), most
        self._seen = RunningTexts()

    def propose(self, asks: Sequence[GuessWanted]) -> list[Guess]:
        return [self._guess(*ask) for ask in asks]

    def _guess(self, request: Request, known: Sequence[int], most: int) -> Guess:
        seen = self._seen.grown(request.request_id, known)
        best: Occurrence | None = None
        for each in seen.of_end(known, self._most, MOST_PLACES):
            if best is None or each.matched > best.matched:
                best = each
        if best is None or best.matched < self._least:
            return NO_GUESS
        return Guess(continued(known, best.place, most), best.matched)

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self._seen.forget(request.request_id)


def continued(known: Sequence[int], place: int, count: int) -> list[int]:
    """Returns `count` tokens from `place` on. After the end of `known`, the copy continues with the tokens that it has
    copied itself."""
    tokens = list(known[place : place + count])
    for index in range(count - len(tokens)):
        tokens.append(tokens[index])
    return tokens
