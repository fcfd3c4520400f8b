"""What guesses tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from twostroke.types.request import Request


class GuessWanted(NamedTuple):
    """A stream that wants at most `most` tokens that may follow `known`: its prompt and output so far, which only
    grow."""

    request: Request
    known: Sequence[int]
    most: int


class Guess(Struct, frozen=True):
    """Tokens that may come next, in order.

    matched: how many tokens of the text agree with them: guesses of one proposer with about the same `matched` are
    accepted about equally often. chances: the probability of each token, given those before it, as the proposer
    estimates it; empty where it cannot.
    """

    token_ids: Sequence[int] = ()
    matched: int = 0
    chances: Sequence[float] = ()

    def cut(self, count: int) -> Guess:
        """The guess's first `count` tokens."""
        return Guess(self.token_ids[:count], self.matched, self.chances[:count])


NO_GUESS = Guess()
LONGEST_GUESS = 8
"""Rows that read weights once cost little up to about here; see GuessLimiter."""


class Proposer(Protocol):
    """Called by one thread. A guess depends on nothing but the proposer's calls so far; it may be wrong."""

    name: str
    computes: bool
    """A model or heads compute its guesses, so that asking costs time and nearly always gives one; False for those that
    look up."""
    longest: int
    """Tokens of a guess, at most."""
    ask_s: float
    """Seconds that asking for one stream takes, as measured; 0 where that is not known."""
    token_s: float
    """Seconds that guessing one more token of all asked streams takes next to that."""
    spent_s: float
    """Seconds of the last call; 0 where that is not known."""

    def propose(self, asks: Sequence[GuessWanted]) -> Sequence[Guess]:
        """A guess for each, NO_GUESS where nothing is known."""

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """A request has ended, for whatever reason: nothing is kept of it but what others may see."""
