"""The interface of the objects that guess tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from twostroke.types.request import Request


class GuessWanted(NamedTuple):
    """A stream for which a proposer should guess at most `most` tokens. known: its prompt and output so far, which only
    grow."""

    request: Request
    known: Sequence[int]
    most: int


class Guess(Struct, frozen=True):
    """Tokens that may come next, in order.

    matched: the number of latest known tokens that also precede the copied text; 0 for a guess that is not copied.
    Guesses of one proposer with about the same `matched` are accepted about equally often. chances: the probability of
    each token, given those before it, as the proposer estimates it; empty when it cannot.
    """

    token_ids: Sequence[int] = ()
    matched: int = 0
    chances: Sequence[float] = ()

    def cut(self, count: int) -> Guess:
        """Returns the guess's first `count` tokens."""
        return Guess(self.token_ids[:count], self.matched, self.chances[:count])


NO_GUESS = Guess()
LONGEST_GUESS = 8
"""The most tokens of a guess. A step reads weights once for all its rows, and up to about this number more rows cost
little; see GuessLimiter."""


class Proposer(Protocol):
    """An object that guesses the next tokens of sequences. One thread calls it. A guess depends on nothing but the
    calls so far; it may be wrong."""

    name: str
    computes: bool
    """True when a model guesses the tokens, so that a call takes time and nearly always gives a guess; False for
    proposers that look tokens up."""
    longest: int
    """The most tokens of a guess."""
    ask_s: float
    """The measured seconds that a call takes for one stream; 0 when that is not known."""
    token_s: float
    """The additional seconds for guessing one more token for all streams of a call."""
    spent_s: float
    """The seconds of the last call; 0 when that is not known."""

    def propose(self, asks: Sequence[GuessWanted]) -> Sequence[Guess]:
        """Returns a guess for each element of `asks`; NO_GUESS when nothing is known."""

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Note that a request has ended, for whatever reason. The proposer forgets it, except for the text that it may
        use in guesses for other requests."""
