"""suffix: the tokens that followed the last tokens most often, in this request and in finished answers.

The places where the end of the text occurred before are one node of a suffix tree. The tokens after these places are
the node's children, and their shares are the chances. So no tree is built: the places are looked up.

Source: SuffixDecoding (Oliaro et al. 2024) as Arctic Inference implements it. For every length of agreement it finds
the likeliest path, no longer than the agreement. A path is cut where its chance falls below `least_chance`. The path
with the largest sum of chances is taken. MODELS.md, section 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from twostroke.engine.speculate.finished import SEPARATOR, FinishedAnswers
from twostroke.engine.speculate.occurrences import Occurrence
from twostroke.engine.speculate.proposer import LONGEST_GUESS, NO_GUESS, Guess, GuessWanted
from twostroke.engine.speculate.running_texts import RunningTexts
from twostroke.types.request import Request

DEPTH = 24
MOST_PLACES = 16
"""In each text, at most this many places where the end of the text occurred are looked at: the latest."""


class SuffixProposer:
    """Satisfies `speculate.proposer.Proposer`.

    factor: the most tokens of a guess for each token by which the end of the text agrees with an earlier place.
    least_chance: the least probability of a guess's last token, multiplied by the probabilities of all tokens before
    it.
    """

    name = "suffix"
    computes, longest = False, LONGEST_GUESS
    ask_s = token_s = spent_s = 0.0

    def __init__(self, finished: FinishedAnswers, factor: float = 1.0, least_chance: float = 0.1) -> None:
        self._finished, self._factor, self._least_chance = finished, factor, least_chance
        self._seen = RunningTexts()

    def propose(self, asks: Sequence[GuessWanted]) -> list[Guess]:
        return [self._guess(*ask) for ask in asks]

    def _guess(self, request: Request, known: Sequence[int], most: int) -> Guess:
        seen = self._seen.grown(request.request_id, known)
        best = self._best(known, seen.of_end(known, DEPTH, MOST_PLACES), most, NO_GUESS)
        for tokens, index in self._finished.texts(request.cache_salt):
            best = self._best(tokens, index.of_end(known, tokens, DEPTH, MOST_PLACES), most, best)
        return best

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """See Proposer. The request's output is kept for requests with the same salt."""
        self._seen.forget(request.request_id)
        self._finished.add(request.cache_salt, known[len(request.prompt_token_ids) :])

    def _best(self, tokens: Sequence[int], places: list[Occurrence], most: int, best: Guess) -> Guess:
        """Returns the guess with the most expected tokens: `best`, or a guess made of the tokens that came after these
        places."""
        score = expected_tokens(best.chances)
        for matched in sorted({each.matched for each in places}, reverse=True):
            longest = min(most, int(matched * self._factor))
            if longest <= score:  # no path of this length or shorter can score higher
                break
            path = self._path(tokens, [each.place for each in places if each.matched >= matched], longest)
            if expected_tokens(path.chances) > score:
                best, score = Guess(path.token_ids, matched, path.chances), expected_tokens(path.chances)
        return best

    def _path(self, tokens: Sequence[int], places: list[int], longest: int) -> Guess:
        """Returns the path of the most frequent token at these places, then at those that continue with it, and so on.
        Of tokens with equal counts, the latest is taken."""
        path: list[int] = []
        chances: list[float] = []
        chance, end = 1.0, len(tokens)
        while len(path) < longest:
            nexts = [tokens[place] if place < end else SEPARATOR for place in places]
            token_id, count = Counter(nexts).most_common(1)[0]  # the first of equal counts, which is the latest
            if token_id == SEPARATOR or chance * count / len(nexts) < self._least_chance:
                break
            chances.append(count / len(nexts))
            chance *= chances[-1]
            path.append(token_id)
            places = [place + 1 for place, each in zip(places, nexts, strict=True) if each == token_id]
        return Guess(path, 0, chances)


def expected_tokens(chances: Sequence[float]) -> float:
    """Returns how many tokens of a guess are accepted on average, if each has its chance given those before it."""
    total, chance = 0.0, 1.0
    for each in chances:
        chance *= each
        total += chance
    return total
