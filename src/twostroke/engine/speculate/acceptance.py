"""Estimates how often guessed tokens are accepted: for each proposer by the length of the matched text, and for one
request compared with the others."""

from __future__ import annotations

from twostroke.engine.speculate.proposer import Guess

MEMORY = 0.98
"""Each guessed token whose acceptance is known multiplies the weight of all earlier tokens of its Kind by this factor.
So about the last 50 tokens decide."""
REQUEST_MEMORY = 0.9
PRIOR_TRIALS = 6.0
REQUEST_PRIOR_TRIALS = 3.0
FIRST_PRIOR, LATER_PRIOR = 0.3, 0.7
"""The acceptance rates that are assumed while no guess was compared. The first is for a guess's first token, the second
for a token after an accepted one."""
MOST_CHANCE = 0.99
LEAST_RECORD = 0.1
"""The least value of each sum in a GuessRecord: the accepted tokens and the expected ones. Without it, a request whose
guesses all failed could not recover. Both sums have the same bound, so the quotient stays near 1 for failures that were
expected."""

Kind = tuple[str, int, bool]
"""The kind of a guessed token, by which acceptance rates are kept: (proposer, size class of the matched text, whether a
token of the same guess came before)."""


class _Rate:
    """The share of compared tokens that were accepted, in which the latest tokens count most."""

    __slots__ = ("hits", "trials")

    def __init__(self, prior: float, weight: float) -> None:
        self.hits, self.trials = prior * weight, weight

    def add(self, hits: float, trials: float) -> None:
        keep: float = MEMORY**trials
        self.hits, self.trials = self.hits * keep + hits, self.trials * keep + trials

    @property
    def value(self) -> float:
        return self.hits / self.trials


class GuessRecord:
    """How often one request's guesses are accepted, relative to what is expected of all guesses of the same kinds: 1 is
    as often as expected."""

    __slots__ = ("_came_true", "_expected")

    def __init__(self) -> None:
        self._came_true = self._expected = REQUEST_PRIOR_TRIALS

    @property
    def factor(self) -> float:
        """How often this request's guesses are accepted, relative to other requests': above 1 is more often."""
        return self._came_true / self._expected

    def add(self, came_true: float, expected: float) -> None:
        """Note one token that was guessed. came_true: 1 when it was accepted, else 0. expected: the chance that was
        expected."""
        self._came_true = max(LEAST_RECORD, self._came_true * REQUEST_MEMORY + came_true)
        self._expected = max(LEAST_RECORD, self._expected * REQUEST_MEMORY + expected)


class Acceptance:
    """Estimates the chance that guessed tokens are accepted. One table of rates serves a whole engine; each request has
    a `GuessRecord` of its own."""

    def __init__(self) -> None:
        self._rates: dict[Kind, _Rate] = {}

    def chances(self, proposer: str, guess: Guess, record: GuessRecord) -> list[float]:
        """Returns, for each token of a guess, the chance that it and all tokens before it are accepted."""
        first, later = self._pair(proposer, guess.matched)
        factor, chances_of_tokens = record.factor, guess.chances
        found: list[float] = []
        chance, rate = 1.0, first.value
        for index in range(len(guess.token_ids)):
            each = rate * factor * chances_of_tokens[index] if chances_of_tokens else rate * factor
            chance *= each if each < MOST_CHANCE else MOST_CHANCE
            found.append(chance)
            rate = later.value
        return found

    def rates(self, proposer: str, record: GuessRecord) -> tuple[float, float]:
        """Returns two acceptance rates of a proposer that computes its guesses with a model. The first is for a guess's
        first token, the second for a token after an accepted one."""
        first, later = self._pair(proposer, 0)
        return min(MOST_CHANCE, first.value * record.factor), min(MOST_CHANCE, later.value * record.factor)

    def observe(
        self, proposer: str, guess: Guess, came_true: int, record: GuessRecord, *, differs: bool = True
    ) -> None:
        """Learns from a guess whose outcome is known. came_true: the number of accepted tokens at the beginning of the
        guess. differs: True when the token after these was wrong; False when it was not compared.

        The tokens after the first wrong one are not counted, because nothing shows whether they would have been
        accepted.
        """
        first, later = self._pair(proposer, guess.matched)
        chances_of_tokens = guess.chances
        for index in range(min(came_true + differs, len(guess.token_ids))):
            rate, hit = (later if index else first), float(index < came_true)
            chance = chances_of_tokens[index] if chances_of_tokens else 1.0
            record.add(hit, min(MOST_CHANCE, rate.value * chance))
            rate.add(hit, chance)

    def _pair(self, proposer: str, matched: int) -> tuple[_Rate, _Rate]:
        size = matched.bit_length()
        first = self._rates.get((proposer, size, False))
        if first is None:
            first = self._rates[proposer, size, False] = _Rate(FIRST_PRIOR, PRIOR_TRIALS)
            self._rates[proposer, size, True] = _Rate(LATER_PRIOR, PRIOR_TRIALS)
        return first, self._rates[proposer, size, True]
