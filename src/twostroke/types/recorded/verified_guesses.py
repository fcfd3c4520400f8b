"""Counts of the guesses that steps verified, and of the accepted tokens in them: sums that only rise."""

from __future__ import annotations

from itertools import zip_longest

from msgspec import Struct

from twostroke.types.plan import Plan
from twostroke.types.result import StepResult


class VerifiedGuesses(Struct, frozen=True):
    """Counts of the guesses in verified steps. guesses: the number of guesses, each of one or more tokens. tokens: the
    tokens in all guesses. accepted: the number of these tokens that were accepted. by_place: how many first tokens,
    second tokens and so on of guesses were accepted."""

    guesses: int = 0
    tokens: int = 0
    accepted: int = 0
    by_place: tuple[int, ...] = ()

    def plus(self, other: VerifiedGuesses) -> VerifiedGuesses:
        """Returns new counts, each the sum of this count and the same count of `other`."""
        if not other.guesses:
            return self
        places = zip_longest(self.by_place, other.by_place, fillvalue=0)
        return VerifiedGuesses(
            self.guesses + other.guesses,
            self.tokens + other.tokens,
            self.accepted + other.accepted,
            tuple(map(sum, places)),
        )


NO_GUESSES = VerifiedGuesses()


def guesses_of(plan: Plan, result: StepResult) -> VerifiedGuesses:
    """Returns the counts of the guesses that one step verified."""
    total = NO_GUESSES
    for sequence in plan.sequences if plan.num_draft_tokens else ():
        if tokens := len(sequence.draft_token_ids):
            accepted = max(0, len(result.sampled.get(sequence.request.request_id, ())) - 1)
            total = total.plus(VerifiedGuesses(1, tokens, accepted, (1,) * accepted))
    return total
